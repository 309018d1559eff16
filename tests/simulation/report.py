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
    """Of runs of one scenario. ``wall``: seconds that it took; ``commit``: of the sources."""
    tally: Counter[str] = Counter()
    for run in runs:
        tally.update(run.tally)
    return {
        "ranges": _ranges(runs, commit),
        "failed": sorted(run.seed for run in runs if run.wrong),
        "simulated_hours": round(sum(run.seconds for run in runs) / 3600, 3),
        "cpu_seconds": round(sum(run.cpu for run in runs), 1),
        "wall_seconds": round(wall, 1),
        **{f"{word}s": _counted(tally, f"{word} ") for word in TALLIES},
    }


def add_reports(one: Report, other: Report) -> Report:
    """Of different seeds."""
    return {
        "ranges": sorted([*one["ranges"], *other["ranges"]], key=_place),
        "failed": sorted([*one["failed"], *other["failed"]]),
        **{name: round(one[name] + other[name], 3) for name in SUMS},
        **{f"{word}s": _sum_counts(one[f"{word}s"], other[f"{word}s"]) for word in TALLIES},
    }


def _place(played: Mapping[str, Any]) -> tuple[str, int]:
    return played["scenario"], played["first"]


def seeds_of(report: Report) -> int:
    """How many were played."""
    return sum(played["last"] - played["first"] + 1 for played in report["ranges"])


def next_seed(report: Report, scenario: str) -> int:
    """After all that were played of this scenario."""
    return 1 + max((one["last"] for one in report["ranges"] if one["scenario"] == scenario), default=0)


def is_played(report: Report, scenario: str, first: int, last: int) -> bool:
    """Whether one of these seeds was."""
    ranges = [one for one in report["ranges"] if one["scenario"] == scenario]
    return any(one["first"] <= last and first <= one["last"] for one in ranges)


def speed_of(report: Report) -> float:
    """Simulated seconds per second of processor time."""
    cpu = report["cpu_seconds"]
    return float(round(3600 * report["simulated_hours"] / cpu, 1)) if cpu else 0.0


def _ranges(runs: Sequence[Run], commit: str) -> list[dict[str, Any]]:
    """Of seeds, those in a row together."""
    ordered = sorted(runs, key=lambda run: run.seed)
    rows = groupby(enumerate(ordered), lambda pair: pair[1].seed - pair[0])
    found = [[run for _, run in row] for _, row in rows]
    return [
        {"scenario": row[0].scenario, "first": row[0].seed, "last": row[-1].seed, "commit": commit}
        for row in found
    ]


def _counted(tally: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): tally[key] for key in sorted(tally) if key.startswith(prefix)}


def _sum_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in sorted({*one, *other})}
