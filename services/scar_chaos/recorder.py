"""Who writes down what the workers do: the chaos process itself, because everything else may be broken on purpose.

A worker sends what it is about to push, and pushes only when the recorder has it: so the history survives whatever happens to
the worker, its pod or its node. The answer carries the orders of the run: the clock at which to rest, or to end.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from scar.errors import ConfigError, InvalidRequest
from scar.transport import Backoff, Deadline, connect, server_options

METHOD = "/scar.chaos.Recorder/Write"
ATTEMPT_SECONDS = 5.0  # one try of one write
KEY = re.compile(r"[A-Za-z0-9.-]{1,200}@[0-9a-f]{1,32}")
PATIENCE_SECONDS = 120.0  # how long a worker goes without its recorder: longer than any fault lasts

Orders = dict[str, int]


class Recorder:
    """One file of JSON lines per worker incarnation in ``folder``; ``at`` in its lines is this process's monotonic clock.

    ``listen``: host:port, port 0 for any. ``host``: under which workers reach it.
    """

    def __init__(self, folder: Path, listen: str = "127.0.0.1:0", host: str = "127.0.0.1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.orders = folder, Orders()
        self._written: dict[str, int] = {}  # worker key -> number of its last write
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(8, "recorder"), options=server_options())
        self._server.add_generic_rpc_handlers((_Handler(self._write),))
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise ConfigError(f"the recorder cannot listen at {listen}", "Choose a free port by --listen HOST:PORT") from error
        self.address = f"{host}:{port}"
        self._server.start()

    def order(self, **orders: int) -> None:
        """Tell the workers (see ``workload.py``); replaces what was said before."""
        self.orders = orders

    def close(self) -> None:
        self._server.stop(0.2).wait(2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """A write that comes again, because its answer was lost, is written once."""
        message = json.loads(request)
        worker, number, now = message["worker"], message["number"], time.monotonic()
        if not KEY.fullmatch(worker):  # it becomes the name of a file
            raise InvalidRequest(f"{worker[:200]!r} is no member")
        with self._lock:
            if number > self._written.get(worker, 0) and message["events"]:
                with (self.folder / f"{worker}.jsonl").open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps({**event, "at": now}) + "\n" for event in message["events"])
                self._written[worker] = number
        return json.dumps(self.orders).encode()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, write: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
        self._method = grpc.unary_unary_rpc_method_handler(write)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._method if details.method == METHOD else None


class Journal:
    """A worker's way to the recorder. For one thread."""

    def __init__(self, address: str, worker: str) -> None:
        self._worker, self._number = worker, 0
        self._channel = connect(address)
        self._call = self._channel.unary_unary(METHOD)

    def write(self, *events: dict[str, Any]) -> Orders:
        """Returns when they are written down. Raises :class:`scar.errors.DeadlineExceeded` when the recorder is gone."""
        self._number += 1
        request = json.dumps({"worker": self._worker, "number": self._number, "events": events}).encode()
        deadline, backoff = Deadline(PATIENCE_SECONDS), Backoff()
        while True:
            try:
                orders: Orders = json.loads(self._call(request, timeout=ATTEMPT_SECONDS, wait_for_ready=True))
                return orders
            except grpc.RpcError as error:
                if deadline.expired:
                    raise deadline.exceeded("the recorder of the chaos run", error) from error
                time.sleep(backoff.next())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
