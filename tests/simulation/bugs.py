"""Whether seeds find bugs that are put into the services: mended ones that come back, and fresh edits.

    python -m tests.simulation.bugs [B1 B7 ...] [--old] [--fresh] [--seeds 1000] [--first 1]

Plays seeds of the scenario in which a bug is looked for until one fails, and plays that seed again without
the bug, which must not fail. Exit code 1: a bug was not found, or a seed fails without it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tests.simulation.fresh_edits import FRESH_EDITS
from tests.simulation.old_bugs import OLD_BUGS
from tests.simulation.simulated import Run, simulate

CHUNK = 5  # seeds of one process
SHOWN = 120  # characters of what was wrong

# where each bug is looked for, and a seed that has found it
HUNTS: dict[str, tuple[str, int]] = {
    "B1": ("chain", 1),
    "B2": ("lost_shard", 3),
    "B3": ("crowd", 1),
    "B5-claim": ("two_clusters", 1),
    "B5-gone": ("two_clusters", 1),
    "B5-silent": ("two_clusters", 1),
    "B6": ("loads", 1),
    "B7": ("recovery", 11),
    "B8": ("two_recoveries", 2),
    "B9": ("lone_worker", 9),
    "B11": ("two_checkpoints", 1),
    "repeats-last": ("answers", 1),
    "overwrites": ("two_recoveries", 1),
    "skips-lease": ("leases", 3),
    "own-lease": ("longer_leases", 8),
    "late-clock": ("last_clocks", 1),
    "counts-ahead": ("copies", 1),
    "drops-sealed": ("successors", 3),
    "promotes-saved": ("chain", 1),
    "closes-early": ("deaths", 2),
    "saves-unsettled": ("debts", 9),
    "commits-behind": ("lone_checkpoint", 1),
    "accuses-once": ("absences", 1),
    "voids-neighbours": ("server_deaths_asp", 18),
    "frees-after-answer": ("server_deaths_asp", 2),
}


@dataclass(frozen=True)
class Found:
    """``tried``: seeds; ``run``: the one that failed, if any; ``clean``: what is wrong with that seed without
    the bug.
    """

    name: str
    scenario: str
    tried: int
    cpu: float
    run: Run | None
    clean: str = ""


def hunt(name: str, first: int, seeds: int) -> Found:
    """Play seeds with this bug until one fails."""
    scenario = HUNTS[name][0] if name in HUNTS else "swarm"
    tried, cpu = 0, 0.0
    for run in _runs(scenario, name, first, seeds):
        tried += 1
        cpu += run.cpu
        if run.wrong:
            return Found(name, scenario, tried, cpu, run, simulate(scenario, first=run.seed)[0].wrong)
    return Found(name, scenario, tried, cpu, None)


def _runs(scenario: str, bug: str, first: int, seeds: int) -> Iterator[Run]:
    for begin in range(first, first + seeds, CHUNK):
        count = min(CHUNK, first + seeds - begin)
        yield from simulate(scenario, first=begin, seeds=count, undo=bug, stop=True)


def show(screen: Console, results: Sequence[Found]) -> None:
    table = Table("bug", "scenario", "seeds", "found by", "CPU s", "what was wrong", "without the bug")
    for one in results:
        seed = str(one.run.seed) if one.run is not None else "no seed"
        wrong = one.run.wrong[:SHOWN] if one.run is not None else ""
        clean = (one.clean[:SHOWN] or "fine") if one.run is not None else ""
        table.add_row(one.name, one.scenario, str(one.tried), seed, f"{one.cpu:.0f}", wrong, clean)
    screen.print(table)


def main(argv: Sequence[str]) -> int:
    fresh = [one.name for one in FRESH_EDITS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.bugs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="of bugs; all")
    parser.add_argument("--old", action="store_true", help="those that were mended")
    parser.add_argument("--fresh", action="store_true", help="edits that were never tried before")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="for each bug, at most")
    arguments = parser.parse_args(argv)
    chosen = [*arguments.names, *(OLD_BUGS if arguments.old else ()), *(fresh if arguments.fresh else ())]
    screen = Console(width=None if sys.stdout.isatty() else 200)
    results = []
    for name in chosen or [*OLD_BUGS, *fresh]:
        results.append(hunt(name, arguments.first, arguments.seeds))
        show(screen, results[-1:])
    show(screen, results)
    return int(any(one.run is None or one.clean for one in results))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
