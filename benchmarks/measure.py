"""How things are measured: ours and the yardstick in turns, several times, the median of each."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

WARM_UPS = 2

TimedAction = Callable[[], object]


@dataclass(frozen=True)
class BenchRow:
    """One figure. ``ratio``: speed of ours by the speed of the yardstick; 1 is as fast, more is better."""

    name: str
    ours: float
    yardstick: float
    ratio: float
    unit: str
    against: str
    note: str = ""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def rate_row(name: str, amount: float, times: Pair, unit: str, against: str) -> BenchRow:
    """``amount`` per second, e.g. bytes / 1e9 for GB/s."""
    return BenchRow(
        name, amount / times.ours, amount / times.yardstick, times.yardstick / times.ours, unit, against
    )


def duration_row(name: str, times: Pair, unit: str, against: str, note: str = "") -> BenchRow:
    """Time, in ``unit`` ("s", "ms", "us")."""
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    return BenchRow(
        name, times.ours * scale, times.yardstick * scale, times.yardstick / times.ours, unit, against, note
    )


@dataclass(frozen=True)
class Pair:
    """Median seconds of both."""

    ours: float
    yardstick: float


def time_pairs(ours: TimedAction, yardstick: TimedAction, repeat: int) -> Pair:
    """Both in turns, so that a busy moment of the machine meets both."""
    for _ in range(WARM_UPS):
        ours()
        yardstick()
    times_ours = []
    times_yardstick = []
    for _ in range(repeat):
        times_ours.append(time_action(ours))
        times_yardstick.append(time_action(yardstick))
    return Pair(statistics.median(times_ours), statistics.median(times_yardstick))


def time_action(action: TimedAction) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def processor_seconds_of(pid: int) -> float:
    """User and system time of a process so far; Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))
