"""What happens to single calls, for every method of the protocol."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.simulation import rpc_faults
from tests.simulation.rpc import Server
from tests.simulation.rpc_faults import METHODS, RPC_FAULTS
from tests.simulation.wire_ground import SimulatedGround

PROTO = Path(__file__).resolve().parents[2] / "proto"
CHUNKS = 8


class Stage:
    """A server that has every method of the protocol; they count their effects, and take bytes."""

    def __init__(self, ground: SimulatedGround) -> None:
        self.ground = ground
        self.effects: list[tuple[str, int]] = []  # when a request is through: method, messages that came
        host = ground.scheduler.host("server")
        ground.scheduler.spawn(host, "main", self._serve)
        ground.sleep(0.1)
        self.channel = ground.channel(self.address)

    def _serve(self) -> None:
        server = Server(self.ground.network, ThreadPoolExecutor(8))
        for method in METHODS:
            _, service, name = method.split("/")
            handler = grpc.stream_stream_rpc_method_handler(partial(self._handle, method))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
        self.address = f"10.8.8.8:{server.add_insecure_port('10.8.8.8:0')}"
        server.start()

    def _handle(self, method: str, requests: Any, _: Any) -> Any:
        count = 0
        try:
            for _one in requests:
                count += 1
        finally:
            self.effects.append((method, count))
        yield from (b"%d" % number for number in range(CHUNKS))

    def call(self, method: str) -> tuple[grpc.StatusCode, int, float]:
        """How it ended, how many answers came before, how long it took."""
        from tests.simulation.channels import Method

        began, answers = self.ground.now(), 0
        stream = Method(self.channel, method, None, _whole, many=(True, True))
        code = grpc.StatusCode.OK
        try:
            for _ in stream([b"x"] * CHUNKS, timeout=30.0):
                answers += 1
        except grpc.RpcError as error:
            code = error.code()
        took = self.ground.now() - began
        self.ground.sleep(30.0)
        return code, answers, took


def _whole(message: bytes) -> bytes:
    if message == rpc_faults.GARBAGE:
        raise ValueError("garbage")
    return message


OK, TOO_LATE = grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED
UNAVAILABLE, INTERNAL = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL
#: how a call of a method ends, how often its effect happens in full
EXPECTED: dict[str, tuple[set[grpc.StatusCode], set[int]]] = {
    rpc_faults.REQUEST_LOST: ({TOO_LATE}, {0}),
    rpc_faults.ANSWER_LOST: ({TOO_LATE}, {1}),
    rpc_faults.DOUBLED: ({OK}, {2}),
    rpc_faults.ANSWER_LATE: ({OK}, {1}),
    rpc_faults.REORDERED: ({OK}, {1}),
    rpc_faults.REFUSED: ({UNAVAILABLE}, {0}),
    rpc_faults.OVERLOADED: ({grpc.StatusCode.RESOURCE_EXHAUSTED}, {0}),
    rpc_faults.GARBLED: ({INTERNAL}, {1}),
    rpc_faults.ANSWER_CUT: ({INTERNAL}, {1}),
    rpc_faults.REQUEST_CUT: ({INTERNAL}, {0}),
    rpc_faults.CONNECTION_RESET: ({UNAVAILABLE, OK}, {0, 1}),
}


def test_every_rpc_of_the_protocol_can_be_afflicted() -> None:
    words = [
        line.split() for file in sorted(PROTO.rglob("*.proto")) for line in file.read_text().splitlines()
    ]
    written = [line[1].partition("(")[0] for line in words if line[:1] == ["rpc"]]
    assert sorted(method.rpartition("/")[2] for method in METHODS) == sorted(written)
    assert len(set(METHODS)) == len(METHODS) >= 30


def test_every_kind_says_what_it_does() -> None:
    assert set(EXPECTED) == set(RPC_FAULTS)


@pytest.mark.parametrize("kind", RPC_FAULTS)
def test_a_fault_does_to_every_method_what_it_says(kind: str) -> None:
    codes, effects = EXPECTED[kind]

    def story(ground: SimulatedGround) -> None:
        stage = Stage(ground)
        for method in METHODS:
            ground.network.rpc_faults.afflict(method, kind, 1.0, ground.now() + 1.0, 2.0)
            code, answers, _ = stage.call(method)
            whole = stage.effects.count((method, CHUNKS))
            assert (code in codes, whole in effects) == (True, True), (method, code, whole)
            assert answers == CHUNKS if code is OK else answers < CHUNKS
            stage.effects.clear()
            assert stage.call(method)[0] is OK, "it has ended"
        assert set(ground.network.rpc_faults.struck) == {(method, kind) for method in METHODS}

    SimulatedGround().play(story, 1e6)


def test_late_answers_and_requests_take_time_and_others_overtake_them() -> None:
    def story(ground: SimulatedGround) -> None:
        stage = Stage(ground)
        first, second = METHODS[:2]
        for kind in (rpc_faults.ANSWER_LATE, rpc_faults.REORDERED):
            ground.network.rpc_faults.afflict(first, kind, 1.0, ground.now() + 0.5, 3.0)
            ground.scheduler.spawn(ground.client, "other", lambda: stage.call(first) and None)
            ground.sleep(0.1)
            assert stage.call(second)[2] < 0.1
            order = [method for method, _ in stage.effects]
            assert order == ([first, second] if kind == rpc_faults.ANSWER_LATE else [second, first])
            stage.effects.clear()
            ground.sleep(60.0)

    SimulatedGround().play(story)


def test_a_reset_takes_every_call_of_its_connection_along() -> None:
    def story(ground: SimulatedGround) -> None:
        process = ground.start()
        channel = ground.channel(process.address)
        waiting = channel.unary_unary("/ground.Ground/Wait").future(b"", timeout=60.0)
        ground.sleep(0.1)
        ground.network.rpc_faults.afflict(METHODS[0], rpc_faults.CONNECTION_RESET, 1.0, ground.now() + 9.0)
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(METHODS[0])(b"", timeout=5.0)
        ground.sleep(0.5)
        assert waiting.done()
        with pytest.raises(grpc.RpcError) as caught:
            waiting.result()
        assert caught.value.code() is UNAVAILABLE
        assert channel.unary_unary("/ground.Ground/Seen")(b"", timeout=5.0) == b"0 effects, 1 ended"

    SimulatedGround().play(story)
