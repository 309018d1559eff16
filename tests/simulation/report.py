"""What many seeds came to, as data: reports of runs of other days and commits add up to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from tests.simulation.simulated import Run

Report = Mapping[str, Any]

TALLIES = ("fault", "pair", "rpc", "failpoint")  # first words of what a run counts
SUMS = ("simulated_hours", "cpu_seconds", "wall_seconds")


def make_report(runs: Sequence[Run], wall: float, commit: str) -> Report:
    """``wall``: seconds that it took; ``commit``: of the sources that were played."""
    tally: Counter[str] = Counter()
    for run in runs:
        tally.update(run.tally)
    return {
        "ranges": _ranges(sorted(run.seed for run in runs), commit),
        "failed": sorted(run.seed for run in runs if run.wrong),
        "simulated_hours": round(sum(run.seconds for run in runs) / 3600, 3),
        "cpu_seconds": round(sum(run.cpu for run in runs), 1),
        "wall_seconds": round(wall, 1),
        **{f"{word}s": _counted(tally, f"{word} ") for word in TALLIES},
    }


def add_reports(one: Report, other: Report) -> Report:
    """Of different seeds."""
    return {
        "ranges": sorted([*one["ranges"], *other["ranges"]], key=lambda played: int(played["first"])),
        "failed": sorted([*one["failed"], *other["failed"]]),
        **{name: round(one[name] + other[name], 3) for name in SUMS},
        **{f"{word}s": _sum_counts(one[f"{word}s"], other[f"{word}s"]) for word in TALLIES},
    }


def seeds_of(report: Report) -> int:
    """How many were played."""
    return sum(played["last"] - played["first"] + 1 for played in report["ranges"])


def next_seed(report: Report) -> int:
    """After all that were played."""
    return 1 + max((played["last"] for played in report["ranges"]), default=0)


def is_played(report: Report, first: int, last: int) -> bool:
    """Whether one of these seeds was."""
    return any(played["first"] <= last and first <= played["last"] for played in report["ranges"])


def speed_of(report: Report) -> float:
    """Simulated seconds per second of processor time."""
    cpu = report["cpu_seconds"]
    return float(round(3600 * report["simulated_hours"] / cpu, 1)) if cpu else 0.0


def _ranges(seeds: Sequence[int], commit: str) -> list[dict[str, Any]]:
    """Of seeds in order, those in a row together."""
    rows = groupby(enumerate(seeds), lambda pair: pair[1] - pair[0])
    found = [[seed for _, seed in row] for _, row in rows]
    return [{"first": row[0], "last": row[-1], "commit": commit} for row in found]


def _counted(tally: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): tally[key] for key in sorted(tally) if key.startswith(prefix)}


def _sum_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in sorted({*one, *other})}
