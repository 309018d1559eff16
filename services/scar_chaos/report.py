"""Runs as JSON for programs and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from scar_chaos.run import Group, Run

COLUMNS = ("seed", "faults", ">failures", ">detect", ">recover", ">well after", ">survivors", ">rework", ">lost", "verdict")


def plain(run: Run, replay: str) -> dict[str, Any]:
    """What JSON knows. ``replay``: the command that plays this run again. Durations in seconds; -1: did not happen."""
    found = [_group(group) for group in run.groups]
    return {
        "seed": run.schedule.seed,
        "passed": run.passed,
        "replay": replay,
        "schedule": {"job": run.schedule.options, "faults": [asdict(fault) for fault in run.schedule.faults]},
        "worker_lives": run.workers,
        "violations": run.violations,
        "error": run.error,
        "seconds": round(run.seconds, 3),
        "groups": found,
    }


def _group(group: Group) -> dict[str, Any]:
    cost = {key: round(value, 4) for key, value in asdict(group.cost).items()}
    return {
        "faults": list(group.faults),
        "missed_moments": group.missed,
        "healed_seconds": round(group.healed, 3),
        **cost,
        "missing_blocks": group.verdict.missing,
        "doubled_blocks": group.verdict.doubled,
        "violations": list(group.verdict.violations),
    }


def table(runs: Sequence[Run]) -> Table:
    """One line for each group of faults."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for run in runs:
        for group in run.groups:
            made.add_row(*_cells(run, group))
        if run.error:
            made.add_row(str(run.schedule.seed), f"[bold red]{escape(run.error)}[/]")
    return made


def _cells(run: Run, group: Group) -> list[str]:
    cost = group.cost
    verdict = "[bold red]VIOLATED[/]" if group.verdict.violations else "[green]holds[/]"
    return [
        str(run.schedule.seed),
        "\n".join(group.faults) + (f"\n({group.missed} missed their moment)" if group.missed else ""),
        str(cost.failures),
        _seconds(cost.detect),
        _seconds(cost.recover),
        _seconds(group.healed),
        f"{cost.throughput:.0%}" if cost.throughput >= 0 else "-",
        f"{cost.rework:.2f}",
        str(cost.lost_pushes),
        verdict,
    ]


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0 else "-"
