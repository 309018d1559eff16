"""Who writes down what the workers do: the chaos process itself, as everything else may be broken on purpose.

A worker sends what it is about to push, and pushes only when the recorder has it: so the history survives
whatever happens to the worker, its pod or its node. The answer carries the orders of the run: the clock at
which to rest, or to end.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc

from scar.errors import ConfigError, InvalidRequest
from scar.placement import Role
from scar.tables import Job
from scar.wire.credentials import (
    INSECURE,
    active_certificate,
    active_token,
    bind_server,
    caller_identity,
    has_token,
)
from scar.wire.transport import Backoff, Deadline, open_channel, server_options
from scar_chaos.oracles.history import History

METHOD = "/scar.chaos.Recorder/Write"
ATTEMPT_SECONDS = 5.0  # one try of one write
KEY = re.compile(r"[A-Za-z0-9.-]{1,200}@[0-9a-f]{1,32}")
PATIENCE_SECONDS = 120.0  # how long a worker goes without its recorder: longer than any fault lasts
TAIL_BYTES = 64 << 10  # of a worker's record; a clock takes a few thousand

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

WorkerOrders = dict[str, int]  # "hold", "end": the clock at which to rest, or to end


class Recorder:
    """Writes one file of JSON lines per worker incarnation into ``folder``.

    ``at`` in its lines is this process's monotonic clock.

    ``listen``: host:port, port 0 for any. ``host``: under which workers reach it.
    """

    def __init__(self, folder: Path, listen: str = "127.0.0.1:0", host: str = "127.0.0.1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.orders: WorkerOrders = {}
        self._written: dict[str, int] = {}  # worker key -> number of its last write
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(8, "recorder"), options=server_options())
        self._server.add_generic_rpc_handlers((_Handler(self._write_events),))
        try:
            port = bind_server(self._server, listen, os.environ.get(INSECURE) == "true")
        except RuntimeError as error:
            raise ConfigError(
                f"the recorder cannot listen at {listen}", "Choose a free port by --listen HOST:PORT"
            ) from error
        self.address = f"{host}:{port}"
        self._server.start()

    def give_orders(self, **orders: int) -> None:
        """Tell the workers (see ``workload.py``); replaces what was said before."""
        self.orders = orders

    def close(self) -> None:
        self._server.stop(0.2).wait(2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_events(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """A write that comes again, because its answer was lost, is written once."""
        if not _may_write(context):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "only workers of this cluster may write here")
        now = time.monotonic()
        worker, number, events = decode_events(request)
        with self._lock:
            if number > self._written.get(worker, 0) and events:
                with (self.folder / f"{worker}.jsonl").open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps({**event, "at": now}) + "\n" for event in events)
                self._written[worker] = number
        return json.dumps(self.orders).encode()


def _may_write(context: grpc.ServicerContext) -> bool:
    """Whether a worker calls: by its certificate, or the token of a cluster on one machine."""
    own = active_certificate()
    if own is None:
        return has_token(context, active_token())
    caller = caller_identity(context)
    return caller is not None and (caller.cluster, caller.role) == (own.identity.cluster, Role.WORKER.label)


def decode_events(request: bytes) -> tuple[str, int, list[dict[str, Any]]]:
    """Which worker incarnation writes, the number of this write, its events.

    Raises :class:`InvalidRequest`.
    """
    try:
        message = json.loads(request)
        worker = str(message["worker"])
        number = int(message["number"])
        events = [dict(event) for event in message["events"]]
    except UNREADABLE as error:
        raise InvalidRequest(f"a worker's record cannot be read: {error}") from error
    if not KEY.fullmatch(worker):  # it becomes the name of a file
        raise InvalidRequest(f"{worker[:200]!r} is no member")
    return worker, number, events


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, write: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
        self._method = grpc.unary_unary_rpc_method_handler(write)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._method if details.method == METHOD else None


class RecorderClient:
    """A worker's connection to the recorder. For one thread."""

    def __init__(self, address: str, worker: str) -> None:
        self._worker = worker
        self._number = 0
        self._channel = open_channel(address)
        self._call = self._channel.unary_unary(METHOD)

    def write_events(self, *events: dict[str, Any]) -> WorkerOrders:
        """Returns the newest orders when the events are written down.

        Raises :class:`scar.errors.DeadlineExceeded` when the recorder is gone.
        """
        self._number += 1
        request = json.dumps({"worker": self._worker, "number": self._number, "events": events}).encode()
        deadline = Deadline(PATIENCE_SECONDS)
        backoff = Backoff()
        while True:
            try:
                answer = self._call(request, timeout=ATTEMPT_SECONDS, wait_for_ready=True)
                orders: WorkerOrders = json.loads(answer)
                return orders
            except grpc.RpcError as error:
                if deadline.expired:
                    raise deadline.exceeded("the recorder of the chaos run", error) from error
                time.sleep(backoff.next())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def read_history(folder: Path, job: Job) -> History:
    """The history in ``folder``; a last line that a killed worker did not finish is left out.

    Raises :class:`ConfigError` for what no worker has written.
    """
    history = History()
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                _add_line(history, job, path, line)
    return history


def _add_line(history: History, job: Job, path: Path, line: bytes) -> None:
    try:
        history.add_event(job, path.stem, json.loads(line))
    except UNREADABLE as error:
        raise ConfigError(f"{path}: the record of a worker cannot be read: {error}") from error


def newest_clocks(folder: Path) -> list[int]:
    """The clock that each worker incarnation has opened last. Quick: it is asked while they go on."""
    found = []
    for path in folder.glob("*.jsonl"):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
        opened = [line for line in lines if line.startswith(b'{"open"') and line.endswith(b"\n")]
        with suppress(*UNREADABLE):  # :func:`read_history` says so in the end
            found += [int(json.loads(line)["open"]) for line in opened[-1:]]
    return found
