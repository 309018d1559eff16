"""The heartbeat's three paths, with stand-ins for the network."""

from __future__ import annotations

import threading

import pytest

from scar.errors import Fenced, LivenessUnavailable
from scar.placement import Member, Role
from scar.v1 import recovery_pb2
from scar_runtime.heart import Heart
from scar_runtime.liveness import Standing
from scar_runtime.pulse import Pulse

MEMBER = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", "127.0.0.1:1")


class FakeBeats:
    def __init__(self) -> None:
        self.standing = Standing(0, False)
        self.down = False
        self.asked = 0

    def beat(self, member: Member, progress: int, epoch: int) -> Standing:
        self.asked += 1
        if self.down:
            raise LivenessUnavailable("down")
        return self.standing


class FakeLink:
    """Stands in for ``Link``: ``replies`` are returned or raised."""

    channel = None

    def __init__(self, reply: object) -> None:
        self.reply = reply
        self.calls = 0

    def call(self, method: object, request: object, timeout: float) -> object:
        self.calls += 1
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


class Body:
    """A shard's heart and pulse at a made-up time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, epoch: int = 3) -> None:
        self.now = 100.0
        self.beats = FakeBeats()
        self.heart = Heart(2.0, lambda: self.now)
        self.heart.epoch = epoch
        self.detector = FakeLink(None)
        self.recovery = FakeLink(recovery_pb2.RenewReply(epoch=epoch))
        links = {"detector": self.detector, "recovery": self.recovery}
        monkeypatch.setattr("scar_runtime.pulse.Link", lambda address, name, service: links[name])
        for stubs in ("detector_pb2_grpc.DetectorStub", "recovery_pb2_grpc.RecoveryStub"):
            monkeypatch.setattr(f"scar_runtime.pulse.{stubs}", FakeStub)
        self.pulse = Pulse(MEMBER, self.heart, self.beats, detector="d:1", recovery="r:1")  # type: ignore[arg-type]

    def step(self, seconds: float = 0.1) -> bool:
        """One beat; the lease after it."""
        self.now += seconds
        self.heart.beat()
        self.pulse.once()
        return self.heart.lease_valid()


class FakeStub:
    def __init__(self, channel: object) -> None:
        self.Beat = self.Renew = None


@pytest.fixture
def body(monkeypatch: pytest.MonkeyPatch) -> Body:
    return Body(monkeypatch)


def test_the_first_lease_comes_from_recovery_then_redis_keeps_it(body: Body) -> None:
    body.beats.standing = Standing(3, False)
    assert body.step()
    assert body.recovery.calls == 1
    assert all(body.step() for _ in range(50))
    assert (body.recovery.calls, body.detector.calls) == (1, 0)


def test_without_redis_the_detector_keeps_it(body: Body) -> None:
    body.step()
    body.beats.down = True
    assert all(body.step() for _ in range(50))
    assert body.beats.asked <= 7, "a dead Redis is tried once a second"
    assert body.recovery.calls == 1


def test_without_redis_and_detector_recovery_keeps_it(body: Body) -> None:
    body.step()
    body.beats.down = True
    body.detector.reply = LivenessUnavailable("down")
    assert all(body.step() for _ in range(50))
    assert body.recovery.calls > 10


def test_without_anybody_it_ends(body: Body) -> None:
    body.step()
    body.beats.down = True
    body.detector.reply = body.recovery.reply = LivenessUnavailable("down")
    assert not all(body.step() for _ in range(25))


@pytest.mark.parametrize("standing", [Standing(4, False), Standing(3, True)], ids=["newer epoch", "doomed"])
def test_redis_does_not_renew_who_is_behind_or_doomed(body: Body, standing: Standing) -> None:
    body.step()
    body.beats.standing = standing
    body.recovery.reply = recovery_pb2.RenewReply(epoch=4)
    assert not all(body.step() for _ in range(25))


def test_who_was_doomed_by_mistake_is_kept_by_recovery(body: Body) -> None:
    body.step()
    body.beats.standing = Standing(3, True)
    assert all(body.step() for _ in range(50))


def test_after_a_freeze_only_recovery_brings_it_back(body: Body) -> None:
    body.step()
    body.recovery.reply = recovery_pb2.RenewReply(epoch=4)
    assert not body.step(seconds=10)
    assert not any(body.step() for _ in range(20))
    body.heart.epoch = 4
    assert body.step(0.3)


def test_fenced_ends_the_process(body: Body) -> None:
    body.recovery.reply = Fenced("out")
    with pytest.raises(Fenced):
        body.step()


def test_without_an_epoch_nobody_is_bothered(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Body(monkeypatch, epoch=0)
    assert not any(body.step() for _ in range(10))
    assert body.recovery.calls == 0


def test_the_connection_closes_after_the_beat_that_is_under_way(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the beat fails on a closed connection, or writes a heartbeat that nobody takes away."""
    begun, go_on, order = threading.Event(), threading.Event(), []

    def beat(member: Member, progress: int, epoch: int) -> Standing:
        begun.set()
        assert go_on.wait(10)
        order.append("beat")
        return Standing(0, False)

    body.beats.beat = beat  # type: ignore[method-assign]
    body.beats.forget = lambda key: order.append("forgotten")  # type: ignore[attr-defined]
    body.beats.close = lambda: order.append("closed")  # type: ignore[attr-defined]
    for link in (body.detector, body.recovery):
        link.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr("scar_runtime.pulse.BEAT_SECONDS", 0.001)
    stopping = threading.Event()
    beating = threading.Thread(target=body.pulse.run, args=(stopping,))
    beating.start()
    assert begun.wait(10)
    closing = threading.Thread(target=body.pulse.close)
    closing.start()
    go_on.set()
    closing.join(10)
    beating.join(10)
    assert not beating.is_alive()
    assert order[-2:] == ["forgotten", "closed"]
    assert order[0] == "beat"
