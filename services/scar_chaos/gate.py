"""The release gate: seeded runs one after the other, a report of each, and one answer: did every guarantee hold?"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from scar_chaos.faults import Fault
from scar_chaos.report import plain, table
from scar_chaos.run import Run, run
from scar_chaos.schedule import Room, Schedule, drawn
from scar_chaos.targets import Target

PLAIN_WIDTH = 160  # columns when the output is no terminal

Save = Callable[[int, dict[str, Any]], None]


def _forget(_seed: int, _report: dict[str, Any]) -> None:
    """Nobody wants it."""


@dataclass(frozen=True)
class Plan:
    """``seed``: of the first run; ``runs``: how many, with the seeds that follow. ``again``: command that plays a seed again.

    ``report``: a file for all reports as JSON; None: none. ``output``: "text" or "json" on standard output.
    """

    seed: int
    runs: int
    again: str
    report: Path | None = None
    output: str = "text"


def play_all(
    plan: Plan, make: Callable[[Path], Target], room: Room, faults: Sequence[Fault] = (), save: Save = _forget
) -> bool:
    """True: all passed.

    ``make``: a target for one run, with a folder for its files. ``faults``: instead of drawn ones. ``save``: called with every
    report.
    """
    screen = Console(stderr=True, width=None if sys.stderr.isatty() else PLAIN_WIDTH, highlight=False)
    runs: list[Run] = []
    reports: list[dict[str, Any]] = []
    for seed in range(plan.seed, plan.seed + plan.runs):
        schedule = drawn(seed, room, faults)
        screen.print(f"[bold]{schedule}[/]")
        runs.append(_one(make, schedule, screen))
        reports.append(plain(runs[-1], plan.again.format(seed=seed)))
        save(seed, reports[-1])
        if plan.report is not None:
            plan.report.parent.mkdir(parents=True, exist_ok=True)
            plan.report.write_text(json.dumps(reports, indent=2) + "\n")
    _show(plan, runs, reports)
    for report in reports:
        if not report["passed"]:
            screen.print(f"[bold red]seed {report['seed']} failed[/]; play it again by: {report['replay']}")
    return all(report["passed"] for report in reports)


def _one(make: Callable[[Path], Target], schedule: Schedule, screen: Console) -> Run:
    """The files of a run that failed stay."""
    folder = Path(tempfile.mkdtemp(prefix=f"scar-chaos-{schedule.seed}-"))
    name = f"chaos-{schedule.seed}-{secrets.token_hex(3)}"  # a store has a job's name once
    done = run(make(folder), schedule, folder, lambda text: screen.print(f"  {text}"), name)
    if done.passed:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        screen.print(f"  [bold red]{done.error or 'a guarantee was violated'}[/]; what was recorded is in {folder}")
    return done


def _show(plan: Plan, runs: list[Run], reports: list[dict[str, Any]]) -> None:
    if plan.output == "json":
        sys.stdout.write(json.dumps(reports, indent=2) + "\n")
        return
    screen = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    screen.print(table(runs))
    failed = sum(not one.passed for one in runs)
    screen.print(f"{len(runs)} runs, {sum(len(one.groups) for one in runs)} groups of faults, {failed} failed")
