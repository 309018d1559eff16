"""S3 servers for tests: moto's with faults made to order, and what is needed to reach any."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from scar.errors import (
    StoreUnavailable,
)
from scar_runtime.store import Store, open_store

BUCKET = "scar-test"
Application = Callable[[dict[str, Any], Callable[..., Any]], Any]
Fault = Callable[[dict[str, Any]], str]


class FaultyS3:
    """moto's S3 behind a lock, which makes its conditional puts atomic, and behind faults.

    ``fault(environ)`` names what happens to a request: "" nothing, "drop" carried out and the answer lost,
    "<..." a page that a broken proxy answers with HTTP 200, else an error code.
    """

    def __init__(self) -> None:
        self.fault: Fault = lambda environ: ""
        self.seen: list[str] = []
        self._application: Application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self.server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        with self._lock:
            self.seen.append(environ["REQUEST_METHOD"])
            fault = self.fault(environ)
            if fault in ("", "drop"):
                answer = list(
                    self._application(environ, start if not fault else lambda *_: lambda data: None)
                )
        if not fault:
            return answer
        if fault == "drop":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("the answer is lost")
        if fault.startswith("<"):
            start("200 OK", [("Content-Type", "text/html")])
            return [fault.encode()]
        status, code = fault.split(" ")
        start(f"{status} fault", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>made by the test</Message></Error>".encode()]


def at(url: str, unique: Path) -> Store:
    """A prefix of its own in the bucket of this server."""
    return bucket(url).under(unique.name)


@lru_cache
def bucket(url: str) -> Store:
    """Kept, because it takes boto3 a tenth of a second to make a client."""
    return open_store(f"s3://{BUCKET}?endpoint={url}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_it_writes(store: Store) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return store.put("ready", b"")
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
