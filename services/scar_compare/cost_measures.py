"""What a training cost, in numbers: each measure takes its record, its undisturbed twin's, and the goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from scar_compare.records import TrialRecord
from scar_compare.statistics import Estimate, mean_estimate

NEAR = 5  # clocks after a kill in which the loss is looked at
MEGABYTE = 1e6


def _goal_position(record: TrialRecord, goal: float) -> int:
    """Position of the first clock whose loss is at the goal, or of the last one."""
    for position, loss in enumerate(record["losses"]):
        if loss <= goal:
            return position
    return len(record["losses"]) - 1


def _iterations(record: TrialRecord, _twin: TrialRecord, goal: float) -> float:
    return float(record["clocks"][_goal_position(record, goal)] + 1)


def _rework(record: TrialRecord, twin: TrialRecord, goal: float) -> float:
    return _iterations(record, twin, goal) - _iterations(twin, twin, goal)


def _seconds(record: TrialRecord, _twin: TrialRecord, goal: float) -> float:
    return float(record["seconds"][_goal_position(record, goal)])


def _loss_rise(record: TrialRecord, _twin: TrialRecord, _goal: float) -> float | None:
    """How much the loss rises at a kill, at worst."""
    by_clock = dict(zip(record["clocks"], record["losses"], strict=True))
    rises = []
    for kill in record["kills"]:
        before = [loss for clock, loss in by_clock.items() if clock < kill["clock"]]
        after = [loss for clock, loss in by_clock.items() if kill["clock"] <= clock <= kill["clock"] + NEAR]
        if before and after:
            rises.append(max(after) - before[-1])
    return max(rises, default=None)


def _pause(record: TrialRecord, _twin: TrialRecord, _goal: float) -> float | None:
    """Seconds from a kill to the end of the next clock, at worst."""
    pauses = [kill["resumed"] - kill["at"] for kill in record["kills"] if kill["resumed"] is not None]
    return max(pauses, default=None)


def _longest(phase: str, record: TrialRecord, _twin: TrialRecord, _goal: float) -> float | None:
    """Seconds of a phase of recovery, of the failure that took longest; below 0: it was not measured."""
    return max((seconds for seconds in record[phase] if seconds >= 0), default=None)


def _lost_pushes(record: TrialRecord, _twin: TrialRecord, _goal: float) -> float:
    return float(record["lost_pushes"])


def _written_megabytes(record: TrialRecord, _twin: TrialRecord, _goal: float) -> float:
    return float(record["written"] / MEGABYTE)


CostMeasure = Callable[[TrialRecord, TrialRecord, float], float | None]  # None: there is no such number
MEASURES: Mapping[str, CostMeasure] = {
    "iterations": _iterations,
    "rework": _rework,
    "seconds": _seconds,
    "rise of the loss": _loss_rise,
    "pause, s": _pause,
    "detect, s": partial(_longest, "detect"),
    "recover, s": partial(_longest, "recover"),
    "lost pushes": _lost_pushes,
    "written, MB": _written_megabytes,
}


def estimate_costs(
    records: Sequence[TrialRecord], twins: Mapping[int, TrialRecord], goal: float
) -> dict[str, Estimate | None]:
    """Every measure over the trials of one strategy; ``twins``: undisturbed trainings, by trial."""
    estimates: dict[str, Estimate | None] = {}
    for name, measure in MEASURES.items():
        values = [measure(record, twins[int(record["trial"])], goal) for record in records]
        known = [value for value in values if value is not None]
        estimates[name] = mean_estimate(known) if known else None
    return estimates
