"""What many seeds came to, as data: reports of runs of other days and commits add up to one.

    python -m tests.simulation.report docs/results/simulation.json FILE...

adds what other runs have reported to the first file.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
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
        "ranges": join_ranges([*one["ranges"], *other["ranges"]]),
        "failed": sorted([*one["failed"], *other["failed"]]),
        **{name: round(one[name] + other[name], 3) for name in SUMS},
        **{f"{word}s": _sum_counts(one[f"{word}s"], other[f"{word}s"]) for word in TALLIES},
    }


def join_ranges(ranges: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """In order; those that follow upon each other at the same commit are one."""
    joined: list[dict[str, Any]] = []
    for played in sorted(ranges, key=_place):
        last = joined[-1] if joined else None
        if last is not None and played == {**last, "first": last["last"] + 1, "last": played["last"]}:
            last["last"] = played["last"]
        else:
            joined.append(dict(played))
    return joined


def _place(played: Mapping[str, Any]) -> tuple[str, int]:
    return played["scenario"], played["first"]


def add_files(into: Path, files: Iterable[Path]) -> Report:
    """Raises SystemExit when a seed is in two of them."""
    report = json.loads(into.read_text())
    for file in files:
        other = json.loads(file.read_text())
        for one in other["ranges"]:
            if is_played(report, one["scenario"], one["first"], one["last"]):
                raise SystemExit(
                    f"{file} has seeds {one['first']} to {one['last']} of {one['scenario']}, some of which"
                    f" {into} has already, or a file before it: leave it out, or play other seeds"
                )
        report = add_reports(report, other)
    into.write_text(json.dumps(report, indent=2) + "\n")
    return report


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


if __name__ == "__main__":
    sys.stdout.write(f"{seeds_of(add_files(Path(sys.argv[1]), map(Path, sys.argv[2:])))} seeds\n")
