"""One training of one strategy under the faults of the comparison, and what it cost."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.compare import train
from experiments.compare.choices import UNDISTURBED, Kill, options_of
from experiments.compare.places import Running, training
from experiments.records import Record
from scar.errors import DeadlineExceeded, Internal
from scar_kube.where import Where
from scar_runtime.status import ClusterStatus

SHARDS = 4
LOOK_SECONDS = 0.02
SECONDS = 300.0  # a run that takes longer is broken
MOST = 600  # clocks after which a run is given up


@dataclass(frozen=True)
class Plan:
    """``goal``: the loss that counts as converged."""

    strategy: str
    kills: tuple[Kill, ...]
    goal: float
    where: Where | None = None


def carry_out(plan: Plan, seed: int, trials: Sequence[int]) -> Iterator[Record]:
    for trial in trials:
        options = {} if plan.strategy == UNDISTURBED else options_of(plan.strategy)
        job = replace(train.job, name=f"compare-{secrets.token_hex(4)}", seed=seed + trial, shards=SHARDS, **options)
        with training(job, plan.where) as running:
            yield {"trial": trial, **_Follower(running, plan).follow()}


class _Follower:
    def __init__(self, running: Running, plan: Plan) -> None:
        self._running, self._goal = running, plan.goal
        self._kills = list(plan.kills) if plan.strategy != UNDISTURBED else []
        self._struck: list[dict[str, Any]] = []
        self._losses: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        self._rounds: dict[int, int] = {}  # number -> bytes
        self._status = ClusterStatus()

    def follow(self) -> Record:
        """Until the loss is low enough and all kills are over and in the books."""
        deadline = time.monotonic() + SECONDS
        while not self._over():
            self._look()
            if broken := self._running.broken():
                raise Internal("; ".join(broken), "Its log may say why")
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"not converged within {SECONDS:g} s", "; ".join(self._status.problems))
            time.sleep(LOOK_SECONDS)
        return self._record()

    def _look(self) -> None:
        self._status = status = self._running.status(max(self._losses, default=0))
        now = time.monotonic()
        for clock, loss in status.losses.items():
            self._losses[clock] = loss
            self._ends.setdefault(clock, now)
        if status.checkpoint is not None:
            self._rounds |= {one.round: int(one.bytes) for one in status.checkpoint.recent if one.manifest}
        if self._kills and status.clock >= self._kills[0].clock:
            kill = self._kills.pop(0)
            self._running.kill(kill.target)
            self._struck.append({"target": kill.target, "clock": status.clock, "at": now})

    def _over(self) -> bool:
        if len(self._losses) >= MOST:
            return True
        waiting = any(not record.epoch or record.waiting or not record.load_seconds for record in self._status.failures)
        return not self._kills and not waiting and bool(self._losses) and self._losses[max(self._losses)] <= self._goal

    def _record(self) -> Record:
        clocks = sorted(self._losses)
        begin = self._ends[clocks[0]]
        return {
            "clocks": clocks,
            "losses": [self._losses[clock] for clock in clocks],
            "seconds": [self._ends[clock] - begin for clock in clocks],
            "kills": [{**one, "at": one["at"] - begin, "resumed": self._resumed(one) - begin} for one in self._struck],
            "detect": [one.detect_seconds for one in self._status.failures],
            "recover": [one.wait_seconds + one.commit_seconds + one.load_seconds for one in self._status.failures],
            "lost_pushes": sum(one.lost_pushes for one in self._status.failures),
            "written": sum(self._rounds.values()),
        }

    def _resumed(self, kill: dict[str, Any]) -> float:
        """When the next clock after a kill was closed."""
        return min((at for clock, at in self._ends.items() if clock > kill["clock"]), default=kill["at"])
