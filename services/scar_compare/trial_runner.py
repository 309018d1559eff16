"""One training of one strategy under the kills of a comparison, and what it cost."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scar.errors import DeadlineExceeded, Internal
from scar.wire.codec import member_from_proto
from scar_admin.status import ClusterStatus, ask_from
from scar_compare import training_file
from scar_compare.backends import RunningJob, train_job
from scar_compare.kill_schedule import KillAtClock
from scar_compare.records import TrialRecord
from scar_compare.strategy_options import UNDISTURBED, job_options
from scar_compare.trial_plans import recorded_as
from scar_kube.where import Where
from scar_runtime.store.failure_codec import recovery_seconds

SHARDS = 4
POLL_SECONDS = 0.02
TRIAL_SECONDS = 300.0  # a training that takes longer is broken
MAX_LOSSES = 600  # clocks with a loss, after which a training is given up


@recorded_as("Plan")
@dataclass(frozen=True)
class StrategyTrial:
    """``goal``: the loss that counts as converged; ``where``: a release, or None for this machine."""

    strategy: str
    kills: tuple[KillAtClock, ...]
    goal: float
    where: Where | None = None


@recorded_as("carry_out")
def run_trials(trial: StrategyTrial, seed: int, numbers: Sequence[int]) -> Iterator[TrialRecord]:
    """Train once for each number, which is added to ``seed``; one record each."""
    options = {} if trial.strategy == UNDISTURBED else job_options(trial.strategy)
    for number in numbers:
        name = f"compare-{secrets.token_hex(4)}"
        job = replace(training_file.job, name=name, seed=seed + number, shards=SHARDS, **options)
        with train_job(job, trial.where) as running:
            yield {"trial": number, **_TrialMonitor(running, trial).follow_job()}


class _TrialMonitor:
    """Watches a job, kills what is to be killed, and keeps what was seen."""

    def __init__(self, running: RunningJob, trial: StrategyTrial) -> None:
        self._running = running
        self._goal = trial.goal
        self._kills = list(trial.kills) if trial.strategy != UNDISTURBED else []
        self._killed: list[dict[str, Any]] = []
        self._dead: set[str] = set()  # keys of members that were killed; the ledger gets to name them all
        self._losses: dict[int, float] = {}
        self._loss_times: dict[int, float] = {}
        self._closed: dict[int, float] = {}  # clocks that were closed -> when that was seen first
        self._round_bytes: dict[int, int] = {}
        self._status = ClusterStatus()

    def follow_job(self) -> TrialRecord:
        """Return when the loss is low enough, all kills are over and the ledger has their recoveries."""
        deadline = time.monotonic() + TRIAL_SECONDS
        while not self._is_over():
            self._look()
            if failed := self._running.failed_workers():
                raise Internal("; ".join(failed), "Its log may say why")
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"not converged within {TRIAL_SECONDS:g} s", "; ".join(self._status.problems)
                )
            time.sleep(POLL_SECONDS)
        return self._make_record()

    def _look(self) -> None:
        self._status = status = self._running.status(ask_from(self._losses))
        now = time.monotonic()
        self._closed.setdefault(status.clock, now)
        for clock, loss in status.losses.items():
            self._losses[clock] = loss
            self._loss_times.setdefault(clock, now)
        if status.checkpoint is not None:
            self._round_bytes |= {
                one.round: int(one.bytes) for one in status.checkpoint.recent if one.manifest
            }
        if self._kills and status.clock >= self._kills[0].clock:
            kill = self._kills.pop(0)
            self._dead |= _keys_in_epoch(status, self._running.member(kill.target))
            self._running.kill(kill.target)
            self._killed.append({"target": kill.target, "clock": status.clock, "at": now})

    def _is_over(self) -> bool:
        if len(self._losses) >= MAX_LOSSES:
            return True
        if self._kills or not self._losses or self._losses[max(self._losses)] > self._goal:
            return False
        failures = self._status.failures
        return self._dead <= {key for record in failures for key in record.members} and all(
            record.epoch and not record.waiting and record.load_seconds for record in failures
        )

    def _make_record(self) -> TrialRecord:
        clocks = sorted(self._losses)
        begin = self._loss_times[clocks[0]]
        kills = [
            {**kill, "at": kill["at"] - begin, "resumed": self._resumed_at(kill, begin)}
            for kill in self._killed
        ]
        failures = self._status.failures
        return {
            "clocks": clocks,
            "losses": [self._losses[clock] for clock in clocks],
            "seconds": [self._loss_times[clock] - begin for clock in clocks],
            "kills": kills,
            "detect": [one.detect_seconds for one in failures],
            "recover": [recovery_seconds(one) for one in failures],
            "lost_pushes": sum(one.lost_pushes for one in failures),
            "written": sum(self._round_bytes.values()),
        }

    def _resumed_at(self, kill: dict[str, Any], begin: float) -> float | None:
        """Seconds from ``begin`` until the next clock after a kill was closed, which need not have a loss;
        None: it was not seen.
        """
        later = [at - begin for closed, at in self._closed.items() if closed - 1 > kill["clock"]]
        return min(later, default=None)


def _keys_in_epoch(status: ClusterStatus, name: str) -> set[str]:
    """Keys of the members with this name that the newest epoch has; of others the ledger says nothing."""
    if status.epoch is None:
        return set()
    members = [member_from_proto(one) for one in (*status.epoch.shards, *status.epoch.workers)]
    return {member.key for member in members if member.name == name}
