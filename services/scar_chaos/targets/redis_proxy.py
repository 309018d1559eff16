"""A port in front of Redis whose answers can come too late, or be nonsense.

That is what a network and a sick server do to them.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from enum import Enum
from functools import partial

CHUNK = 1 << 16  # bytes
LATE_SECONDS = 0.6  # each answer; three times what a heartbeat waits for one
CONNECT_SECONDS = 2.0
_NOISE = bytes(byte ^ 0x15 for byte in range(256))  # keeps no type, no number and no line end of the protocol


class AnswerMode(Enum):
    """How answers pass."""

    AS_THEY_ARE = "as they are"
    LATE = "late"
    GARBLED = "garbled"


class RedisProxy:
    """Ends with its process, or by :meth:`close`.

    ``upstream``: says for each connection where it leads, (host, port).
    """

    def __init__(self, upstream: Callable[[], tuple[str, int]]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._closed = threading.Event()
        self._punctual = threading.Event()
        self._mode = AnswerMode.AS_THEY_ARE
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn_thread(self._accept_connections)

    def spoil_answers(self, mode: AnswerMode) -> None:
        self._punctual.clear()
        self._mode = mode

    def pass_answers(self) -> None:
        """From now on, and those that are being held back."""
        self._mode = AnswerMode.AS_THEY_ARE
        self._punctual.set()

    def close(self) -> None:
        """Every connection ends within a second."""
        self._closed.set()
        self.pass_answers()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept_connections(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._spawn_thread(partial(self._relay, near))

    def _relay(self, near: socket.socket) -> None:
        """One connection from its beginning to its end."""
        with (
            near,
            contextlib.suppress(OSError),
            socket.create_connection(self._upstream(), CONNECT_SECONDS) as far,
        ):
            far.settimeout(None)
            while not self._closed.is_set():
                ready = select.select([near, far], (), (), 1.0)[0]
                for end, other in ((near, far), (far, near)):
                    if end not in ready:
                        continue
                    data = end.recv(CHUNK)
                    if not data:
                        return
                    other.sendall(data if end is near else self._spoil(data))

    def _spoil(self, answer: bytes) -> bytes:
        if self._mode is AnswerMode.LATE:
            self._punctual.wait(LATE_SECONDS)
        return answer.translate(_NOISE) if self._mode is AnswerMode.GARBLED else answer

    @staticmethod
    def _spawn_thread(work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="redis-proxy", daemon=True).start()
