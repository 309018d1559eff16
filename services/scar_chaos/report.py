"""Runs as JSON for programs and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from rich.markup import escape
from rich.table import Table

from scar_chaos.results import GroupResult, RunResult

COLUMNS = (
    "seed",
    "faults",
    ">failures",
    ">detect",
    ">recover",
    ">well after",
    ">survivors",
    ">rework",
    ">lost",
    "verdict",
)


def report_json(run: RunResult, replay: str) -> dict[str, Any]:
    """What JSON knows. ``replay``: the command that plays this run again.

    Durations in seconds; -1: did not happen.
    """
    return {
        "seed": run.schedule.seed,
        "passed": run.passed,
        "replay": replay,
        "schedule": {"job": run.schedule.options, "faults": [asdict(fault) for fault in run.schedule.faults]},
        "worker_lives": run.workers,
        "violations": run.violations,
        "error": run.error,
        "seconds": round(run.seconds, 3),
        "groups": [_group_json(group) for group in run.groups],
    }


def _group_json(group: GroupResult) -> dict[str, Any]:
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


def report_table(runs: Sequence[RunResult]) -> Table:
    """One line for each group of faults."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=justify, overflow="fold")
    for run in runs:
        for group in run.groups:
            table.add_row(*_group_cells(run, group))
        if run.error:
            table.add_row(str(run.schedule.seed), f"[bold red]{escape(run.error)}[/]")
    return table


def _group_cells(run: RunResult, group: GroupResult) -> list[str]:
    cost = group.cost
    faults = "\n".join(group.faults)
    if group.missed:
        faults += f"\n({group.missed} missed their moment)"
    return [
        str(run.schedule.seed),
        faults,
        str(cost.failures),
        _format_seconds(cost.detect),
        _format_seconds(cost.recover),
        _format_seconds(group.healed),
        f"{cost.throughput:.0%}" if cost.throughput >= 0 else "-",
        f"{cost.rework:.2f}",
        str(cost.lost_pushes),
        "[bold red]VIOLATED[/]" if group.verdict.violations else "[green]holds[/]",
    ]


def _format_seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0 else "-"
