"""Serves ``/metrics``, to few clients at once and to none for long: silent ones cost no more than that."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

MAX_CONNECTIONS = 32  # each holds a thread
MAX_PEER_CONNECTIONS = 8  # of one address, so that nobody takes all of them
CONNECTION_SECONDS = 5.0  # from accept to the last byte of the answer
LOOK_SECONDS = 0.5  # how often connections that are over their time are looked for


class MetricsServer(ThreadingMixIn, WSGIServer):
    """One thread for each connection. A connection too many is closed at once, an old one wherever it is: a
    timeout of each read alone would let a client live that sends a byte now and then.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that the kernel keeps for us to accept

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[Any, tuple[str, float]] = {}  # connection -> peer, since when
        self._lock = threading.Lock()
        super().__init__((host, port), QuietHandler)
        self.set_app(make_wsgi_app())

    def run(self) -> None:
        self.serve_forever(LOOK_SECONDS)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more; if not, the server closes it."""
        peer = str(client_address[0])
        with self._lock:
            peers = Counter(holder for holder, _ in self._open.values())
            if len(self._open) >= MAX_CONNECTIONS or peers[peer] >= MAX_PEER_CONNECTIONS:
                return False
            self._open[request] = (peer, time.monotonic())
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End what is over its time; its thread notices and closes it."""
        oldest = time.monotonic() - CONNECTION_SECONDS
        with self._lock:
            for request, (_, since) in self._open.items():
                if since < oldest:
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off is no news, and its traceback no log record."""


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *_arguments: object) -> None:
        """Nothing: every scrape would be a line."""
