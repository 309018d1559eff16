"""What an experiment is: its options, the trials it consists of, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scar_compare.figures import Figure
from scar_compare.records import TrialRecord


@dataclass(frozen=True)
class ExperimentOptions:
    """What a user asks for. ``trials`` 0, empty ``panels``, ``lost`` or ``fractions``: the experiment's own.

    ``lost``: fractions of the blocks that a failure takes. ``fractions``: r, the share that a round saves.
    ``period``: C, in iterations. ``mean``, ``gain``, ``horizon``, ``pending``, ``unweighted`` and
    ``block_rows`` as for :class:`experiments.recovery_trials.TrajectoryTrials`. ``recorded``: run nothing,
    report what is recorded.
    """

    trials: int = 0
    seed: int = 1
    out: Path = Path("build/experiments")
    jobs: int = 1
    quick: bool = False
    panels: tuple[str, ...] = ()
    lost: tuple[float, ...] = ()
    fractions: tuple[float, ...] = ()
    period: int = 8
    mean: float = 0.5
    gain: float | None = None
    horizon: int = 60
    pending: bool = False
    unweighted: bool = False
    block_rows: int = 1
    recorded: bool = False


@dataclass(frozen=True)
class TrialBatch:
    """Trials that run together. ``work(missing)`` yields one record for each, and must survive pickling.

    ``alone``: it starts processes of its own or measures time, so nothing may run beside it.
    """

    panel: str
    trials: tuple[int, ...]
    work: Callable[[tuple[int, ...]], Iterator[TrialRecord]]
    alone: bool = False


@dataclass(frozen=True)
class ExperimentReport:
    """``summary``: for the JSON file; ``rows``: the table, headings first."""

    summary: dict[str, Any]
    rows: Sequence[Sequence[str]]
    figure: Figure


class Experiment(Protocol):
    """A module or an object that :func:`scar_compare.runner.run_experiment` can run."""

    NAME: str

    def plan_batches(self, options: ExperimentOptions) -> list[TrialBatch]: ...

    def make_report(
        self, options: ExperimentOptions, records: Sequence[TrialRecord], /
    ) -> ExperimentReport: ...
