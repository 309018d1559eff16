"""How things are measured: ours and the yardstick in turns, several times, the median of each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

WARM_UPS = 2

Action = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One figure. ``ratio``: speed of ours by the speed of the yardstick; 1 is as fast, more is better."""

    name: str
    ours: float
    yardstick: float
    ratio: float
    unit: str
    against: str
    note: str = ""

    def document(self) -> dict[str, object]:
        return asdict(self)


def rate(name: str, amount: float, times: Pair, unit: str, against: str) -> Row:
    """``amount`` per second, e.g. bytes / 1e9 for GB/s."""
    return Row(name, amount / times.ours, amount / times.yardstick, times.yardstick / times.ours, unit, against)


def duration(name: str, times: Pair, unit: str, against: str, note: str = "") -> Row:
    """Time, in ``unit`` ("s", "ms", "us")."""
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    return Row(name, times.ours * scale, times.yardstick * scale, times.yardstick / times.ours, unit, against, note)


@dataclass(frozen=True)
class Pair:
    """Median seconds of both."""

    ours: float
    yardstick: float


def paired(ours: Action, yardstick: Action, repeat: int) -> Pair:
    """Both in turns, so that a busy moment of the machine meets both."""
    for _ in range(WARM_UPS):
        ours()
        yardstick()
    times = [(seconds(ours), seconds(yardstick)) for _ in range(repeat)]
    return Pair(statistics.median(one for one, _ in times), statistics.median(other for _, other in times))


def seconds(action: Action) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
