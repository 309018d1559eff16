"""One connection to a port of a pod, through the API server's websocket. For one thread at a time."""

from __future__ import annotations

import contextlib
from typing import Any

from kubernetes.stream import ws_client
from websocket import ABNF, WebSocketException

DATA = 0  # channel; the other one, 1, says what went wrong
ENDED = (OSError, WebSocketException)  # what broken connections raise


class Tunnel:
    """Frames of two channels, each of which begins with a frame that says which port it belongs to."""

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket
        self._announced: set[int] = set()

    @classmethod
    def open(cls, configuration: Any, url: str, **options: Any) -> Tunnel:
        """Has the signature of the client's request method, so that the client makes the URL and the
        credentials.
        """
        address = ws_client.get_websocket_url(url, options.get("query_params"))
        return cls(ws_client.create_websocket(configuration, address, options.get("headers")))

    def fileno(self) -> int:
        return int(self._websocket.sock.fileno())

    @property
    def pending(self) -> bool:
        """Bytes have arrived that no select shows any more, because TLS has read them."""
        return bool(getattr(self._websocket.sock, "pending", lambda: 0)())

    def receive(self) -> bytes | None:
        """What the pod has sent, perhaps nothing; None: the connection has ended. Raises :data:`ENDED`."""
        opcode, frame = self._websocket.recv_data(control_frame=True)
        if opcode == ABNF.OPCODE_CLOSE:
            return None
        if opcode != ABNF.OPCODE_BINARY or not frame:
            return b""
        channel = frame[0]
        if channel not in self._announced:
            self._announced.add(channel)
            return b""
        return bytes(frame[1:]) if channel == DATA else None

    def send(self, data: bytes) -> None:
        """Raises :data:`ENDED`."""
        self._websocket.send_binary(bytes([DATA]) + data)

    def close(self) -> None:
        with contextlib.suppress(*ENDED):
            self._websocket.close(timeout=0)
