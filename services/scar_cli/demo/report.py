"""What the runs showed: figures, checks and the report. Pure: runs in, report out.

*Rework* is what a failure cost in iterations: a run's iterations to epsilon minus those of its twin without a
failure. The twin is exact, since synchronous training with one seed is repeatable to the last bit; that this
holds is one of the checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

BlockCounts = NDArray[np.int64]


@dataclass(frozen=True)
class ServerKill:
    """One SIGKILL. ``iteration``: iterations that were complete when it was sent."""

    shard: str
    pid: int
    iteration: int


@dataclass(frozen=True)
class DemoFailure:
    """One record of the ledger.

    Seconds: from the last sign of life to the report (-1: unknown), from the report until all is served.
    """

    detect_seconds: float
    recover_seconds: float
    lost_blocks: int
    delta_norm: float
    lost_pushes: int


@dataclass(frozen=True)
class PushTally:
    """Counts of the table into which each worker adds one per iteration, by block.

    ``counted``: in the model at the end; ``lost``: acknowledged and gone, as the ledger says; ``expected``:
    workers times iterations; ``went_back``: blocks of surviving shards that were seen with a smaller value
    than before; ``void``: how many additions to a block may be missing because a rollback made them void
    before they were acknowledged.
    """

    counted: BlockCounts
    lost: BlockCounts
    expected: int
    went_back: int
    void: int = 0


@dataclass(frozen=True)
class DemoRun:
    """One training. ``losses[i]``: loss of iteration i, not a number if it has none.

    ``pause_seconds``: from the kill to the next complete iteration.
    """

    name: str
    losses: Sequence[float]
    tally: PushTally
    seconds: float
    killed: Sequence[ServerKill] = ()
    failures: Sequence[DemoFailure] = ()
    pause_seconds: float = 0.0

    def iterations(self, epsilon: float) -> int | None:
        """Iterations until the loss was at most epsilon; None when it never was."""
        return next((number for number, loss in enumerate(self.losses, 1) if loss <= epsilon), None)


@dataclass(frozen=True)
class DemoRow:
    """A run in figures; None where there is nothing to measure."""

    name: str
    iterations: int | None
    rework_iterations: int | None
    detect_seconds: float | None
    recover_seconds: float | None
    pause_seconds: float | None
    failures: int
    lost_blocks: int
    delta_norm: float | None
    lost_pushes: int
    final_loss: float | None
    seconds: float


@dataclass(frozen=True)
class DemoCheck:
    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class DemoReport:
    """Everything that the demo found out.

    ``runs[0]`` is the twin without a failure, ``runs[1]`` the partial recovery.
    """

    dataset: str
    origin: str
    epsilon: float
    seed: int
    runs: Sequence[DemoRun]
    rows: Sequence[DemoRow] = field(init=False)
    checks: Sequence[DemoCheck] = field(init=False)

    def __post_init__(self) -> None:
        twin = self.runs[0].iterations(self.epsilon)
        object.__setattr__(self, "rows", [run_row(run, self.epsilon, twin) for run in self.runs])
        object.__setattr__(self, "checks", list(_check_runs(self.runs, self.epsilon)))

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def document(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        losses = {run.name: [None if math.isnan(loss) else loss for loss in run.losses] for run in self.runs}
        return {
            "dataset": self.dataset,
            "origin": self.origin,
            "epsilon": self.epsilon,
            "seed": self.seed,
            "killed": [{"run": run.name, **asdict(kill)} for run in self.runs for kill in run.killed],
            "runs": [{**asdict(entry), "losses": losses[entry.name]} for entry in self.rows],
            "checks": [asdict(check) for check in self.checks],
            "passed": self.passed,
        }


def run_row(run: DemoRun, epsilon: float, twin: int | None) -> DemoRow:
    """A run in figures.

    ``twin``: iterations to epsilon without a failure. Of several failures the longest times count.
    """
    needed = run.iterations(epsilon)
    norms = [failure.delta_norm for failure in run.failures]
    detected = [failure.detect_seconds for failure in run.failures]
    return DemoRow(
        name=run.name,
        iterations=needed,
        rework_iterations=None if needed is None or twin is None else needed - twin,
        detect_seconds=max((seconds for seconds in detected if seconds >= 0), default=None),
        recover_seconds=max((failure.recover_seconds for failure in run.failures), default=None),
        pause_seconds=run.pause_seconds if run.killed else None,
        failures=len(run.failures),
        lost_blocks=sum(failure.lost_blocks for failure in run.failures),
        delta_norm=None if any(norm < 0 for norm in norms) else math.hypot(*norms),
        lost_pushes=sum(failure.lost_pushes for failure in run.failures),
        final_loss=run.losses[-1] if run.losses else None,
        seconds=run.seconds,
    )


def _check_runs(runs: Sequence[DemoRun], epsilon: float) -> list[DemoCheck]:
    twin = runs[0]
    partial = runs[1]
    checks = [_check_converged(runs, epsilon), _check_never_sooner(runs, epsilon), _check_same_kill(runs)]
    checks += [_check_same_curve(run, twin) for run in runs if run.killed]
    checks.append(_check_never_back(partial))
    return checks + [_check_accounted(run) for run in runs]


def _check_converged(runs: Sequence[DemoRun], epsilon: float) -> DemoCheck:
    missed = [run.name for run in runs if run.iterations(epsilon) is None]
    return DemoCheck(
        "every run reaches epsilon",
        not missed,
        f"not reached: {', '.join(missed)}" if missed else f"loss <= {epsilon}",
    )


def _check_never_sooner(runs: Sequence[DemoRun], epsilon: float) -> DemoCheck:
    """A failure that saves iterations would be one whose losses are not those of all data."""
    needed = [(run.name, run.iterations(epsilon)) for run in runs]
    twin = needed[0][1]
    sooner = [
        f"{name}: {twin - found} iterations sooner"
        for name, found in needed
        if found and twin and found < twin
    ]
    return DemoCheck(
        "no failure saves iterations", not sooner, ", ".join(sooner) or "no rework is below zero"
    )


def _check_same_kill(runs: Sequence[DemoRun]) -> DemoCheck:
    kills = [(kill.shard, kill.iteration) for run in runs if run.killed for kill in run.killed]
    blows = {tuple((kill.shard, kill.iteration) for kill in run.killed) for run in runs if run.killed}
    detail = ", ".join(f"{shard} after iteration {iteration}" for shard, iteration in dict.fromkeys(kills))
    return DemoCheck(
        "the same servers are killed at the same iteration", len(blows) == 1, detail or "nothing was killed"
    )


def _check_same_curve(run: DemoRun, twin: DemoRun) -> DemoCheck:
    upto = min(kill.iteration for kill in run.killed)
    name = f"{run.name}: bit for bit like no failure up to the kill"
    pairs = list(zip(run.losses[:upto], twin.losses[:upto], strict=False))
    differs = next((number for number, (one, other) in enumerate(pairs, 1) if one != other), 0)
    complete = len(pairs) == upto
    if differs or not complete:
        return DemoCheck(
            name,
            False,
            f"differs in iteration {differs}" if differs else f"{len(pairs)} of {upto} losses are known",
        )
    return DemoCheck(name, True, f"{upto} iterations")


def _check_never_back(run: DemoRun) -> DemoCheck:
    back = run.tally.went_back
    detail = f"{back} blocks went back" if back else "no block went back"
    return DemoCheck(f"{run.name}: values of surviving servers never go back", back == 0, detail)


def _check_accounted(run: DemoRun) -> DemoCheck:
    """Each push of each worker is in the model once, or in the ledger as lost: by block of the tally."""
    tally = run.tally
    surplus = tally.counted + tally.lost - tally.expected
    twice = int(np.count_nonzero(surplus > 0))
    missing = int(np.count_nonzero(surplus < -tally.void))
    detail = (
        f"{tally.expected} additions to each of {len(surplus)} blocks, {int(tally.lost.sum())} in the ledger"
    )
    if tally.void:
        detail += f", up to {-int(surplus.min())} void and never acknowledged"
    if twice or missing:
        detail = f"{twice} blocks hold too much, {missing} blocks too little; {detail}"
    return DemoCheck(
        f"{run.name}: every acknowledged push counts once or is in the ledger",
        not twice and not missing,
        detail,
    )
