"""A small world with made-up time for tests of the failure detector's core."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from scar.event_log import EventRing, replay
from scar.placement import Member, Role
from scar.wire.timing import Timing
from scar_detector.core.detector import Detector
from scar_detector.core.events import (
    AccuseMember,
    BlockLease,
    ClearSuspicion,
    DetectorAction,
    DetectorEvent,
    ForgetMember,
    HeartbeatSeen,
    LeaseBlocked,
    ProbeAnswered,
    ProbeMember,
    RedisRead,
    RedisUnreadable,
    ReportFailed,
    ReportTaken,
    SendReport,
    Tick,
    WatchMember,
)
from scar_detector.core.member_state import MemberHealth, ProbeAnswer
from scar_detector.core.policy import DetectorPolicy

STEP = 0.01
TIMES = Timing(heartbeat=0.1)  # of this world, whatever the project's are
POLICY = DetectorPolicy(
    floor=TIMES.deviation,
    patience=TIMES.patience,
    period=TIMES.read_every,
    pause=TIMES.own_pause,
    probe_every=TIMES.probe_every,
    remember=TIMES.remember(TIMES.lease),
)

# all that are about one member
LoggedAction = WatchMember | ProbeMember | BlockLease | AccuseMember | ClearSuspicion | ForgetMember


def member(name: str, incarnation: str = "aaaaaaaaaaaa", role: Role = Role.SHARD) -> Member:
    return Member(role, name, incarnation, f"host:{name}")


@dataclass
class World:
    """Members that beat every 100 ms until told otherwise, a detector that ticks every 50 ms, probes that
    take time.
    """

    seed: int = 0
    jitter: float = 0.02
    now: float = 1000.0
    redis: bool = True
    answers: dict[str, ProbeAnswer] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    beating: set[str] = field(default_factory=set)
    log: list[tuple[float, LoggedAction]] = field(default_factory=list)
    takes_reports: bool = True
    takes_lease_blocks: bool = True
    reports: list[SendReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.detector = Detector(POLICY, EventRing(complete=True))
        self._random = random.Random(self.seed)
        self._next_beat: dict[str, float] = {}
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._next_tick = self.now

    def add(self, *members: Member) -> None:
        for one in members:
            self.members[one.key] = one
            self.beating.add(one.key)
            self._next_beat[one.key] = self.now

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += STEP
            self._deliver()
            if self.now >= self._next_tick:
                self._next_tick = self.now + 0.05
                self.tick()

    def sleep(self, seconds: float) -> None:
        """The detector itself does not run; the members do."""
        self.now += seconds
        for key in self.beating:
            self._next_beat[key] = self.now

    def handle(self, event: DetectorEvent) -> list[DetectorAction]:
        """The event alone: nothing is carried out."""
        return self.detector.handle(event, self.now)

    def tick(self) -> list[DetectorAction]:
        """What the detector does now is logged and carried out."""
        actions = self.handle(Tick())
        self.log += [(self.now, action) for action in actions if not isinstance(action, SendReport)]
        for action in actions:
            self._carry_out(action)
        return actions

    def crash(self, one: Member) -> None:
        self.beating.discard(one.key)
        self.answers[one.key] = ProbeAnswer.REFUSED

    def freeze(self, *members: Member) -> None:
        for one in members:
            self.beating.discard(one.key)
            self.answers[one.key] = ProbeAnswer.SILENT

    def accused(self) -> list[AccuseMember]:
        return [action for _, action in self.log if isinstance(action, AccuseMember)]

    def health(self, one: Member) -> MemberHealth:
        return next(view.health for view in self.detector.list_members(self.now) if view.member == one)

    def assert_story_replays(self) -> None:
        """A fresh detector that is fed the same events acts the same."""
        story = self.detector.story.entries()
        assert any(entry.actions for entry in story)
        assert replay(story, Detector(POLICY).handle) == []

    def _deliver(self) -> None:
        if not self.redis:
            self.handle(RedisUnreadable())
        else:
            fresh = []
            for key in sorted(self.beating):
                if self.now >= self._next_beat[key]:
                    fresh.append(HeartbeatSeen(self.members[key], 1))
                    self._next_beat[key] = self.now + 0.1 + self._random.uniform(-self.jitter, self.jitter)
            self.handle(RedisRead(tuple(fresh)))
        due = [call for when, call in self._later if when <= self.now]
        self._later = [(when, call) for when, call in self._later if when > self.now]
        for call in due:
            call()

    def _carry_out(self, action: DetectorAction) -> None:
        if isinstance(action, ProbeMember):
            asked = action.member
            answer = self.answers.get(asked.key, ProbeAnswer.ALIVE)
            slow = TIMES.probe_timeout if answer is ProbeAnswer.SILENT else STEP
            self._later.append((self.now + slow, lambda: self.handle(ProbeAnswered(asked, answer))))
        elif isinstance(action, BlockLease):
            self.handle(LeaseBlocked(action.member, done=self.redis and self.takes_lease_blocks))
        elif isinstance(action, SendReport):
            self.reports.append(action)
            number = action.number
            self.handle(ReportTaken(number) if self.takes_reports else ReportFailed(number, "on standby"))


def cluster(shards: int = 4, seed: int = 0, warm: float = 3.0) -> tuple[World, list[Member]]:
    world = World(seed=seed)
    members = [member(f"ps-{number}") for number in range(shards)]
    members += [member("worker-0", role=Role.WORKER), member("recovery-0", role=Role.RECOVERY)]
    world.add(*members)
    world.run(warm)
    return world, members
