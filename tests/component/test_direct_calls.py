"""Calls over connections of their own: refused to strangers, and by gRPC otherwise."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from scar.errors import DeadlineExceeded, Internal, StaleEpoch, Unreachable
from scar.tables import Table
from scar.v1.direct_pb2 import DirectCall, DirectReply
from scar.v1.ps_pb2 import ClockReply
from scar.wire import direct_calls
from scar.wire.direct_calls import CONNECTIONS, HOST, DirectConnection, DirectConnections, DirectMethod
from scar.wire.direct_frames import (
    FRAME_BYTES,
    HEAD_BYTES,
    SECRET_BYTES,
    DirectError,
    FrameReader,
    receive_secret,
)
from scar_runtime.process import direct_server
from scar_runtime.process.direct_context import DirectContext
from scar_runtime.process.direct_server import DirectServer
from tests.component.direct_peer import HOST_PORT, played_peer
from tests.component.ps_scene import SECONDS, Running, declared, first

W = {"w": ([1, 5], np.ones(6, np.float32))}


@pytest.fixture
def shard(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    shard = Running(0, f"file://{tmp_path}", direct_calls=getattr(request, "param", True))
    spec = declared()
    shard.adopt(first(spec, [shard]), spec)
    yield shard
    shard.stop()


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods that went over direct connections."""
    seen: list[str] = []
    send = DirectConnection.send

    def noted(self: DirectConnection, end: float, head: bytes, *message: bytes | memoryview) -> None:
        if method := DirectCall.FromString(head).method:
            seen.append(method)
        send(self, end, head, *message)

    monkeypatch.setattr(DirectConnection, "send", noted)
    return seen


def open_connection(shard: Running, key: bytes) -> socket.socket:
    connection = socket.create_connection((HOST, offered(shard).port), SECONDS)
    connection.sendall(key)
    return connection


def offered(shard: Running) -> DirectReply:
    return shard.link._find_direct(SECONDS)


def test_pushes_pulls_and_marks_go_over_direct_connections(shard, carried):
    shard.push(W)
    assert shard.pull("w", [1, 2], size=24)[0].tolist() == [1, 1, 1, 0, 0, 0]
    shard.clock(1)
    assert carried == ["ShardData/PushSmall", "ShardData/PullSmall", "ShardControl/Clock"]
    assert shard.status().pushes == 1


@pytest.mark.parametrize("shard", [False], indirect=True)
def test_a_shard_that_may_not_offer_a_port_is_called_by_grpc(shard, carried):
    shard.push(W)
    assert shard.pull("w", [1], size=12)[0].tolist() == [1, 1, 1]
    assert (carried, offered(shard).port) == ([], 0)


def test_a_caller_of_another_machine_is_offered_nothing_where_only_this_one_is_served(shard):
    stranger = SimpleNamespace(
        peer=lambda: "ipv4:10.1.2.3:4711", auth_context=dict, invocation_metadata=tuple
    )
    assert shard.service.direct.offer_port(stranger) == DirectReply()


def test_errors_have_their_class_and_what_belongs_to_it(shard, carried):
    with pytest.raises(StaleEpoch) as stale:
        shard.push(W, epoch=0)
    assert stale.value.epoch == 1
    assert carried == ["ShardData/PushSmall"]
    shard.push(W, seq=1)
    assert len(shard.link._direct._open) == 1, "an error does not cost the connection"


def test_what_is_refused_of_more_than_one_read_is_told_at_once(tmp_path, carried):
    """A frame that comes in parts leaves a time limit on its connection."""
    shard = Running(0, f"file://{tmp_path}")
    spec = declared("asp", Table("wide", (100, 400)))
    shard.adopt(first(spec, [shard]), spec)
    try:
        with pytest.raises(StaleEpoch):
            shard.push({"wide": (None, np.ones(40_000, np.float32))}, epoch=0)
    finally:
        shard.stop()
    assert carried == ["ShardData/PushSmall"]


@pytest.mark.parametrize("limit", [None, 0.1])
def test_a_caller_is_there_until_its_end_has_come(limit):
    caller, connection = socket.socketpair()
    connection.settimeout(limit)
    context = DirectContext(SimpleNamespace(), 1.0, connection)
    assert context.is_active()
    caller.sendall(b"x")
    assert context.is_active()
    assert connection.recv(2) == b"x", "a look takes nothing"
    caller.close()
    assert not context.is_active()
    connection.close()
    assert not context.is_active()


def test_calls_at_the_same_time_have_connections_each_and_keep_them(shard, carried):
    shard.push(W)
    threads = [threading.Thread(target=shard.pull, args=("w", [1]), kwargs={"size": 12}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert carried.count("ShardData/PullSmall") == 8
    assert 1 <= len(shard.link._direct._open) == len(shard.link._direct._idle) <= 9


def test_more_calls_than_connections_go_by_grpc(shard, carried, monkeypatch):
    monkeypatch.setattr(direct_calls, "CONNECTIONS", 0)
    shard.push(W)
    assert (carried, shard.status().pushes) == ([], 1)
    assert CONNECTIONS > 8


def test_a_server_takes_so_many_connections_and_who_comes_then_uses_grpc(shard, monkeypatch):
    monkeypatch.setattr(direct_server, "CONNECTIONS", 1)
    first_one = open_connection(shard, offered(shard).key)
    receive_secret(first_one, SECONDS)
    shard.push(W)
    assert shard.status().pushes == 1
    assert not shard.link._direct._open


# --- strangers


def test_who_does_not_know_a_key_is_shown_the_door(shard):
    stranger = open_connection(shard, bytes(SECRET_BYTES))
    stranger.settimeout(SECONDS)
    assert stranger.recv(1) == b""


def test_who_shows_no_key_in_time_is_shown_the_door(shard, monkeypatch):
    monkeypatch.setattr(direct_server, "KEY_SECONDS", 0.05)
    silent = open_connection(shard, b"half")
    silent.settimeout(SECONDS)
    assert silent.recv(1) == b""


def test_who_has_taken_the_port_of_another_machines_shard_gets_no_call(carried):
    """Behind a tunnel the offer is another machine's, and its port here may be anybody's."""
    stranger = socket.create_server((HOST, 0))
    heard: list[bytes] = []

    def impersonate() -> None:
        connection, _ = stranger.accept()
        heard.append(receive_secret(connection, SECONDS))
        connection.sendall(bytes(SECRET_BYTES))
        heard.append(connection.recv(1))

    thread = threading.Thread(target=impersonate)
    thread.start()
    offer = DirectReply(port=stranger.getsockname()[1], key=b"k" * SECRET_BYTES, proof=b"p" * SECRET_BYTES)
    connections = DirectConnections(HOST_PORT, "shard", lambda _: offer)
    assert connections.call("ShardData/PullSmall", b"secret", SECONDS) is None
    thread.join()
    stranger.close()
    assert heard == [b"k" * SECRET_BYTES, b""]
    assert connections.call("ShardData/PullSmall", b"secret", SECONDS) is None
    assert carried == []


def test_a_connection_acts_for_the_caller_who_asked_for_it(tmp_path):
    """Not for who has opened it: what a certificate or a token of the first call may do, and no more."""
    seen = []

    class Watch(grpc.ServerInterceptor):
        def intercept_service(self, continuation, details):
            def answer(_requests, context):
                seen.append((context.auth_context(), context.invocation_metadata(), context.peer()))
                return b"ok"

            return grpc.stream_unary_rpc_method_handler(answer)

    server = DirectServer([Watch()])
    for name in (b"worker", b"reader"):
        context = SimpleNamespace(
            peer=lambda: "ipv4:127.0.0.1:1",
            auth_context=lambda name=name: {"x509": [name]},
            invocation_metadata=lambda name=name: (("authorization", name),),
        )
        connections = DirectConnections(
            HOST_PORT, "shard", lambda _, context=context: server.offer_port(context)
        )
        assert connections.call("A/B", b"", SECONDS) == b"ok"
        connections.close()
    server.stop(SECONDS)
    assert [(who["x509"], metadata[0][1]) for who, metadata, _ in seen] == [
        ([b"worker"], b"worker"),
        ([b"reader"], b"reader"),
    ]


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">II", 0, FRAME_BYTES + 1),
        struct.pack(">II", HEAD_BYTES + 1, 0),
        struct.pack(">II", 2, 0) + b"\xff\xff",
        struct.pack(">II", 0, 0) + b"more",
    ],
    ids=["too large", "too large a head", "no call", "two at once"],
)
def test_what_is_no_call_ends_its_connection_and_no_other(shard, sent: bytes):
    shard.push(W)
    offer = offered(shard)
    stranger = open_connection(shard, offer.key)
    assert receive_secret(stranger, SECONDS) == offered_proof(shard, offer)
    stranger.sendall(sent)
    stranger.settimeout(SECONDS)
    assert stranger.recv(1) == b""
    assert shard.pull("w", [1], size=12)[0].tolist() == [1, 1, 1]


def offered_proof(shard: Running, offer: DirectReply) -> bytes:
    return shard.service.direct._callers[offer.key].proof


def test_unknown_methods_are_refused(shard):
    shard.push(W)
    for method in ("ShardData/Nothing", ""):
        with pytest.raises(DirectError, match="UNIMPLEMENTED"):
            shard.link._direct.call(method, b"", SECONDS)


# --- ends


def ended_peer(answer: Callable[[socket.socket], object]) -> DirectConnections:
    """Connections to a server that takes one call, and answers so."""

    def serve(connection: socket.socket) -> None:
        FrameReader(connection).read(SECONDS)
        answer(connection)

    return played_peer(serve)


def test_who_dies_during_a_call_is_unreachable_at_once(shard):
    connections = ended_peer(socket.socket.close)
    shard.link._direct = connections
    with pytest.raises(DirectError) as dead:
        connections.call("ShardData/PullSmall", b"", SECONDS)
    assert dead.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not connections._open


def test_who_is_frozen_costs_a_call_its_timeout_and_the_connection():
    frozen = threading.Event()
    connections = ended_peer(lambda _: frozen.wait(SECONDS) or None)
    with pytest.raises(DirectError) as late:
        connections.call("ShardData/PullSmall", b"", 0.2)
    frozen.set()
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not connections._open, "an answer may still come, to a call that is over"


def test_what_is_no_answer_is_a_typed_error():
    connections = ended_peer(lambda connection: connection.sendall(struct.pack(">II", 2, 0) + b"\xff\xff"))
    with pytest.raises(Internal, match="no answer"):
        connections.call("ShardData/PullSmall", b"", SECONDS)
    assert not connections._open


def test_an_answer_that_is_none_of_its_method_is_a_typed_error():
    connections = ended_peer(lambda connection: connection.sendall(struct.pack(">II", 0, 1) + b"\xff"))
    method = DirectMethod(connections, "ShardControl/Clock", pytest.fail, bytes, ClockReply.FromString)
    with pytest.raises(Internal, match="no message of its method"):
        method(b"", SECONDS)


def test_a_pull_whose_clock_does_not_come_ends_with_its_deadline(shard):
    shard.push(W)
    with pytest.raises(DeadlineExceeded):
        shard.pull("w", [1], size=12, clock=9, timeout=0.3)
    assert shard.pull("w", [1], size=12)[0].tolist() == [1, 1, 1]


def test_closing_a_link_ends_its_calls(shard):
    shard.push(W)
    failed = []

    def wait_for_a_clock() -> None:
        try:
            shard.pull("w", [1], size=12, clock=9)
        except Unreachable as error:
            failed.append(error)

    waiting = threading.Thread(target=wait_for_a_clock)
    waiting.start()
    while shard.link._direct._idle:
        time.sleep(0.001)
    shard.link.close()
    waiting.join(SECONDS)
    assert len(failed) == 1


def test_a_server_that_stops_ends_idle_connections_and_lets_calls_end(tmp_path):
    begun, go = threading.Event(), threading.Event()

    class Slow(grpc.ServerInterceptor):
        def intercept_service(self, continuation, details):
            def answer(requests, _context):
                begun.set()
                go.wait(SECONDS)
                return next(requests)

            return grpc.stream_unary_rpc_method_handler(answer)

    server = DirectServer([Slow()])
    context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1", auth_context=dict, invocation_metadata=tuple)
    connections = DirectConnections(HOST_PORT, "shard", lambda _: server.offer_port(context))
    answers: list[bytes | None] = []
    caller = threading.Thread(target=lambda: answers.append(connections.call("A/B", b"said", SECONDS)))
    caller.start()
    begun.wait(SECONDS)
    stopper = threading.Thread(target=server.stop, args=(SECONDS,))
    stopper.start()
    go.set()
    stopper.join()
    caller.join()
    assert answers == [b"said"]
    assert not server._connections
    with pytest.raises(DirectError):
        connections.call("A/B", b"again", SECONDS)
    assert server.offer_port(context).port == 0
