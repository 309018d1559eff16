"""What a channel sees of its server, on real gRPC and on the imitation: the same stories, told to both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.simulation.wire_ground import Ground, RealGround, SimulatedGround

QUICK = {
    "grpc__keepalive_time_ms": 1000,
    "grpc__keepalive_timeout_ms": 400,
    "grpc__http2__ping_timeout_ms": 400,
}
UNAVAILABLE, INTERNAL = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.timed), "simulated"])
def play(request: pytest.FixtureRequest) -> Callable[[Callable[[Any], None]], None]:
    return RealGround().play if request.param == "real" else SimulatedGround().play


def call(channel: Any, method: str, request: bytes = b"", timeout: float = 10.0, **how: Any) -> Any:
    """The answer, or the code of the failure."""
    try:
        return channel.unary_unary(f"/ground.Ground/{method}")(request, timeout=timeout, **how)
    except grpc.RpcError as error:
        return error.code()


def begin(channel: Any, method: str, request: bytes = b"", timeout: float = 10.0) -> Any:
    return channel.unary_unary(f"/ground.Ground/{method}").future(request, timeout=timeout)


def code(future: Any) -> grpc.StatusCode | None:
    try:
        future.result()
    except grpc.RpcError as error:
        return error.code()
    return None


def test_a_refused_channel_fails_at_once_and_connects_by_itself(play: Any) -> None:
    def story(ground: Ground) -> None:
        first = ground.start()
        first.kill()
        channel, began = ground.channel(first.address), ground.now()
        assert [call(channel, "Echo") for _ in range(3)] == 3 * [UNAVAILABLE]
        assert ground.now() - began < 0.08 * ground.slowness
        second = ground.start(int(first.address.rpartition(":")[2]))
        began = ground.now()
        while call(channel, "Echo", b"back") != b"back":
            ground.sleep(0.01)
            assert ground.now() - began < 1.0 * ground.slowness, "the backoff is half a second at most"
        second.kill()

    play(story)


def test_a_call_that_waits_for_a_connection_outlasts_refusals(play: Any) -> None:
    def story(ground: Ground) -> None:
        first = ground.start()
        first.kill()
        channel = ground.channel(first.address)
        assert call(channel, "Echo", timeout=0.3, wait_for_ready=True) is grpc.StatusCode.DEADLINE_EXCEEDED
        ground.start(int(first.address.rpartition(":")[2]))
        assert call(channel, "Echo", b"late", wait_for_ready=True) == b"late"

    play(story)


def test_the_server_knows_the_deadline_too(play: Any) -> None:
    def story(ground: Ground) -> None:
        channel = ground.channel(ground.start().address)
        assert call(channel, "Wait", timeout=0.3) is grpc.StatusCode.DEADLINE_EXCEEDED
        ground.sleep(0.3)
        assert call(channel, "Seen") == b"0 effects, 1 ended"

    play(story)


def test_a_client_that_goes_ends_its_calls(play: Any) -> None:
    def story(ground: Ground) -> None:
        address = ground.start().address
        channel, other = ground.channel(address), ground.channel(address)
        assert call(other, "Echo") == b""
        waiting = begin(other, "Wait")
        ground.sleep(0.2)
        other.close()
        assert code(waiting) is grpc.StatusCode.CANCELLED
        ground.sleep(0.2)
        assert call(channel, "Seen") == b"0 effects, 1 ended"
        with pytest.raises(ValueError, match="closed channel"):
            call(other, "Echo")

    play(story)


def test_what_cannot_be_decoded_is_an_internal_error(play: Any) -> None:
    def story(ground: Ground) -> None:
        channel = ground.channel(ground.start().address)
        assert call(channel, "Broken") is INTERNAL
        method = channel.unary_unary("/ground.Ground/Echo", response_deserializer=int)
        with pytest.raises(grpc.RpcError) as caught:
            method(b"x", timeout=5.0)
        assert caught.value.code() is INTERNAL
        assert caught.value.details() == "Exception deserializing response!"

    play(story)


def test_a_server_that_stops_lets_calls_end_within_its_grace(play: Any) -> None:
    def story(ground: Ground) -> None:
        channel = ground.channel(ground.start().address)
        assert call(channel, "Echo") == b""
        short, long = begin(channel, "Work", b"0.5"), begin(channel, "Work", b"5")
        ground.sleep(0.2)
        began = ground.now()
        call(channel, "Stop", b"0.8")
        assert call(channel, "Echo") is UNAVAILABLE, "new calls are refused"
        assert ground.now() - began < 0.3 * ground.slowness
        assert short.result() == b"done"
        assert code(long) is UNAVAILABLE
        assert 0.6 < ground.now() - began < 1.4 * ground.slowness

    play(story)


def test_a_server_that_dies_ends_its_calls_at_once(play: Any) -> None:
    def story(ground: Ground) -> None:
        process = ground.start()
        channel = ground.channel(process.address)
        numbers = channel.unary_stream("/ground.Ground/Count")(b"0.05", timeout=20.0)
        assert [next(numbers), next(numbers)] == [b"0", b"1"]
        working = begin(channel, "Work", b"5")
        ground.sleep(0.2)
        began = ground.now()
        process.kill()
        assert code(working) is UNAVAILABLE
        assert ground.now() - began < 0.5 * ground.slowness
        with pytest.raises(grpc.RpcError) as caught:
            list(numbers)
        assert caught.value.code() is UNAVAILABLE
        assert call(channel, "Echo") is UNAVAILABLE

    play(story)


def test_a_frozen_server_never_greets(play: Any) -> None:
    def story(ground: Ground) -> None:
        process = ground.start()
        process.freeze()
        channel = ground.channel(process.address, grpc__min_reconnect_backoff_ms=700)
        began = ground.now()
        assert call(channel, "Echo") is UNAVAILABLE
        assert 0.6 < ground.now() - began < 1.2 * ground.slowness, "the time for a connection"
        began = ground.now()
        assert call(channel, "Echo") is UNAVAILABLE
        assert ground.now() - began < 0.3 * ground.slowness, "it fails at once while it tries again"
        process.thaw()
        assert call(channel, "Echo", b"x", wait_for_ready=True) == b"x"

    play(story)


def test_pings_notice_a_frozen_server_and_spare_one_that_comes_back(play: Any) -> None:
    def story(ground: Ground) -> None:
        process = ground.start()
        channel = ground.channel(process.address, **QUICK)
        assert call(channel, "Echo") == b""
        ground.sleep(0.2)
        working = begin(channel, "Work", b"3")
        ground.sleep(0.2)
        process.freeze()
        ground.sleep(0.2)
        process.thaw()
        ground.sleep(0.5)
        began = ground.now()
        process.freeze()
        assert code(working) is UNAVAILABLE
        assert 0.1 < ground.now() - began < 2.0 * ground.slowness
        process.thaw()

    play(story)


def test_calls_go_to_whoever_says_that_it_leads(play: Any) -> None:
    def story(ground: Ground) -> None:
        one, two = ground.start(), ground.start()
        to_one, to_two = ground.channel(one.address), ground.channel(two.address)
        channel = ground.leader_channel(f"ipv4:{one.address},{two.address}")
        assert call(channel, "Echo") is UNAVAILABLE, "nobody leads"
        call(to_one, "Lead", b"yes")
        ground.sleep(0.3)
        assert call(channel, "Work", b"0") == b"done"
        call(to_one, "Lead", b"no")
        call(to_two, "Lead", b"yes")
        ground.sleep(0.3)
        assert [call(channel, "Work", b"0") for _ in range(3)] == 3 * [b"done"]
        assert call(to_one, "Seen") == b"1 effects, 0 ended"
        assert call(to_two, "Seen") == b"3 effects, 0 ended"

    play(story)


def test_a_frozen_leader_is_left_after_two_pings(play: Any) -> None:
    def story(ground: Ground) -> None:
        one, two = ground.start(), ground.start()
        channel = ground.leader_channel(f"ipv4:{one.address},{two.address}", **QUICK)
        for process in (one, two):
            call(ground.channel(process.address), "Lead", b"yes" if process is one else b"no")
        while call(channel, "Echo") != b"":
            ground.sleep(0.05)
        one.freeze()
        call(ground.channel(two.address), "Lead", b"yes")
        began = ground.now()
        while call(channel, "Echo", timeout=0.2) != b"":
            assert ground.now() - began < 3.0 * ground.slowness
            ground.sleep(0.02)
        one.thaw()

    play(story)
