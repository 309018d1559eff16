"""What is checked before a cluster starts, so that a start which cannot succeed says why within seconds.

The services would find out, too, but they wait for a store or a Redis that may come back, as they must on
Kubernetes.
"""

from __future__ import annotations

import os
import resource
import threading

import redis

from scar.errors import ConfigError, LivenessUnavailable, ScarError, StoreUnavailable, UnsafeStore
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.liveness.redis_url import REDIS_CA, with_redis_ca
from scar_runtime.store import open_store

REDIS_SECONDS = 1.0
STORE_SECONDS = 3.5
# a process needs about 25 and, if it knows all members, 2 for each of them; Redis keeps 32 for itself
OPEN_FILES = 256
WANTED_FILES = 4096


def check_machine(store: str, redis_url: str) -> None:
    """Everything. ``redis_url``: of a Redis that was given; empty: the cluster starts its own."""
    check_open_files()
    check_store(store)
    if redis_url:
        check_redis(redis_url)


def check_open_files() -> None:
    """Raise this process's limit, which its children inherit, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    elif soft != resource.RLIM_INFINITY:
        most = soft
    if most < OPEN_FILES:
        raise ConfigError(
            f"a process may open only {most} files here, and a cluster's processes need {OPEN_FILES}",
            f"Run `ulimit -n {WANTED_FILES}` as somebody who may, or raise `nofile` in"
            " /etc/security/limits.conf",
        )


def check_redis(url: str) -> None:
    """Whether the Redis that was given answers. Raises :class:`ConfigError`."""
    trusted = with_redis_ca(url, os.environ.get(REDIS_CA, ""))
    heartbeats = HeartbeatStore(trusted, "preflight", timeout=REDIS_SECONDS)
    try:
        heartbeats.ping()
    except LivenessUnavailable as error:
        if isinstance(error.__cause__, redis.AuthenticationError):
            step = "Write --redis redis://USER:PASSWORD@HOST:PORT/0; USER may be empty"
            raise ConfigError("the Redis of --redis needs a password, or another one", step) from error
        step = "Start Redis there, correct --redis, or leave it out: a cluster has a Redis of its own"
        raise ConfigError(error.message, step) from error
    finally:
        heartbeats.close()


def check_store(url: str, seconds: float = STORE_SECONDS) -> None:
    """Whether objects can be written, and safely. Raises :class:`ConfigError`,
    :class:`scar.errors.UnsafeStore`.
    """
    found: list[ScarError | None] = []
    prober = threading.Thread(target=lambda: found.append(_probe_store(url)), name="preflight", daemon=True)
    prober.start()
    prober.join(seconds)  # a mount or a server that hangs must not hang the start
    problem = found[0] if found else StoreUnavailable(f"{url} has not answered for {seconds:g} s")
    if isinstance(problem, ConfigError | UnsafeStore):
        raise problem
    if problem is not None:
        step = (
            problem.next_step
            if problem.next_step != problem.default_next
            else "Correct --store, or repair the store"
        )
        raise ConfigError(f"the store cannot be written: {problem.message}", step)


def _probe_store(url: str) -> ScarError | None:
    try:
        open_store(url).probe()
    except ScarError as error:
        return error
    return None
