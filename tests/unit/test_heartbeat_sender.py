"""The heartbeat's three paths, with stand-ins for the network."""

from __future__ import annotations

import threading

import pytest

from scar.errors import Fenced, LivenessUnavailable
from scar.placement import Member, Role
from scar.v1 import recovery_pb2
from scar_runtime.liveness.heartbeat_sender import HeartbeatSender
from scar_runtime.liveness.heartbeat_store import MemberStanding
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.metrics import BEATS

MEMBER = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", "127.0.0.1:1")


class FakeHeartbeatStore:
    def __init__(self) -> None:
        self.standing = MemberStanding(0, False)
        self.down = False
        self.asked = 0

    def record_heartbeat(self, member: Member, progress: int, epoch: int, protocol: int) -> MemberStanding:
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
        self.request = request
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


class Body:
    """The liveness and the heartbeats of a shard at a made-up time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, epoch: int = 3, member: Member = MEMBER) -> None:
        self.now = 100.0
        self.heartbeats = FakeHeartbeatStore()
        self.liveness = ProgressMonitor(2.0, lambda: self.now)
        self.liveness.epoch = epoch
        self.detector = FakeLink(None)
        self.recovery = FakeLink(recovery_pb2.RenewReply(epoch=epoch))
        links = {"detector": self.detector, "recovery": self.recovery}
        monkeypatch.setattr(
            "scar_runtime.liveness.heartbeat_sender.Link", lambda address, name, service: links[name]
        )
        for stubs in ("detector_pb2_grpc.DetectorStub", "recovery_pb2_grpc.RecoveryStub"):
            monkeypatch.setattr(f"scar_runtime.liveness.heartbeat_sender.{stubs}", FakeStub)
        redis = self.heartbeats if member.role is not Role.WORKER else None
        self.sender = HeartbeatSender(
            member,
            self.liveness,
            redis,  # type: ignore[arg-type]
            secret=b"its secret",
            detector="d:1",
            recovery="r:1",
        )

    def step(self, seconds: float = 0.1) -> bool:
        """One beat; the lease after it."""
        self.now += seconds
        self.liveness.record_progress()
        self.sender.send_heartbeat()
        return self.liveness.lease_valid()


class FakeStub:
    def __init__(self, channel: object) -> None:
        self.Beat = self.Renew = None


@pytest.fixture
def body(monkeypatch: pytest.MonkeyPatch) -> Body:
    return Body(monkeypatch)


def test_the_first_lease_comes_from_recovery_then_redis_keeps_it(body: Body) -> None:
    body.heartbeats.standing = MemberStanding(3, False)
    assert body.step()
    assert body.recovery.calls == 1
    assert body.recovery.request.secret == b"its secret"
    assert all(body.step() for _ in range(50))
    assert (body.recovery.calls, body.detector.calls) == (1, 0)


def test_without_redis_the_detector_keeps_it(body: Body) -> None:
    body.step()
    body.heartbeats.down = True
    assert all(body.step() for _ in range(50))
    assert body.heartbeats.asked <= 7, "a dead Redis is tried once a second"
    assert body.recovery.calls == 1


def test_without_redis_and_detector_recovery_keeps_it(body: Body) -> None:
    body.step()
    body.heartbeats.down = True
    body.detector.reply = LivenessUnavailable("down")
    assert all(body.step() for _ in range(50))
    assert body.recovery.calls > 10


def test_without_anybody_it_ends(body: Body) -> None:
    body.step()
    body.heartbeats.down = True
    body.detector.reply = body.recovery.reply = LivenessUnavailable("down")
    assert not all(body.step() for _ in range(25))


@pytest.mark.parametrize(
    "standing", [MemberStanding(4, False), MemberStanding(3, True)], ids=["newer epoch", "lease blocked"]
)
def test_redis_does_not_renew_who_is_behind_or_doomed(body: Body, standing: MemberStanding) -> None:
    body.step()
    body.heartbeats.standing = standing
    body.recovery.reply = recovery_pb2.RenewReply(epoch=4)
    assert not all(body.step() for _ in range(25))


def test_who_was_doomed_by_mistake_is_kept_by_recovery(body: Body) -> None:
    body.step()
    body.heartbeats.standing = MemberStanding(3, True)
    assert all(body.step() for _ in range(50))


def test_after_a_freeze_only_recovery_brings_it_back(body: Body) -> None:
    body.step()
    body.recovery.reply = recovery_pb2.RenewReply(epoch=4)
    assert not body.step(seconds=10)
    assert not any(body.step() for _ in range(20))
    body.liveness.epoch = 4
    assert body.step(0.3)


def test_fenced_ends_the_process(body: Body) -> None:
    body.recovery.reply = Fenced("out")
    with pytest.raises(Fenced):
        body.step()


def test_without_an_epoch_nobody_is_bothered(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Body(monkeypatch, epoch=0)
    assert not any(body.step() for _ in range(10))
    assert body.recovery.calls == 0


def test_a_worker_knows_the_detector_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One try a beat, also while the detector is away; and no alert that its beats do not reach Redis."""
    BEATS.clear()
    body = Body(monkeypatch, member=Member(Role.WORKER, "worker-0", "bbbbbbbbbbbb", "127.0.0.1:2"))
    for reply in (None, LivenessUnavailable("away"), None):
        body.detector.reply = reply
        before = body.detector.calls
        for _ in range(10):
            body.step()
        assert body.detector.calls == before + 10
    assert (body.heartbeats.asked, body.recovery.calls) == (0, 0)
    paths = {sample.labels["path"] for metric in BEATS.collect() for sample in metric.samples}
    assert paths == {"detector"}
    body.detector.close = body.recovery.close = lambda: None  # type: ignore[attr-defined]
    body.sender.close()


def test_the_connection_closes_after_the_beat_that_is_under_way(
    body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the beat fails on a closed connection, or writes a heartbeat that nobody takes away."""
    begun, go_on, order = threading.Event(), threading.Event(), []

    def record_heartbeat(member: Member, progress: int, epoch: int, protocol: int) -> MemberStanding:
        begun.set()
        assert go_on.wait(10)
        order.append("beat")
        return MemberStanding(0, False)

    body.heartbeats.record_heartbeat = record_heartbeat  # type: ignore[method-assign]
    body.heartbeats.forget_member = lambda key: order.append("forgotten")  # type: ignore[attr-defined]
    body.heartbeats.close = lambda: order.append("closed")  # type: ignore[attr-defined]
    for link in (body.detector, body.recovery):
        link.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr("scar_runtime.liveness.heartbeat_sender.BEAT_SECONDS", 0.001)
    stopping = threading.Event()
    beating = threading.Thread(target=body.sender.run, args=(stopping,))
    beating.start()
    assert begun.wait(10)
    closing = threading.Thread(target=body.sender.close)
    closing.start()
    go_on.set()
    closing.join(10)
    beating.join(10)
    assert not beating.is_alive()
    assert order[-2:] == ["forgotten", "closed"]
    assert order[0] == "beat"


def test_a_slow_answer_gives_a_shorter_lease_not_a_later_one(body: Body) -> None:
    """The lease counts from before the question: Redis may have been asked about us since."""
    body.step()
    slow = body.heartbeats.record_heartbeat

    def record_heartbeat(member: Member, progress: int, epoch: int, protocol: int) -> MemberStanding:
        body.now += 1.5
        return slow(member, progress, epoch, protocol)

    body.heartbeats.record_heartbeat = record_heartbeat  # type: ignore[method-assign]
    assert body.step()
    body.now += 0.6
    assert not body.liveness.lease_valid()
