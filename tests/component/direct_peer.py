"""A server of direct connections that the test plays itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from scar.v1.direct_pb2 import DirectReply
from scar.wire.direct_calls import HOST, DirectConnections
from scar.wire.direct_frames import SECRET_BYTES, receive_secret

HOST_PORT = f"{HOST}:1"  # of a gRPC server that nobody calls
SECONDS = 40.0


def played_peer(serve: Callable[[socket.socket], object]) -> DirectConnections:
    """Connections to a server that takes one, proves itself, and then does what ``serve`` does with it."""
    listener = socket.create_server((HOST, 0))
    offer = DirectReply(port=listener.getsockname()[1], key=b"k" * SECRET_BYTES, proof=b"p" * SECRET_BYTES)

    def accept() -> None:
        connection, _ = listener.accept()
        listener.close()
        receive_secret(connection, SECONDS)
        connection.sendall(offer.proof)
        serve(connection)

    threading.Thread(target=accept, daemon=True).start()
    return DirectConnections(HOST_PORT, "shard", lambda _: offer)
