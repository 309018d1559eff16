"""Connections over a bad network: what is sent again, what is given up, and what the server has done."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tests.simulation.connections import SERVER_PATIENCE
from tests.simulation.network import ANYBODY, BadWay, Weather
from tests.simulation.subchannels import Subchannel
from tests.simulation.test_wire_contract import begin, call, code
from tests.simulation.wire_ground import SimulatedGround

UNAVAILABLE, TOO_LATE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED
TCP_PATIENCE = 5.0  # keepalive_timeout of the project's channels


class Pair:
    """A client and a server that are connected."""

    def __init__(self, ground: SimulatedGround) -> None:
        self.ground = ground
        self.process = ground.start()
        self.channel = ground.channel(self.process.address)
        assert call(self.channel, "Echo") == b""

    def cut(self, seconds: float, *, there: bool = True, back: bool = True) -> None:
        near, far = self.ground.client.name, self.process.host.name
        if there:
            self.ground.network.cut(near, far, seconds)
        if back:
            self.ground.network.cut(far, near, seconds)

    def effects(self) -> int:
        """Of calls of Work; asked on a connection of its own."""
        seen: bytes = call(self.ground.channel(self.process.address), "Seen", timeout=60.0)
        return int(seen.split()[0])


def play(story: Any) -> None:
    ground = SimulatedGround()
    ground.play(lambda used: story(Pair(used)))


def test_a_short_partition_only_delays() -> None:
    def story(pair: Pair) -> None:
        pair.cut(2.0)
        began = pair.ground.now()
        assert call(pair.channel, "Work", b"0", 30.0) == b"done"
        assert 2.0 < pair.ground.now() - began < 4.5, "it is sent again after a time that doubles"
        assert pair.effects() == 1

    play(story)


def test_a_long_partition_ends_calls_when_the_kernel_gives_up() -> None:
    def story(pair: Pair) -> None:
        pair.cut(60.0)
        began = pair.ground.now()
        assert call(pair.channel, "Work", b"0", 30.0) is UNAVAILABLE
        assert TCP_PATIENCE - 0.1 < pair.ground.now() - began < TCP_PATIENCE + 0.1
        pair.ground.sleep(60.0)
        assert pair.effects() == 0

    play(story)


@pytest.mark.parametrize(("there", "effects"), [(True, 0), (False, 1)])
def test_a_one_way_partition_says_nothing_of_the_effect(there: bool, effects: int) -> None:
    def story(pair: Pair) -> None:
        pair.cut(60.0, there=there, back=not there)
        assert call(pair.channel, "Work", b"0", 30.0) is UNAVAILABLE
        pair.ground.sleep(60.0)
        assert pair.effects() == effects

    play(story)


def test_a_host_cut_off_is_not_refused_but_not_reached() -> None:
    def story(pair: Pair) -> None:
        pair.ground.network.isolate(pair.process.host.name, 3.0)
        other, began = pair.ground.channel(pair.process.address), pair.ground.now()
        assert call(other, "Echo") is UNAVAILABLE
        assert 1.9 < pair.ground.now() - began < 2.1, "the time for a connection"
        assert call(other, "Echo", b"x", 30.0, wait_for_ready=True) == b"x"

    play(story)


def test_a_process_that_dies_cut_off_is_half_open_to_its_peer() -> None:
    """No FIN arrives: the client's kernel hears nothing, and its pings are what notices."""

    def story(pair: Pair) -> None:
        waiting = begin(pair.channel, "Wait", b"", 100.0)
        pair.ground.sleep(0.1)
        pair.ground.network.isolate(pair.process.host.name, 1e6)
        pair.process.kill()
        began = pair.ground.now()
        assert code(waiting) is UNAVAILABLE
        assert 9.0 < pair.ground.now() - began < 15.1, "keepalive_time, and the patience after it"

    play(story)


def test_a_server_gives_up_on_a_client_that_vanished_when_it_answers() -> None:
    def story(pair: Pair) -> None:
        other = pair.ground.scheduler.host("other")
        channels: list[Any] = []

        def calls() -> None:
            channels.append(pair.ground.channel(pair.process.address))
            channels[0].unary_stream("/ground.Ground/Count")(b"1.0", timeout=1000.0)

        pair.ground.scheduler.spawn(other, "calls", calls)
        pair.ground.sleep(1.0)
        (server,) = {one.server for one in _connections(pair)}
        assert len(server.connections) == 2
        pair.ground.network.isolate(other.name, 1e6)
        pair.ground.scheduler.crash(other)
        pair.ground.sleep(SERVER_PATIENCE - 1.0)
        assert len(server.connections) == 2
        pair.ground.sleep(3.0)
        assert len(server.connections) == 1

    play(story)


def _connections(pair: Pair) -> list[Any]:
    return [one.connection for one in pair.channel._subchannels.values()]


def test_a_client_that_dies_ends_its_calls_at_the_server() -> None:
    def story(pair: Pair) -> None:
        other = pair.ground.scheduler.host("other")

        def calls() -> None:
            call(pair.ground.channel(pair.process.address), "Wait", b"", 1000.0)

        pair.ground.scheduler.spawn(other, "calls", calls)
        pair.ground.sleep(1.0)
        pair.ground.scheduler.crash(other)
        pair.ground.sleep(1.0)
        assert call(pair.channel, "Seen") == b"0 effects, 1 ended"

    play(story)


def test_losses_delay_and_keep_the_order() -> None:
    def story(pair: Pair) -> None:
        pair.ground.network.weather = Weather(lost=0.2, delayed=0.2)
        numbers = pair.channel.unary_stream("/ground.Ground/Count")(b"0.01", timeout=900.0)
        assert [int(one) for one in numbers] == list(range(100))

    play(story)


def test_a_slow_way_takes_its_time_for_the_bytes() -> None:
    def story(pair: Pair) -> None:
        pair.ground.network.worsen(ANYBODY, pair.process.host.name, BadWay(rate=1000.0), 100.0)
        began = pair.ground.now()
        first, second = (begin(pair.channel, "Echo", bytes(2000), 60.0) for _ in range(2))
        first.result()
        assert pair.ground.now() - began == pytest.approx(2.0, abs=0.1)
        second.result()
        assert pair.ground.now() - began == pytest.approx(4.0, abs=0.1)
        pair.ground.sleep(100.0)
        began = pair.ground.now()
        assert call(pair.channel, "Echo", bytes(2000)) == bytes(2000)
        assert pair.ground.now() - began < 0.1, "it ends by itself"

    play(story)


def test_delay_and_jitter_are_of_each_message() -> None:
    def story(pair: Pair) -> None:
        pair.ground.network.worsen(pair.process.host.name, ANYBODY, BadWay(delay=0.2, jitter=0.1), 100.0)
        spent = []
        for _ in range(20):
            began = pair.ground.now()
            assert call(pair.channel, "Echo") == b""
            spent.append(pair.ground.now() - began)
        assert 0.2 < min(spent) < 0.22
        assert 0.28 < max(spent) < 0.32

    play(story)


def test_a_stale_name_leads_nowhere_until_it_is_looked_up_again() -> None:
    def story(pair: Pair) -> None:
        network = pair.ground.network
        network.names["leader:1"] = [pair.process.address]
        call(pair.channel, "Lead", b"yes")
        network.misname("leader:1", [], 5.0)
        channel = pair.ground.leader_channel("leader:1")
        assert call(channel, "Echo") is UNAVAILABLE
        pair.ground.sleep(6.0)
        assert call(channel, "Echo", b"x", wait_for_ready=True) == b"x"

    play(story)


def test_a_connection_to_a_leader_is_renewed_and_hears_of_new_replicas() -> None:
    def story(pair: Pair) -> None:
        network = pair.ground.network
        network.names["leader:1"] = [pair.process.address]
        call(pair.channel, "Lead", b"yes")
        channel = pair.ground.leader_channel("leader:1")
        assert call(channel, "Echo") == b""
        _connections(pair)[0].server.connection_age = 10.0
        call(pair.channel, "Lead", b"no")
        other = pair.ground.start()
        network.names["leader:1"].append(other.address)
        call(pair.ground.channel(other.address), "Lead", b"yes")
        assert call(channel, "Echo") is UNAVAILABLE, "it does not know of the new one"
        next(iter(channel._subchannels.values()))._renewed = pair.ground.now()
        assert call(channel, "Echo", b"x", wait_for_ready=True) == b"x"

    play(story)


def test_calls_do_not_hurry_a_channel_that_backs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[float] = []
    failed = Subchannel._failed

    def counted(self: Subchannel, details: str) -> None:
        attempts.append(self._network.scheduler.now)
        failed(self, details)

    monkeypatch.setattr(Subchannel, "_failed", counted)

    def story(ground: SimulatedGround) -> None:
        channel = ground.channel("10.9.9.9:5000")
        for _ in range(200):
            assert call(channel, "Echo") is UNAVAILABLE
            ground.sleep(0.05)

    SimulatedGround().play(story)
    assert 15 < len(attempts) < 40, "one in half a second, however many calls there are"
