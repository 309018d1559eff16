"""The failure detector as a process, with real processes to kill and to freeze, and a recovery coordinator
that takes notes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from scar.errors import Internal, NotServing
from scar.placement import Member, Role
from scar.v1 import detector_pb2, detector_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.timing import TIMING
from scar.wire.transport import Link
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.process.server import bind_port, make_server
from tests.component.processes import DUMMY, Process, Processes, eventually, running_redis


class Recovery(recovery_pb2_grpc.RecoveryServicer):
    """Remembers reports and when they came. Refuses the first ``failures`` of them."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, recovery_pb2.FailureReport]] = []
        self.failures = 0

    def ReportFailure(
        self, request: recovery_pb2.FailureReport, context: grpc.ServicerContext
    ) -> recovery_pb2.FailureReply:
        if self.failures:
            self.failures -= 1
            raise Internal("not now")
        self.reports.append((time.monotonic(), request))
        return recovery_pb2.FailureReply(epoch=2)

    def Renew(
        self, request: recovery_pb2.RenewRequest, context: grpc.ServicerContext
    ) -> recovery_pb2.RenewReply:
        return recovery_pb2.RenewReply(epoch=1)

    def about(self, name: str) -> tuple[float, recovery_pb2.FailureReport]:
        return next((when, report) for when, report in self.reports if report.member.name == name)


class Scene:
    """Redis, recovery, a detector, and dummy members."""

    def __init__(self, processes: Processes, redis_url: str) -> None:
        self.processes = processes
        self.redis_url = redis_url
        self.recovery = Recovery()
        self._server = make_server(workers=8)
        recovery_pb2_grpc.add_RecoveryServicer_to_server(self.recovery, self._server)
        self.recovery_address = bind_port(self._server, "127.0.0.1:0")
        self._server.start()
        self.detector = self.start_detector()
        self.members: dict[str, Process] = {"detector-0": self.detector}

    def start_detector(self, name: str = "detector-0", **more: str) -> Process:
        variables = {"SCAR_RECOVERY": self.recovery_address, "SCAR_REDIS": self.redis_url, **more}
        return self.processes.start(name, "-m", "scar_detector", **variables).serving()

    def add(self, *names: str, role: str = "SHARD") -> None:
        """Start members and wait until their rhythm is known."""
        variables = {
            "SCAR_DETECTOR": self.detector.address,
            "SCAR_RECOVERY": self.recovery_address,
            "SCAR_REDIS": self.redis_url,
        }
        for name in names:
            self.members[name] = self.processes.start(name, DUMMY, role, "calm", **variables)
        alive = detector_pb2.HEALTH_ALIVE
        eventually(lambda: all(self.view(name).health == alive for name in names), what=self.detector.log)

    def signal(self, name: str, number: signal.Signals) -> float:
        """Send it; the time at which it was sent."""
        sent = time.monotonic()
        self.members[name].process.send_signal(number)
        return sent

    def look(self) -> detector_pb2.ListMembersReply:
        link = Link(self.detector.address, "detector")
        try:
            return link.call(
                detector_pb2_grpc.DetectorStub(link.channel).ListMembers,
                detector_pb2.ListMembersRequest(),
                20,
            )
        finally:
            link.close()

    def view(self, name: str) -> detector_pb2.MemberView:
        """The newest life of this member."""
        found = [view for view in self.look().members if view.member.name == name]
        assert found, f"{name} is unknown"
        return found[-1]

    def reported(self, name: str) -> tuple[float, recovery_pb2.FailureReport]:
        eventually(lambda: self.recovery.about(name), what=self.detector.log)
        return self.recovery.about(name)

    def close(self) -> None:
        self._server.stop(0).wait(5)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with running_redis(tmp_path) as url:
        yield url


@pytest.fixture
def scene(tmp_path: Path, redis_url: str) -> Iterator[Scene]:
    processes = Processes(tmp_path)
    scene = Scene(processes, redis_url)
    yield scene
    processes.close()
    scene.close()


@pytest.mark.timed
def test_killed_members_are_reported_as_proved_and_fast(scene: Scene) -> None:
    names = ["ps-0", "ps-1", "ps-2"]
    scene.add(*names)
    scene.add("worker-0", role="WORKER")
    scene.add("checkpoint-0", role="CHECKPOINT")
    scene.signal("checkpoint-0", signal.SIGKILL)
    took = []
    for name in [*names, "worker-0"]:
        killed = scene.signal(name, signal.SIGKILL)
        when, report = scene.reported(name)
        took.append(when - killed)
        assert report.proved, report.evidence
        assert report.member.address == scene.members[name].address
        assert report.detect_seconds < 1.0
    assert max(took) < 1.0
    assert sorted(took)[1] < 0.5
    assert {report.member.name for _, report in scene.recovery.reports} == {*names, "worker-0"}, (
        "coordinators are not reported"
    )
    # nobody hurries for a coordinator: all others may be reported before it is silent for long enough
    dead = detector_pb2.HEALTH_DEAD
    eventually(lambda: scene.view("checkpoint-0").health == dead, what=scene.detector.log)


@pytest.mark.timed
def test_a_frozen_member_is_reported_as_suspected(scene: Scene) -> None:
    scene.add("ps-0", "ps-1", "ps-2")
    frozen = scene.signal("ps-1", signal.SIGSTOP)
    when, report = scene.reported("ps-1")
    assert when - frozen < 1.5
    assert not report.proved
    assert 0.3 < report.silence <= report.detect_seconds < 1.5
    assert "silent" in report.evidence
    scene.signal("ps-1", signal.SIGCONT)
    eventually(lambda: scene.view("ps-1").health != detector_pb2.HEALTH_DEAD, what=scene.detector.log)
    assert len(scene.recovery.reports) == 1


@pytest.mark.timed
def test_redis_dies_and_nobody_is_accused_but_the_dead(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    processes = Processes(tmp_path)
    with running_redis(tmp_path / "redis") as url:
        scene = Scene(processes, url)
        scene.add("ps-0", "ps-1", "ps-2")
    try:
        eventually(lambda: not scene.look().redis)
        assert "Redis" in scene.look().problem
        time.sleep(1.5)
        assert scene.recovery.reports == []
        assert {view.health for view in scene.look().members} == {detector_pb2.HEALTH_ALIVE}
        killed = scene.signal("ps-2", signal.SIGKILL)
        when, report = scene.reported("ps-2")
        assert report.proved
        assert when - killed < 1.5
    finally:
        processes.close()
        scene.close()


def test_a_report_is_repeated_until_it_is_taken(scene: Scene) -> None:
    scene.add("ps-0")
    scene.recovery.failures = 3
    scene.signal("ps-0", signal.SIGKILL)
    scene.reported("ps-0")
    assert scene.recovery.failures == 0
    assert scene.detector.log.count("report.failed") == 3


def test_a_restarted_detector_finds_the_dead_and_forgets_them(scene: Scene) -> None:
    scene.add("ps-0", "ps-1")
    scene.detector.process.kill()
    scene.detector.wait()
    scene.signal("ps-0", signal.SIGKILL)
    scene.detector = scene.start_detector()
    _, report = scene.reported("ps-0")
    assert report.proved
    heartbeats = HeartbeatStore(scene.redis_url, "scar")
    left = ["detector-0", "ps-1"]  # the old detector is forgotten, too
    eventually(lambda: sorted(beat.member.name for beat in heartbeats.read_heartbeats().values()) == left)
    heartbeats.close()


def test_a_restarted_member_is_told_from_the_old_one(scene: Scene) -> None:
    scene.add("ps-0", "ps-1")
    old = scene.view("ps-0").member.incarnation
    scene.signal("ps-0", signal.SIGKILL)
    scene.members["ps-0"].wait()
    scene.add("ps-0")
    scene.reported("ps-0")
    assert [report.member.incarnation for _, report in scene.recovery.reports] == [old]


def test_beats_sent_to_a_detector_reach_redis_and_are_refused_when_redis_says_so(scene: Scene) -> None:
    me = Member(Role.WORKER, "worker-7", "aaaaaaaaaaaa")
    link, heartbeats = Link(scene.detector.address, "detector"), HeartbeatStore(scene.redis_url, "scar")
    stub = detector_pb2_grpc.DetectorStub(link.channel)

    def beat(progress: int) -> None:
        link.call(
            stub.Beat,
            detector_pb2.BeatRequest(member=codec.member_to_proto(me), progress=progress, epoch=3),
            20,
        )

    eventually(lambda: scene.look().redis)
    for progress in range(3):
        beat(progress)
    assert (heartbeats.read_heartbeats()[me.key].progress, heartbeats.read_heartbeats()[me.key].epoch) == (
        2,
        3,
    )
    eventually(
        lambda: any(view.member.name == "worker-7" and view.progress == 2 for view in scene.look().members)
    )
    heartbeats.block_lease(me.key, "detector-1")
    with pytest.raises(NotServing, match="declared dead"):
        beat(4)
    heartbeats.unblock_lease(me.key, "detector-1")
    heartbeats.publish_epoch(4)
    with pytest.raises(NotServing, match="behind"):
        beat(5)
    heartbeats.close()
    link.close()


@pytest.mark.timed
def test_two_detectors_report_the_same_death_and_only_that(scene: Scene) -> None:
    scene.start_detector("detector-1")
    scene.add("ps-0", "ps-1", "ps-2")
    frozen = scene.signal("detector-0", signal.SIGKILL), scene.signal("ps-1", signal.SIGSTOP)
    when, report = scene.reported("ps-1")
    assert when - frozen[1] < 2.0
    assert (report.proved, report.member.name) == (False, "ps-1")
    assert {one.member.name for _, one in scene.recovery.reports} == {"ps-1"}


def test_it_stops_cleanly_under_load(scene: Scene) -> None:
    scene.add("ps-0", "ps-1")
    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(scene.look) for _ in range(20)]
        scene.signal("ps-0", signal.SIGKILL)
        assert all(look.result().members for look in looks)
    scene.detector.process.send_signal(signal.SIGTERM)
    assert scene.detector.wait() == 0
    assert "Traceback" not in scene.detector.log


def test_without_a_recovery_address_it_says_what_to_set(tmp_path: Path, redis_url: str) -> None:
    processes = Processes(tmp_path)
    try:
        service = processes.start("detector-0", "-m", "scar_detector", SCAR_REDIS=redis_url)
        assert service.wait() == 2
        assert "SCAR_RECOVERY (--recovery) is empty" in service.log
    finally:
        processes.close()


def test_a_worker_is_heard_through_the_detector_whose_restart_accuses_nobody(scene: Scene) -> None:
    """It has no Redis; while the only detector is away, nobody hears it, and the next one has to ask."""
    scene.add("worker-0", role="WORKER")
    worker = scene.members["worker-0"]
    assert "path=detector" in worker.log
    listen = scene.detector.address

    def heard() -> int:
        """Of the worker's progress."""
        return max(
            (view.progress for view in scene.look().members if view.member.name == "worker-0"), default=0
        )

    scene.detector.process.kill()
    scene.detector.process.wait()
    time.sleep(TIMING.patience)  # longer than any silence that is not suspicious
    scene.detector = scene.start_detector("detector-1", SCAR_LISTEN=listen)
    eventually(lambda: heard() > 0, seconds=30, what=scene.detector.log)
    beaten = heard()
    eventually(lambda: heard() > beaten + 20, seconds=30, what=scene.detector.log)
    assert not scene.recovery.reports
    scene.signal("worker-0", signal.SIGKILL)
    assert scene.reported("worker-0")[1].proved
