"""All benchmarks, or those named: one table, and ``build/bench/report.json``.

python -m benchmarks.run [NAME ...] [--repeat N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import bare, blocks, calls, dense, distance, dump, persist, recover, sparse, tls, torch_rpc
from benchmarks.measure import BenchRow
from scar.version import __version__

OUTPUT = Path("build/bench/report.json")
BENCHMARKS: dict[str, Callable[[int], list[BenchRow]]] = {
    module.__name__.rpartition(".")[2]: module.measure_rows
    for module in (dense, bare, sparse, calls, distance, dump, persist, recover, blocks, tls, torch_rpc)
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Measure SCAR on this machine, each figure beside a yardstick."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; default: all"
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="pairs of measurements, of which the median counts"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    console = Console()
    rows: list[BenchRow] = []
    for name in options.names or BENCHMARKS:
        with console.status(f"{name} ..."):
            found = BENCHMARKS[name](max(1, options.repeat))
        if not found:
            console.print(f"{name}: left out, what it compares with is not installed", highlight=False)
        rows += found
    console.print(report_table(rows))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    report = {**describe_machine(), "rows": [row.as_json() for row in rows]}
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"Report: {OUTPUT}", highlight=False)
    return 0


def report_table(rows: Sequence[BenchRow]) -> Table:
    """The rows for a terminal; a ratio of 1 means as fast as the yardstick."""
    grid = Table(title="Speed against a yardstick of the same run (ratio: more is better)")
    for heading in ("what", "ours", "yardstick", "unit", "ratio"):
        grid.add_column(heading, justify="left" if heading in ("what", "unit") else "right")
    grid.add_column("against")
    for row in rows:
        against = f"{row.against} ({row.note})" if row.note else row.against
        grid.add_row(
            row.name, f"{row.ours:.4g}", f"{row.yardstick:.4g}", row.unit, f"{row.ratio:.2f}", against
        )
    return grid


def describe_machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
