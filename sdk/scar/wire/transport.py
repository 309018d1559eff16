"""Connections: one channel to one life of one process. Every failure leaves this module as a
:class:`scar.errors.ScarError`.

All processes of a cluster use :func:`channel_options` and :func:`server_options`, so that limits and timing
agree on both ends.
"""

from __future__ import annotations

import gc
import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from scar import errors
from scar.wire.cluster_token import TokenChannel
from scar.wire.codec import MAX_MESSAGE_BYTES
from scar.wire.credentials import active_credentials, answering_role
from scar.wire.interception import intercepted
from scar.wire.secure_channel import SecureChannel

KEEPALIVE_MS = 10_000
PING_TIMEOUT_MS = 5_000
LEADER_PING_MS = 2_000  # to a coordinator: a frozen one is left for its successor after two of these
LEADER_CONNECTION_MS = 10_000  # age at which a connection to a coordinator is renewed
LEADER_GRACE_MS = 60_000  # for calls on the old one to end; the longest waits 30 s for an epoch
RESOLVE_MS = 1_000  # least time between two looks at a coordinator's name
ATTEMPT_SECONDS = 5.0  # one try of a small call, inside the deadline of the whole operation
SLOWEST_RATE = 1 << 20  # bytes per second that one try of a large call may count on

# coordinators, by service
RECOVERY = "scar.v1.Recovery"
CHECKPOINT = "scar.v1.Checkpoint"
DETECTOR = "scar.v1.Detector"

Reply = TypeVar("Reply")


# Large frames: a chunk of 2 MiB is one frame instead of 128.
_STREAM_OPTIONS = [("grpc.http2.max_frame_size", 4 << 20)]


def channel_options() -> list[tuple[str, int]]:
    """Options of every client channel.

    A ping timeout of its own, because keepalive alone never notices a server stopped by SIGSTOP; a short
    reconnect backoff, because the default grows to two minutes; a subchannel pool of its own, because a
    shared one carries the backoff of a dead process over to its successor at the same address; no proxy,
    because members talk to members.
    """
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.min_reconnect_backoff_ms", 2000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        *_STREAM_OPTIONS,
    ]


def server_options(connection_ms: int = 0) -> list[tuple[str, int]]:
    """Options of every server: the same message limit, and pings as often as :func:`channel_options` sends
    them.

    ``connection_ms``: age at which connections are renewed; 0: never. Coordinators do it, because a client
    looks a name up again only when it loses a connection: it would never hear of a replica that came after it
    had looked.
    """
    age = [
        ("grpc.max_connection_age_ms", connection_ms),
        ("grpc.max_connection_age_grace_ms", LEADER_GRACE_MS),
    ]
    return [
        *(age if connection_ms else []),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
        *_STREAM_OPTIONS,
    ]


def leader_options(service: str) -> list[tuple[str, int | str]]:
    """Options of a channel to a coordinator, of which several replicas may stand behind one name.

    gRPC connects to every address of the name, asks each for the health of ``service`` (its full name), and
    sends calls only to those that say SERVING: the leader. Addresses are looked up again whenever one of them
    fails.
    """
    config = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": service}}
    special: dict[str, int | str] = {
        "grpc.service_config": json.dumps(config),
        "grpc.service_config_disable_resolution": 1,
        "grpc.dns_min_time_between_resolutions_ms": RESOLVE_MS,
        "grpc.keepalive_time_ms": LEADER_PING_MS,
        "grpc.keepalive_timeout_ms": LEADER_PING_MS,
        "grpc.http2.ping_timeout_ms": LEADER_PING_MS,
    }
    return list((dict(channel_options()) | special).items())


def open_channel(address: str, service: str = "", role: str = "") -> grpc.Channel:
    """A channel with the standard options. Nothing is sent before the first call.

    ``service``: full name of a coordinator's service; then ``address`` is any gRPC target, and its leader
    gets the calls. ``role``: who answers, such as "shard", for services that members of all roles have.
    """
    ensure_not_forked(_connects.setdefault("pid", os.getpid()))
    options: list[tuple[str, int | str]] = [*(leader_options(service) if service else channel_options())]
    own = active_credentials()
    if own.certificate is None:
        channel = intercepted(grpc.insecure_channel(address, options=options))
        return TokenChannel(channel, own.token) if own.token else channel
    if service and not role:
        role = answering_role(f"/{service}/")
    return SecureChannel(own.certificate, address, options, role)


# or the child's garbage collector would end calls of its parent
os.register_at_fork(after_in_child=gc.freeze)
_connects: dict[str, int] = {}  # "pid": of the process whose connections these are


def ensure_not_forked(pid: int) -> None:
    """Raises :class:`InvalidRequest` unless this is process ``pid``: its forked copy has its connections, but
    not its threads.

    Without this a call would wait forever for an answer that nobody receives.
    """
    if os.getpid() != pid:
        raise errors.InvalidRequest(
            f"this connection belongs to process {pid}, and this is a forked copy of it",
            "Pull and push in the process that has joined, hand arrays to its children, or start them by"
            " 'spawn'",
        )


class Deadline:
    """Time left for one operation, in seconds of the monotonic clock. It ends early when ``stopping`` is set.

    Time for which ``held`` says why nobody can go on does not count, up to ``patience`` seconds. Any thread
    may ask.
    """

    def __init__(
        self,
        seconds: float,
        stopping: threading.Event | None = None,
        held: Callable[[], str] = lambda: "",
        patience: float = math.inf,
    ) -> None:
        self.seconds = seconds
        self._looked = time.monotonic()
        self._end = self._looked + seconds
        self._stopping = stopping
        self._held = held
        self._patience = patience
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float:
        if self._stopping is not None and self._stopping.is_set():
            return 0.0
        with self._lock:
            now = time.monotonic()
            more = min(now - self._looked, self._patience) if self._held() else 0.0
            self._looked, self._end, self._patience = now, self._end + more, self._patience - more
            return max(0.0, self._end - now)

    @property
    def expired(self) -> bool:
        return self.remaining <= 0

    def exceeded(self, waited_for: str, last: BaseException | None = None) -> errors.DeadlineExceeded:
        """The error to raise when nothing is left; says what was waited for and what went wrong last."""
        cause = f"; last problem: {getattr(last, 'message', last)}" if last else ""
        held = f"; {reason}" if (reason := self._held()) else ""
        return errors.DeadlineExceeded(f"waited {self.seconds:g} s for {waited_for}{cause}{held}")


class Backoff:
    """Growing waits in seconds with jitter, so that clients of one dead process do not return in step."""

    def __init__(self, first: float = 0.02, most: float = 0.5) -> None:
        self._first = first
        self._most = most
        self._now = first

    def next(self) -> float:
        wait, self._now = self._now, min(2 * self._now, self._most)
        return wait * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._now = self._first


class AttemptLimit:
    """Seconds for one try of a call that moves bytes: a lost message must not cost the whole operation's
    deadline. Twice as many after each that was too short, as a shard may be slow.
    """

    def __init__(self) -> None:
        self._factor = 1.0

    def seconds(self, size: int) -> float:
        """``size``: bytes that it moves."""
        return self._factor * (ATTEMPT_SECONDS + size / SLOWEST_RATE)

    def note_error(self, error: errors.ScarError | None) -> None:
        """How a try ended; None: well."""
        if error is None:
            self._factor = 1.0
        elif isinstance(error, errors.DeadlineExceeded):
            self._factor *= 2


class Link:
    """A connection to one process, or with ``service`` to the replica of a coordinator that leads (see
    :func:`open_channel`).

    ``name`` appears in errors. Calls may come from any thread.
    """

    def __init__(self, address: str, name: str, service: str = "", role: str = "") -> None:
        self.address = address
        self.target = f"{name} at {address}"
        self.channel = open_channel(address, service, role)
        self._closed = False

    def call(self, method: Callable[..., Reply], request: object, timeout: float) -> Reply:
        """One unary call of a stub made on :attr:`channel`, at most ``timeout`` seconds."""
        try:  # no context manager, which takes a part of a small call's time
            return method(request, timeout=timeout)
        except (grpc.RpcError, ValueError) as error:
            raise self._typed_error(error) from error

    def close(self) -> None:
        """Ends calls in flight, too: they raise :class:`scar.errors.Unreachable`."""
        self._closed = True
        self.channel.close()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (grpc.RpcError, ValueError) as error:
            raise self._typed_error(error) from error

    def _typed_error(self, error: Exception) -> errors.ScarError:
        """Raises a ValueError that is not what gRPC raises for a call on a channel that was closed."""
        if isinstance(error, grpc.RpcError):
            return errors.from_rpc(error, self.target)
        if not self._closed:
            raise error
        return errors.Unreachable(f"{self.target}: the connection was closed")


def retry(attempt: Callable[[float], Reply], deadline: Deadline, waiting_for: str) -> Reply:
    """Call ``attempt(timeout)`` until it answers. Temporary errors and lost answers are tried again until
    the deadline.
    """
    backoff = Backoff()
    while True:
        try:
            return attempt(max(0.001, min(ATTEMPT_SECONDS, deadline.remaining)))
        except (errors.Temporary, errors.DeadlineExceeded) as error:
            wait = backoff.next()
            if deadline.remaining <= wait:
                raise deadline.exceeded(waiting_for, error) from error
            time.sleep(wait)
