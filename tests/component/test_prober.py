"""What a direct probe finds out, against real sockets and servers in every state."""

from __future__ import annotations

import socket
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
from scar_detector.prober import HUNG_SECONDS, PROBE_SECONDS, probe
from scar_detector.watched import Answer
from scar_runtime.heart import Heart
from scar_runtime.member import MAX_WATCHERS, MemberServicer
from scar_runtime.server import bind, make_server

SHARD = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa")


@contextmanager
def served(servicer: member_pb2_grpc.MemberServiceServicer | None) -> Iterator[Member]:
    """The shard at the address of a server; without a servicer it knows no method."""
    server = make_server(workers=4)
    if servicer is not None:
        member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind(server, "127.0.0.1:0")
    server.start()
    try:
        yield replace(SHARD, address=address)
    finally:
        server.stop(0).wait(5)


@contextmanager
def listening(answer: bytes) -> Iterator[Member]:
    """A bare port that takes connections and says ``answer``; empty: it never takes one, like a frozen process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if answer:
            threading.Thread(target=lambda: server.accept()[0].sendall(answer), daemon=True).start()
        yield replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")


def test_a_living_member_answers_and_earns_no_lease_by_it() -> None:
    heart = Heart(0.5)
    heart.epoch = 1
    heart.renew(heart.now(), confirmed=True)
    with served(MemberServicer(SHARD, heart)) as member:
        end = time.monotonic() + 5
        while heart.lease_valid():
            assert probe(member) in (Answer.ALIVE, Answer.LAPSED)
            assert time.monotonic() < end
        assert probe(member) is Answer.LAPSED


def test_a_shard_that_waits_for_its_first_epoch_needs_no_lease() -> None:
    with served(MemberServicer(SHARD, Heart())) as member:
        assert probe(member) is Answer.ALIVE


def test_another_incarnation_is_a_stranger() -> None:
    with served(MemberServicer(replace(SHARD, incarnation="bbbbbbbbbbbb"), Heart())) as member:
        assert probe(member) is Answer.STRANGER


def test_a_closed_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")
    assert probe(member) is Answer.REFUSED


def test_elsewhere_a_closed_port_may_be_a_network_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar_detector.prober.is_ours", lambda host: host != "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")
    assert probe(member) is Answer.REJECTED


def test_a_server_of_another_kind_is_a_stranger() -> None:
    with served(None) as member:
        assert probe(member) is Answer.STRANGER
    with listening(b"-ERR unknown command 'PRI'\r\n") as member:
        assert probe(member) is Answer.STRANGER


@pytest.mark.timed
def test_a_frozen_member_is_silent_in_time() -> None:
    with listening(b"") as member:
        started = time.monotonic()
        assert probe(member) is Answer.SILENT
        assert time.monotonic() - started < PROBE_SECONDS + 0.3


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:x", "no.such.host.invalid:1"])
def test_an_address_that_is_none_is_silence(address: str) -> None:
    assert probe(replace(SHARD, address=address)) is Answer.SILENT


def test_a_member_that_takes_the_question_and_says_nothing_is_silent() -> None:
    release = threading.Event()

    class Mute(MemberServicer):
        def Probe(self, request: object, context: grpc.ServicerContext) -> None:  # type: ignore[override]
            release.wait(10)

    with served(Mute(SHARD, Heart())) as member:
        assert probe(member) is Answer.SILENT
        release.set()


@pytest.mark.parametrize(("role", "expected"), [(Role.SHARD, Answer.HUNG), (Role.WORKER, Answer.ALIVE)])
def test_a_shard_whose_work_stands_still_is_hung(role: Role, expected: Answer) -> None:
    clock = [100.0]
    heart = Heart(2.0, lambda: clock[0])
    clock[0] += HUNG_SECONDS + 0.5
    with served(MemberServicer(SHARD, heart)) as member:
        assert probe(replace(member, role=role)) is expected


def test_watchers_are_bounded() -> None:
    servicer = MemberServicer(SHARD, Heart())
    server = make_server(workers=32)
    member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind(server, "127.0.0.1:0")
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
