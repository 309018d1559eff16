"""A small world with made-up time for tests of the failure detector's core."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from scar.placement import Member, Role
from scar_detector.detector import Accuse, Action, Bar, Detector, Policy, Probe
from scar_detector.prober import PROBE_SECONDS
from scar_detector.watched import Answer, Health

STEP = 0.01


def member(name: str, incarnation: str = "aaaaaaaaaaaa", role: Role = Role.SHARD) -> Member:
    return Member(role, name, incarnation, f"host:{name}")


@dataclass
class World:
    """Members that beat every 100 ms until told otherwise, a detector that ticks every 50 ms, probes that take time."""

    seed: int = 0
    jitter: float = 0.02
    now: float = 1000.0
    redis: bool = True
    answers: dict[str, Answer] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    beating: set[str] = field(default_factory=set)
    log: list[tuple[float, Action]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.detector = Detector(Policy())
        self._random = random.Random(self.seed)
        self._next_beat: dict[str, float] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
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

    def tick(self) -> list[Action]:
        actions = self.detector.tick(self.now)
        self.log += [(self.now, action) for action in actions]
        for action in actions:
            self._carry_out(action)
        return actions

    def crash(self, one: Member) -> None:
        self.beating.discard(one.key)
        self.answers[one.key] = Answer.REFUSED

    def freeze(self, *members: Member) -> None:
        for one in members:
            self.beating.discard(one.key)
            self.answers[one.key] = Answer.SILENT

    def accused(self) -> list[Accuse]:
        return [action for _, action in self.log if isinstance(action, Accuse)]

    def health(self, one: Member) -> Health:
        return next(view.health for view in self.detector.view(self.now) if view.member == one)

    def _deliver(self) -> None:
        if not self.redis:
            self.detector.unheard()
        else:
            self.detector.seen()
            for key in sorted(self.beating):
                if self.now >= self._next_beat[key]:
                    self.detector.heard(self.members[key], 1, self.now)
                    self._next_beat[key] = self.now + 0.1 + self._random.uniform(-self.jitter, self.jitter)
        due = [call for when, call in self._later if when <= self.now]
        self._later = [(when, call) for when, call in self._later if when > self.now]
        for call in due:
            call()

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Probe):
            asked = action.member
            answer = self.answers.get(asked.key, Answer.ALIVE)
            slow = PROBE_SECONDS if answer is Answer.SILENT else STEP
            self._later.append((self.now + slow, lambda: self.detector.probed(asked, answer, self.now)))
        elif isinstance(action, Bar):
            self.detector.barred(action.member, done=self.redis)


def cluster(shards: int = 4, seed: int = 0, warm: float = 3.0) -> tuple[World, list[Member]]:
    world = World(seed=seed)
    members = [member(f"ps-{number}") for number in range(shards)]
    members += [member("worker-0", role=Role.WORKER), member("recovery-0", role=Role.RECOVERY)]
    world.add(*members)
    world.run(warm)
    return world, members
