"""Direct connections by an address that other machines use: encrypted, and refused to whom gRPC refuses."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from scar.errors import PermissionDenied
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.v1.direct_pb2 import DirectReply, DirectRequest
from scar.wire import certificates
from scar.wire.direct_calls import DirectConnections
from scar.wire.direct_frames import SECRET_BYTES, receive_secret
from scar.wire.shard_link import ShardLink
from scar_local.authority import create_authority, renew_certificates, role_files
from scar_runtime.process import direct_server
from tests.component.certificate_roles import become
from tests.component.machine_address import own_address
from tests.component.ps_scene import SECONDS, Running, declared, first

pytestmark = pytest.mark.usefixtures("nobody")
W = {"w": ([1, 5], np.ones(6, np.float32))}
BY_GRPC = ["Pull", "Push", "Pull"]
WIDE = np.arange(1_000_000, dtype=np.float32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Authorities: of the cluster, and of a stranger who calls himself the same."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("ours", "theirs")}
    for folder in found.values():
        create_authority(folder, "one")
    return found


def served(tmp_path: Path, become_one) -> Iterator[Running]:
    """A shard at an address of this machine. ``become_one``: take on the certificate of a role."""
    become_one("shard")
    shard = Running(0, f"file://{tmp_path}", listen=f"{own_address()}:0", shared_memory=False)
    spec = declared("asp", Table("wide", (1000, 1000)))
    become_one("recovery")
    shard.link.close()
    shard.link = ShardLink(shard.member.address, "ps-0")
    shard.control = shard.link.control
    shard.adopt(first(spec, [shard]), spec)
    become_one("worker")
    shard.link.close()
    shard.link = ShardLink(shard.member.address, "ps-0")
    shard.control = shard.link.control
    yield shard
    shard.stop()


@pytest.fixture
def shard(tmp_path: Path, folders: dict[str, Path]) -> Iterator[Running]:
    yield from served(tmp_path, lambda role: become(folders["ours"], role))


def offered(shard: Running) -> DirectReply:
    return shard.link._find_direct(SECONDS)


def dial(shard: Running, port: int) -> socket.socket:
    host = shard.member.address.rpartition(":")[0]
    return socket.create_connection((host, port), SECONDS)


def by_grpc(shard: Running) -> list[str]:
    """Calls by gRPC from now on."""
    seen: list[str] = []
    stub = shard.link._by_grpc
    shard.link._by_grpc = lambda name: (seen.append(name), stub(name))[1]
    return seen


def check_service(shard: Running) -> None:
    """Pushes and pulls, small and large."""
    row, wide = shard.pull("w", [1], size=12)[0], shard.pull("wide", size=WIDE.nbytes)[0]
    shard.push(W)
    shard.push({"wide": (None, WIDE)})
    assert np.array_equal(shard.pull("w", [1], size=12)[0], row + 1)
    assert np.array_equal(shard.pull("wide", size=WIDE.nbytes)[0], wide + WIDE)


def test_small_and_large_calls_are_encrypted(shard: Running) -> None:
    seen = by_grpc(shard)
    check_service(shard)
    (connection,) = shard.link._direct._open
    assert isinstance(connection.socket, ssl.SSLSocket)
    assert connection.socket.version() == "TLSv1.3"
    assert connection.socket.getpeername()[1] != int(shard.member.address.rpartition(":")[2])
    assert seen == []


def test_where_there_is_no_tls_they_are_as_open_as_grpc(tmp_path: Path) -> None:
    for shard in served(tmp_path, lambda _: None):
        seen = by_grpc(shard)
        check_service(shard)
        (connection,) = shard.link._direct._open
        assert not isinstance(connection.socket, ssl.SSLSocket)
        assert seen == []


def test_a_role_has_the_rights_that_it_has_by_grpc(shard: Running, folders: dict[str, Path]) -> None:
    become(folders["ours"], "reader")
    reader = ShardLink(shard.member.address, "ps-0")
    shard.push(W)
    shard.link, worker = reader, shard.link
    assert shard.pull("w", [1], size=12)[0].tolist() == [1, 1, 1]
    assert len(reader._direct._open) == 1
    with pytest.raises(PermissionDenied):
        shard.push(W)
    with pytest.raises(PermissionDenied):
        shard.push({"wide": (None, WIDE)})
    reader.close()
    shard.link = worker


def test_roles_that_move_no_tensors_are_offered_no_port(shard: Running, folders: dict[str, Path]) -> None:
    become(folders["ours"], "detector")
    link = ShardLink(shard.member.address, "ps-0")
    with pytest.raises(PermissionDenied):
        link.call(link.control.DirectPort, DirectRequest(), SECONDS)
    link.close()


@pytest.mark.parametrize("who", ["in the clear", "no certificate", "another authority", "no key"])
def test_a_stranger_is_shown_the_door_and_nobody_else(
    shard: Running, folders: dict[str, Path], who: str
) -> None:
    offer = offered(shard)
    connection = dial(shard, offer.port)
    key = bytes(SECRET_BYTES) if who == "no key" else offer.key
    heard = b""
    with suppress(OSError):  # refused before it could say a word
        if who != "in the clear":
            connection = strange_context(folders, who).wrap_socket(connection)
        connection.sendall(key)
        heard = connection.recv(SECRET_BYTES)
    connection.close()
    assert heard != shard.service.direct._callers[offer.key].proof
    assert len(heard) < SECRET_BYTES, "no more than what TLS says to one who does not speak it"
    check_service(shard)


def strange_context(folders: dict[str, Path], who: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if who != "no certificate":
        files = role_files(folders["theirs" if who == "another authority" else "ours"], "worker")
        context.load_cert_chain(files.cert, files.key)
    return context


def test_silent_strangers_do_not_crowd_out_who_has_connected(shard: Running, monkeypatch) -> None:
    monkeypatch.setattr(direct_server, "KEY_SECONDS", SECONDS)
    seen = by_grpc(shard)
    check_service(shard)
    port = offered(shard).port
    silent = [dial(shard, port) for _ in range(direct_server.STRANGERS)]
    surplus = dial(shard, port)
    assert surplus.recv(1) == b"", "more are not waited for"
    check_service(shard)
    assert seen == []
    for one in (*silent, surplus):
        one.close()


def test_who_took_the_port_with_another_roles_certificate_hears_no_key(folders: dict[str, Path]) -> None:
    """A worker of the cluster, at the address where a shard was."""
    thief = become(folders["ours"], "worker").current().server_context
    host = own_address()
    listener = socket.create_server((host, 0))
    heard: list[object] = []

    def impersonate() -> None:
        accepted, _ = listener.accept()
        try:
            with thief.wrap_socket(accepted, server_side=True) as connection:
                heard.append(receive_secret(connection, SECONDS))
        except OSError as error:
            heard.append(type(error))

    thread = threading.Thread(target=impersonate)
    thread.start()
    offer = DirectReply(port=listener.getsockname()[1], key=b"k" * SECRET_BYTES, proof=b"p" * SECRET_BYTES)
    connections = DirectConnections(f"{host}:1", "shard", lambda _: offer)
    assert connections.call("ShardData/PullSmall", b"secret", SECONDS) is None
    thread.join()
    listener.close()
    assert len(heard) == 1
    assert heard[0] != offer.key


def test_a_renewed_certificate_is_used_by_new_connections_and_old_ones_go_on(
    shard: Running, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.0)
    check_service(shard)
    (before,) = shard.link._direct._open
    old = before.socket.getpeercert()["serialNumber"]
    renew_certificates(folders["ours"])
    check_service(shard)
    assert shard.link._direct._open == {before}
    link = ShardLink(shard.member.address, "ps-0")
    shard.link, first_link = link, shard.link
    shard.pull("w", [1], size=12)
    (after,) = link._direct._open
    assert after.socket.getpeercert()["serialNumber"] != old
    link.close()
    shard.link = first_link


def test_a_port_that_cannot_be_reached_means_grpc_until_it_is_tried_again(
    shard: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a network policy that does not know of it."""
    ask = shard.link._direct._ask
    closed = socket.create_server((own_address(), 0))
    port = closed.getsockname()[1]
    closed.close()
    monkeypatch.setattr(
        shard.link._direct, "_ask", lambda seconds: DirectReply(port=port, key=b"k", proof=b"p")
    )
    seen = by_grpc(shard)
    check_service(shard)
    assert seen == BY_GRPC
    assert shard.link._direct._again > 0
    monkeypatch.setattr(shard.link._direct, "_ask", ask)
    check_service(shard)
    assert seen == 2 * BY_GRPC, "not at every call"
    shard.link._direct._again = 0.0
    check_service(shard)
    assert seen == 2 * BY_GRPC
    assert len(shard.link._direct._open) == 1


def test_the_kernel_looks_for_a_machine_that_is_gone(shard: Running) -> None:
    check_service(shard)
    (connection,) = shard.link._direct._open
    assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    limit = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert limit == 15_000


def test_a_fixed_port_that_is_taken_means_grpc(tmp_path: Path) -> None:
    host = own_address()
    taken = socket.create_server((host, 0))
    shard = Running(0, f"file://{tmp_path}", listen=f"{host}:0", direct_port=taken.getsockname()[1])
    spec = declared()
    shard.adopt(first(spec, [shard]), spec)
    shard.push(W)
    assert shard.pull("w", [1], size=12)[0].tolist() == [1, 1, 1]
    assert offered(shard).port == 0
    assert isinstance(shard.status(), ps_pb2.ShardStatus)
    shard.stop()
    taken.close()
