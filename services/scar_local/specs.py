"""How each process of a cluster is started: its command and its settings, all through ``SCAR_*``
variables.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import scar
import scar_local
from scar.wire.cluster_token import TOKEN_FILE
from scar_local.authority import role_variables
from scar_local.directory import ClusterDirectory
from scar_local.preload import modules_to_preload
from scar_local.process_spec import Spec
from scar_local.redis import HOST, server_command
from scar_runtime.store.signatures import VARIABLE as STORE_KEY

COORDINATORS = ("recovery", "detector", "checkpoint")
LED = ("recovery", "checkpoint")  # of these one leads, and others may stand by
KEY_HOLDERS = ("shard", "recovery", "checkpoint")  # roles that believe what lies in the store
LEAVE_SECONDS = "SCAR_LEAVE_SECONDS"  # of a shard, to hand its blocks over
MOST_SECONDS = "600"  # nobody takes this machine away, and what is not handed over is lost as by a crash
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class ProcessSettings:
    """What all processes of a cluster share. ``label``: its name among others. ``environment`` wins over
    everything. ``certificates``: where those of all roles are; None: no TLS, but the token in ``directory``.
    ``store_key``: file of the key that signs what lies in the store; None: nothing is signed, unless the
    environment names one.
    """

    directory: Path
    label: str
    redis: str
    store: str
    environment: Mapping[str, str] = field(default_factory=dict)
    certificates: Path | None = None
    store_key: Path | None = None

    def variables(self, name: str, addresses: Mapping[str, str], role: str) -> dict[str, str]:
        """Environment of the process ``name``; ``addresses``: coordinator -> host:port, as far as they are
        known.
        """
        known = {f"SCAR_{kind.upper()}": address for kind, address in addresses.items()}
        own = {
            "SCAR_NAME": name,
            "SCAR_CLUSTER": self.label,
            "SCAR_REDIS": self.redis,
            "SCAR_STORE": self.store,
        }
        token = "" if self.certificates else str(ClusterDirectory(self.directory).token)
        trusted = {**role_variables(self.certificates, role), TOKEN_FILE: token}
        if role in KEY_HOLDERS and self.store_key is not None and self.store_key.exists():
            own[STORE_KEY] = str(self.store_key)
        return {"SCAR_LISTEN": f"{HOST}:0", **known, **own, **trusted, **self.environment}


@dataclass(frozen=True)
class TrainFile:
    """A user's training file, what it finds in ``sys.argv`` behind its path, and its training function."""

    path: Path
    arguments: tuple[str, ...] = ()
    function: str = "train"


def machine_variables() -> dict[str, str]:
    """One BLAS thread a process, since many processes share the cores; whether gRPC minds forks; a
    checkout's import path.
    """
    found = {name: os.environ.get(name, "1") for name in _ONE_THREAD}
    # set by scar, unless the user has set it
    found["GRPC_ENABLE_FORK_SUPPORT"] = os.environ["GRPC_ENABLE_FORK_SUPPORT"]
    roots = [Path(package.__path__[0]).parent for package in (scar, scar_local)]
    paths = [str(root) for root in roots if root.name != "site-packages"] + [os.environ.get("PYTHONPATH", "")]
    return {**found, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONUNBUFFERED": "1"}


def redis_server(settings: ProcessSettings, port: int) -> Spec:
    """The server itself where the kernel ties it to its parent; else a process of ours that does."""
    config = ClusterDirectory(settings.directory).redis_config
    if sys.platform == "linux":
        return Spec("redis", ("program", *server_command(port, settings.directory, config)), fixed=True)
    arguments = (str(port), str(settings.directory), str(config))
    return Spec("redis", ("module", "scar_local.redis", *arguments), fixed=True)


def as_variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as the environment variables of a service: ``lease_seconds`` is ``SCAR_LEASE_SECONDS``."""
    return {f"SCAR_{key.upper()}": str(value) for key, value in settings.items()}


def through_proxy(redis: str, proxy: str) -> str:
    """The URL of a Redis that is reached by ``proxy``, host:port; empty: as it is."""
    parts = urlsplit(redis)
    user, mark, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{mark}{proxy}").geturl() if proxy else redis


def coordinators(kind: str, standby: bool) -> list[str]:
    """Names of the processes of this kind."""
    return [f"{kind}-{number}" for number in range(2 if standby and kind in LED else 1)]


def coordinator(settings: ProcessSettings, kind: str, name: str, addresses: Mapping[str, str]) -> Spec:
    """Recovery, detector or checkpoint coordinator. It keeps its address, since the others are told only
    once.
    """
    return _service_spec(settings, f"scar_{kind}", name, addresses, fixed=True)


def shard(
    settings: ProcessSettings, number: int, addresses: Mapping[str, str], extra: Mapping[str, str]
) -> Spec:
    asked = {**os.environ, **settings.environment}
    patient = {LEAVE_SECONDS: MOST_SECONDS} if LEAVE_SECONDS not in asked else {}
    return _service_spec(settings, "scar_ps", f"ps-{number}", addresses, {**patient, **extra})


def worker(
    settings: ProcessSettings, name: str, file: TrainFile, job: str, addresses: Mapping[str, str]
) -> Spec:
    """It has no address file: nobody waits for it, and it may end at once; and no way to Redis, since it runs
    a user's code. ``job`` empty: the file's.
    """
    printed = ClusterDirectory(settings.directory).logs / f"{name}.out"
    variables = settings.variables(name, addresses, "worker") | {
        "SCAR_TRAIN": str(file.path),
        "SCAR_ARGUMENTS": shlex.join(file.arguments),
        "SCAR_FUNCTION": file.function,
        "SCAR_JOB": job,
        "SCAR_OUTPUT": str(printed),
    }
    variables.pop("SCAR_REDIS")
    preload = modules_to_preload(file.path) if sys.platform == "linux" else ()  # elsewhere none is forked
    return Spec(name, ("module", "scar_worker"), variables, worker=True, output=printed, preload=preload)


def _service_spec(
    settings: ProcessSettings,
    module: str,
    name: str,
    addresses: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
    fixed: bool = False,
) -> Spec:
    file = settings.directory / "addresses" / name
    role = "shard" if module == "scar_ps" else module.removeprefix("scar_")
    variables = {**settings.variables(name, addresses, role), **(extra or {}), "SCAR_ADDRESS_FILE": str(file)}
    return Spec(name, ("module", module), variables, file, fixed)
