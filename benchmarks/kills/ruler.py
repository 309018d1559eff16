"""The one ruler: lines of completed steps in, what a kill has cost out."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WARM_STEPS = 10  # left out of the time of a step


@dataclass(frozen=True)
class StepEvent:
    """``slot`` has completed ``step`` steps at ``time`` (monotonic seconds)."""

    time: float
    step: int
    slot: str


@dataclass(frozen=True)
class KillCost:
    """``step``: seconds before the first kill. ``lost``: seconds a kill has added to the run until its last
    step, ``gap``: the longest without a completed step after it, ``again``: steps done a second time; each
    for one kill.
    """

    step: float
    lost: float
    gap: float
    again: float


def read_events(folder: Path) -> list[StepEvent]:
    """Of all processes of a run, by time."""
    events = []
    for file in folder.glob("*.steps"):
        for line in file.read_text().splitlines():
            step, _, when = line.partition(" ")
            events.append(StepEvent(float(when), int(step), file.name.partition(".")[0]))
    return sorted(events, key=lambda event: event.time)


def passage_time(events: Sequence[StepEvent], step: int) -> float:
    """When the first process had completed ``step`` steps. Raises :class:`ValueError`."""
    for event in events:
        if event.step >= step:
            return event.time
    raise ValueError(f"no process has completed step {step}: read the logs of the run")


def measure_step(events: Sequence[StepEvent], last: int) -> float:
    """Seconds of a step, from the warm ones to ``last``."""
    return (passage_time(events, last) - passage_time(events, WARM_STEPS)) / (last - WARM_STEPS)


def measure_kills(events: Sequence[StepEvent], kills: Sequence[int], steps: int) -> KillCost:
    """``kills``: the completed steps at which a process was killed; steps before the first give the speed."""
    step = measure_step(events, kills[0])
    started = passage_time(events, kills[0])
    expected = (steps - kills[0]) * step
    lost = passage_time(events, steps) - started - expected
    after = [event.time for event in events if event.time >= started]
    gaps = [later - earlier for earlier, later in itertools.pairwise(after)]
    return KillCost(step, lost / len(kills), max(gaps), count_again(events) / len(kills))


def count_again(events: Sequence[StepEvent]) -> int:
    """Steps that a slot has completed more than once; the slot with the most counts."""
    reports = Counter((event.slot, event.step) for event in events)
    again: Counter[str] = Counter()
    for (slot, _), times in reports.items():
        again[slot] += times - 1
    return max(again.values(), default=0)


def goodput(lost: float, between: float) -> float:
    """The share of time that is progress when a failure that costs ``lost`` seconds comes after each
    ``between`` seconds of progress.
    """
    return between / (between + max(0.0, lost))


def describe_spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the smallest and the largest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
