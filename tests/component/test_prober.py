"""What a direct probe finds out, against real sockets and servers in every state."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import grpc
import pytest

from scar.placement import Member, Role
from scar.v1 import member_pb2_grpc
from scar.v1.member_pb2 import ProbeRequest
from scar_detector.core.member_state import ProbeAnswer
from scar_detector.prober import HUNG_SECONDS, PROBE_SECONDS, probe_member
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.member_servicer import MAX_WATCHERS, MemberServicer
from scar_runtime.process.server import bind_port, make_server

SHARD = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa")


def ask(member: Member) -> ProbeAnswer:
    """With time enough for any answer on a busy machine."""
    return probe_member(member, seconds=20.0)


@contextmanager
def served(servicer: member_pb2_grpc.MemberServiceServicer | None) -> Iterator[Member]:
    """The shard at the address of a server; without a servicer it knows no method."""
    server = make_server(workers=4)
    if servicer is not None:
        member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    try:
        yield replace(SHARD, address=address)
    finally:
        server.stop(0).wait(5)


@contextmanager
def listening(answer: bytes) -> Iterator[Member]:
    """A bare port that takes connections and says ``answer``; empty: it never takes one, like a frozen
    process.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        if answer:
            threading.Thread(target=lambda: server.accept()[0].sendall(answer), daemon=True).start()
        yield replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")


def test_a_living_member_answers_and_earns_no_lease_by_it() -> None:
    liveness = ProgressMonitor(0.5)
    liveness.epoch = 1
    liveness.renew_lease(liveness.now(), confirmed=True)
    with served(MemberServicer(SHARD, liveness)) as member:
        end = time.monotonic() + 60
        while liveness.lease_valid():
            assert ask(member) in (ProbeAnswer.ALIVE, ProbeAnswer.LAPSED)
            assert time.monotonic() < end
        assert ask(member) is ProbeAnswer.LAPSED


def test_a_shard_that_waits_for_its_first_epoch_needs_no_lease() -> None:
    with served(MemberServicer(SHARD, ProgressMonitor())) as member:
        assert ask(member) is ProbeAnswer.ALIVE


def test_another_incarnation_is_a_stranger() -> None:
    with served(MemberServicer(replace(SHARD, incarnation="bbbbbbbbbbbb"), ProgressMonitor())) as member:
        assert ask(member) is ProbeAnswer.STRANGER


def test_a_closed_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")
    assert ask(member) is ProbeAnswer.REFUSED


def test_elsewhere_a_closed_port_may_be_a_network_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar_detector.prober.is_ours", lambda host: host != "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")
    assert ask(member) is ProbeAnswer.REJECTED


def test_a_server_of_another_kind_proves_nothing() -> None:
    """A proxy in front of a living member says such things while it starts, or when it knows no way."""
    with served(None) as member:
        assert ask(member) is ProbeAnswer.FOREIGN
    for answer in (
        b"-ERR unknown command 'PRI'\r\n",
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    ):
        with listening(answer) as member:
            assert ask(member) is ProbeAnswer.FOREIGN


@contextmanager
def dying(reset: bool, times: int) -> Iterator[Member]:
    """A port that takes ``times`` connections, closes, and then ends them without a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def die() -> None:
            for number in range(times):
                connection, _ = server.accept()
                if number == times - 1:
                    server.close()
                if reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.recv(1)
                connection.close()

        threading.Thread(target=die, daemon=True).start()
        yield replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("reset", [True, False])
def test_a_member_that_dies_while_it_is_asked_is_proved_dead(reset: bool) -> None:
    with dying(reset, times=1) as member:
        assert ask(member) is ProbeAnswer.REFUSED


def test_one_that_is_cut_off_twice_is_silent() -> None:
    """Whatever stands in between may do that to a living member."""
    with dying(reset=True, times=2) as member:
        assert ask(member) is ProbeAnswer.SILENT


@pytest.mark.timed
def test_a_frozen_member_is_silent_in_time() -> None:
    with listening(b"") as member:
        started = time.monotonic()
        assert probe_member(member) is ProbeAnswer.SILENT
        assert time.monotonic() - started < PROBE_SECONDS + 0.3


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:x", "no.such.host.invalid:1"])
def test_an_address_that_is_none_is_silence(address: str) -> None:
    assert probe_member(replace(SHARD, address=address)) is ProbeAnswer.SILENT


def test_a_member_that_takes_the_question_and_says_nothing_is_silent() -> None:
    release = threading.Event()

    class Mute(MemberServicer):
        def Probe(self, request: object, context: grpc.ServicerContext) -> None:  # type: ignore[override]
            release.wait(60)

    with served(Mute(SHARD, ProgressMonitor())) as member:
        assert probe_member(member) is ProbeAnswer.SILENT
        release.set()


@pytest.mark.parametrize(
    ("role", "expected"), [(Role.SHARD, ProbeAnswer.HUNG), (Role.WORKER, ProbeAnswer.ALIVE)]
)
def test_a_shard_whose_work_stands_still_is_hung(role: Role, expected: ProbeAnswer) -> None:
    clock = [100.0]
    liveness = ProgressMonitor(2.0, lambda: clock[0])
    clock[0] += HUNG_SECONDS + 0.5
    with served(MemberServicer(SHARD, liveness)) as member:
        assert ask(replace(member, role=role)) is expected


def test_watchers_are_bounded() -> None:
    servicer = MemberServicer(SHARD, ProgressMonitor())
    server = make_server(workers=32)
    member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(address) as channel:
        stub = member_pb2_grpc.MemberServiceStub(channel)
        streams = [stub.Watch(ProbeRequest(), timeout=20) for _ in range(MAX_WATCHERS)]
        assert all(next(stream).member.name == "ps-0" for stream in streams)
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.Watch(ProbeRequest(), timeout=20))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        servicer.close()
        assert all(list(stream) == [] for stream in streams)
    server.stop(0).wait(5)
