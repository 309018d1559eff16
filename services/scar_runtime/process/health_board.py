"""The standard health service. Who watches it holds no thread, so that any number of clients may.

gRPC's own servicer cannot be had for that: in its non-blocking way it waits, under its lock, for the server's
one polling thread to send a change, while that thread waits for the lock to forget a watcher that has gone.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from scar.errors import Busy, to_metadata

HEALTH = "grpc.health.v1.Health"
LIVENESS = "liveness"  # health name: SERVING while the working thread moves, whatever Redis and the store do
# health name: SERVING while this process does its part, which for a coordinator may be to stand by
READINESS = "readiness"

SENDERS = 8  # threads that answer, and tell watchers of changes
MAX_WATCHES = 4096
CONNECTION_WATCHES = 8  # of one connection; a client needs one
SEND_SECONDS = 5.0  # to hear of a change: who does not listen is watched for no longer

Status = health_pb2.HealthCheckResponse
Send = Callable[[Any], None]


def probe_threads() -> ThreadPoolExecutor:
    """For those who ask how a process is, and for what they are told."""
    return ThreadPoolExecutor(SENDERS, "probe")


class HealthBoard:
    """Everything is NOT_SERVING until it is said to be ready, and for good after ``close``.

    ``pool``: of :func:`probe_threads`; they answer while the server's own are all busy.
    """

    def __init__(self, names: Sequence[str], pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._names = ("", *names)
        self._watches: dict[HealthWatch, None] = {}
        self._lock = Lock()
        self._closed = False
        self.shown: dict[str, bool] = {}
        self.show(ready=False, settled=False, alive=True)

    def register(self, server: grpc.Server) -> None:
        """Serve it on this server, too."""
        request = health_pb2.HealthCheckRequest.FromString
        check = _in_pool(self.check, self._pool)
        watch = _in_pool(self.watch, self._pool)
        watch.experimental_non_blocking = True
        handlers = {
            "Check": grpc.unary_unary_rpc_method_handler(check, request, Status.SerializeToString),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, request, Status.SerializeToString),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH, handlers),))

    def show(self, *, ready: bool, settled: bool, alive: bool) -> None:
        """What is so now. Watchers hear of changes only."""
        told = dict.fromkeys(self._names, ready) | {READINESS: settled, LIVENESS: alive}
        with self._lock:
            if self._closed:
                return
            changed = {name for name, value in told.items() if self.shown.get(name) != value}
            self.shown = told
            watches = [watch for watch in self._watches if watch.service in changed] if changed else []
        for watch in watches:
            self._pool.submit(watch.tell)

    def close(self) -> None:
        """Nothing is served any more."""
        self.show(ready=False, settled=False, alive=False)
        with self._lock:
            self._closed = True

    def drop_deaf(self) -> None:
        """End the watches of those who do not listen: each holds a thread."""
        now = time.monotonic()
        with self._lock:
            deaf = [watch for watch in self._watches if now - watch.telling_since > SEND_SECONDS]
        for watch in deaf:
            watch.context.cancel()

    # --- on the wire ---------------------------------------------------------------------------------------

    def check(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.service not in self.shown:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            return Status()
        return Status(status=self._status(request.service))

    def watch(self, request: Any, context: grpc.ServicerContext, send: Send) -> None:
        """Returns at once; ``send`` is good until the call ends."""
        peer = context.peer()
        watch = HealthWatch(request.service, context, send, self._status)
        peer = watch.peer
        with self._lock:
            peers = Counter(other.peer for other in self._watches)
            full = len(self._watches) >= MAX_WATCHES or peers[peer] >= CONNECTION_WATCHES
            if not full:
                self._watches[watch] = None
        if full:
            busy = Busy(f"health is watched by {len(self._watches)} already, {peers[peer]} of them you")
            context.set_trailing_metadata(to_metadata(busy))
            context.abort(busy.code, busy.message)
        if not context.add_callback(partial(self._forget, watch)):
            self._forget(watch)
        watch.tell()

    def _forget(self, watch: HealthWatch) -> None:
        with self._lock:
            self._watches.pop(watch, None)

    def _status(self, name: str) -> int:
        shown = self.shown.get(name)
        if shown is None:
            return int(Status.SERVICE_UNKNOWN)
        return int(Status.SERVING if shown else Status.NOT_SERVING)


class HealthWatch:
    """One client that watches one name. ``status``: of a name, now. ``telling_since``: when it was begun to
    tell it something; infinite: it knows.
    """

    def __init__(
        self, service: str, context: grpc.ServicerContext, send: Send, status: Callable[[str], int]
    ) -> None:
        self.service = service
        self.context = context
        self.peer = str(context.peer())
        self.telling_since = math.inf
        self._send = send
        self._status = status
        self._told = -1
        self._stale = False
        self._lock = Lock()

    def tell(self) -> None:
        """Send what is so now. Only one thread waits for it to arrive: that one sends what is new then."""
        with self._lock:
            self._stale = True
            if self.telling_since < math.inf:
                return
            self.telling_since = time.monotonic()
        while self._is_stale():
            status = self._status(self.service)
            if status != self._told:
                self._send(Status(status=status))
                self._told = status

    def _is_stale(self) -> bool:
        with self._lock:
            stale = self._stale
            self._stale = False
            self.telling_since = time.monotonic() if stale else math.inf
        return stale


def _in_pool(behavior: Callable[..., Any], pool: ThreadPoolExecutor) -> Any:
    """gRPC reads from a behaviour in which pool it runs."""
    tagged: Any = partial(behavior)
    tagged.experimental_thread_pool = pool
    return tagged
