"""How the end of a stream is told apart: a process that died, a network that cut us off."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from scar.placement import Member, Role
from scar.v1 import member_pb2_grpc
from scar_detector.death_watch import DeathWatch
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.member_servicer import MemberServicer
from scar_runtime.process.server import bind_port, make_server
from tests.component.processes import DUMMY, Processes, running_redis

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty HTTP/2 SETTINGS frame


@contextmanager
def watching(address: str) -> Iterator[Future[bool]]:
    """Watch a member; the future says whether it hung up the first time that the stream broke."""
    heard: Future[bool] = Future()

    def broken(_member: Member, hung_up: bool) -> None:
        if not heard.done():
            heard.set_result(hung_up)

    watcher = DeathWatch(Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", address), broken)
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    yield heard
    watcher.close()
    thread.join(5)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_hangs_up(tmp_path: Path, number: signal.Signals) -> None:
    processes = Processes(tmp_path)
    with running_redis(tmp_path) as url:
        try:
            member = processes.start("ps-0", DUMMY, "SHARD", "calm", SCAR_REDIS=url).serving()
            with watching(member.address) as heard:
                with pytest.raises(TimeoutError):
                    heard.result(1.0)  # the stream stands
                member.process.send_signal(number)
                assert heard.result(60)
        finally:
            processes.close()


def test_a_member_that_stops_ends_its_streams() -> None:
    servicer = MemberServicer(Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa"), ProgressMonitor())
    server = make_server(workers=4)
    member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    with watching(address) as heard:
        while not servicer._watchers:
            assert not heard.done()
        servicer.close()
        assert heard.result(60)
    server.stop(0).wait(5)


def test_a_connection_that_is_reset_proves_nothing() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        watching(f"127.0.0.1:{server.getsockname()[1]}") as heard,
    ):
        connection, _ = server.accept()
        connection.sendall(SETTINGS)
        connection.recv(1 << 16)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()  # with this option: a reset, as a firewall sends it
        assert not heard.result(60)


def test_nobody_there_is_no_hanging_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with watching(address) as heard:
        assert not heard.result(60)
