"""All benchmarks, or those named: one table, and ``build/bench/report.json``.

python -m benchmarks.run [NAME ...] [--repeat N] [--record FILE]

Each ratio stands beside the one that is recorded in ``docs/results/bench.json``; ``--record`` writes what is
measured there, or into another file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from benchmarks import bare, blocks, calls, dense, distance, dump, persist, recover, sparse, tls, torch_rpc
from benchmarks.measure import BenchRow
from benchmarks.record import (
    RECORD,
    BenchMachine,
    BenchRecord,
    RecordedRow,
    ratio_change,
    read_record,
    recorded,
    write_record,
)
from scar.version import __version__
from scar_cli.output import make_console

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
    parser.add_argument("--record", type=Path, help="write the ratios to this file, others in it stay")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    console = make_console()
    known = read_record(options.record or RECORD)
    load, began, machine = os.getloadavg()[0], time.monotonic(), BenchMachine.this()
    found = {}
    for name in options.names or BENCHMARKS:
        with console.status(f"{name} ..."):
            found[name] = BENCHMARKS[name](max(1, options.repeat))
        if not found[name]:
            console.print(f"{name}: left out, what it compares with is not installed")
    console.print(report_table(found, known))
    told = f"{time.monotonic() - began:.0f} s; load before: {load:.1f}{_tcp_words([machine.tcp])}"
    console.print(f"{told}. {describe_record(known)}")
    write_report(found)
    if options.record:
        made = time.strftime("%Y-%m-%d", time.gmtime())
        new = [recorded(name, row, made, load, machine) for name, some in found.items() for row in some]
        write_record(options.record, known, new)
    return 0


FoundRows = Mapping[str, Sequence[BenchRow]]  # by benchmark


def write_report(found: FoundRows) -> None:
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    rows = [row.as_json() for some in found.values() for row in some]
    OUTPUT.write_text(json.dumps({**describe_machine(), "rows": rows}, indent=1) + "\n")


def report_table(found: FoundRows, known: BenchRecord) -> Table:
    """The rows for a terminal; a ratio of 1 means as fast as the yardstick."""
    grid = Table(title="Speed against a yardstick of the same run (ratio: more is better)")
    for heading in ("what", "ours", "yardstick", "unit", "ratio", "recorded", "change"):
        grid.add_column(heading, justify="left" if heading in ("what", "unit") else "right")
    grid.add_column("against")
    for benchmark, rows in found.items():
        for row in rows:
            against = f"{row.against} ({row.note})" if row.note else row.against
            figures = f"{row.ours:.4g}", f"{row.yardstick:.4g}", row.unit, f"{row.ratio:.2f}"
            grid.add_row(row.name, *figures, *_compared(row, known.get((benchmark, row.name))), against)
    return grid


def _compared(row: BenchRow, before: RecordedRow | None) -> tuple[str, str]:
    if before is None:
        return "-", "-"
    return f"{before.ratio:.2f}", f"{ratio_change(row.ratio, before.ratio):+.0%}"


def describe_record(known: BenchRecord) -> str:
    """When and where it was made."""
    if not known:
        return "No ratio is recorded; make bench RECORD=docs/results/bench.json does it"
    made = sorted({row.made for row in known.values()})
    loads = [row.load for row in known.values()]
    cores = sorted({row.cores for row in known.values()})
    return (
        f"Recorded: {' to '.join(dict.fromkeys((made[0], made[-1])))}, on {', '.join(map(str, cores))} cores,"
        f" load before {min(loads):.1f} to {max(loads):.1f}{_tcp_words(row.tcp for row in known.values())}"
    )


def _tcp_words(controls: Iterable[str]) -> str:
    """By which control of congestion TCP was measured; empty: it is not known."""
    known = sorted({*controls} - {""})
    return f", TCP by {' or '.join(known)}" if known else ""


def describe_machine() -> dict[str, object]:
    """What the figures were measured on."""
    machine = BenchMachine.this()
    return {
        "version": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": machine.cores,
        "tcp": machine.tcp,
    }


if __name__ == "__main__":
    raise SystemExit(main())
