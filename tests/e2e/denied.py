"""Runs in a pod: which methods its certificate is denied, and what who has none gets. Writes JSON."""

from __future__ import annotations

import json
import os
import socket
import ssl
from pathlib import Path

import grpc
from google.protobuf import symbol_database

from scar.v1 import (  # noqa: F401 - they make their services known
    checkpoint_pb2,
    detector_pb2,
    member_pb2,
    ps_pb2,
    recovery_pb2,
    worker_pb2,
)
from scar.wire.credentials import active_certificate
from scar.wire.transport import open_channel
from scar_runtime.process.access import allowed_roles

SECONDS = 10.0
DIRECT_PORT = 7072
RELEASE = "scar"
SERVED = {  # file of proto/ -> (its services' host, the role that answers)
    "recovery": (f"{RELEASE}-recovery", "recovery"),
    "checkpoint": (f"{RELEASE}-checkpoint", "checkpoint"),
    "detector": (f"{RELEASE}-detector", "detector"),
    "ps": (f"{RELEASE}-ps-0.{RELEASE}-ps", "shard"),
    "worker": (f"{RELEASE}-worker-1.{RELEASE}-worker", "worker"),
    "member": (f"{RELEASE}-ps-0.{RELEASE}-ps", "shard"),
}


def ask(channel: grpc.Channel, path: str) -> str:
    """What becomes of an empty request: the name of a status."""
    try:
        next(iter(channel.unary_stream(path)(b"", timeout=SECONDS, wait_for_ready=False)))
    except StopIteration:
        return "OK"
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def denied() -> dict[str, str]:
    """Methods that may not be called by whoever this pod is -> what it gets when it does."""
    source = active_certificate()
    assert source is not None, "this pod has no certificate"
    found = {}
    pool = symbol_database.Default().pool
    for name, (host, role) in SERVED.items():
        with open_channel(f"{host}:7070", role=role) as channel:
            for service in pool.FindFileByName(f"scar/v1/{name}.proto").services_by_name.values():
                for method in service.methods:
                    if source.identity.role not in allowed_roles(f"{service.name}/{method.name}"):
                        path = f"{service.name}/{method.name}"
                        found[path] = ask(channel, f"/{service.full_name}/{method.name}")
    return found


def strangers() -> dict[str, str]:
    """What becomes of a question for health: whoever has a certificate is answered."""
    host, role = SERVED["ps"]
    path = "/grpc.health.v1.Health/Check"
    authority = Path(os.environ["SCAR_TLS_CA"]).read_bytes()
    source = active_certificate()
    assert source is not None
    named = [("grpc.ssl_target_name_override", source.identity.peer_name(role))]
    address = f"{host}:7070"
    with (
        grpc.insecure_channel(address) as plain,
        grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), named) as nameless,
        open_channel(address, role=role) as own,
    ):
        return {
            "without TLS": ask(plain, path),
            "without a certificate": ask(nameless, path),
            "with a certificate": ask(own, path),
            "in the clear, where tensors go": knock(host, None),
            "without a certificate, where tensors go": knock(host, nobody()),
        }


def nobody() -> ssl.SSLContext:
    """Of one who believes everybody, and has nothing to show."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def knock(host: str, context: ssl.SSLContext | None) -> str:
    """What becomes of a connection to the port of direct calls that shows some key."""
    try:
        plain = socket.create_connection((host, DIRECT_PORT), SECONDS)
        with plain if context is None else context.wrap_socket(plain) as connection:
            connection.sendall(bytes(16))
            while connection.recv(1024):
                pass  # what TLS says to one who does not speak it
    except ConnectionRefusedError:
        return "nobody is there"
    except OSError as error:
        return "still open" if isinstance(error, TimeoutError) else "closed"
    return "closed"


if __name__ == "__main__":
    found = {"denied": denied(), "strangers": strangers()}
    print("found:", json.dumps(found))  # noqa: T201 - what it is run for
