"""Fuzzes all decoders, or one, in several processes, and prints a table.

    python -m tests.fuzz --inputs 10000000 [--target epoch] [--seed 7]
    python -m tests.fuzz --inputs 10000000 --report docs/results/fuzz.json   # what this file lacks of them
    python -m tests.fuzz --replay .fuzz/epoch/0123456789abcdef

Exit code 1: an input showed a defect. It is stored below .fuzz/, and the line that replays it is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from scar.errors import use_one_of
from tests.fuzz.engine import BadInput, Fuzzer, FuzzReport, store_input
from tests.fuzz.record import SEED, FuzzRecord
from tests.fuzz.targets import TARGETS

BATCH = 50_000  # inputs after which a batch begins again with the seeds
PROCESSES = 2
ROW = "{:<18} {:>10} {:>9} {:>10} {:>10} {:>10}  {}"


def make_report(job: tuple[str, str, int]) -> FuzzReport:
    """One batch: target, seed, number of inputs."""
    name, seed, inputs = job
    return Fuzzer(TARGETS[name], seed).run(inputs)


def plan_batches(
    names: list[str], seed: str, inputs: int, done: Callable[[str], int] = lambda name: 0
) -> Iterator[tuple[str, str, int]]:
    """All batches, those of one target after one another, but for the first ``done`` of each."""
    for name in names:
        for number, start in enumerate(range(0, inputs, BATCH)):
            if number >= done(name):
                yield name, f"{seed}/{number}", min(BATCH, inputs - start)


def print_report(report: FuzzReport) -> None:
    """A line of the table, and what was found."""
    rate = report.inputs / max(report.seconds, 1e-9)
    typed = ", ".join(f"{name} {count}" for name, count in report.outcomes.most_common())
    slowest = f"{1000 * report.slowest:.1f} ms"
    print_row(
        report.target,
        report.inputs,
        f"{rate:.0f}/s",
        slowest,
        _mebibytes(report.peak),
        _mebibytes(report.growth),
        typed,
    )
    for one in report.bad:
        path = store_input(report.target, one)
        sys.stdout.write(f"  {one.reason}\n  python -m tests.fuzz --replay {path}\n")
    sys.stdout.flush()


def print_row(*cells: object) -> None:
    sys.stdout.write(ROW.format(*cells) + "\n")


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def run_targets(
    names: list[str], seed: str, inputs: int, record: FuzzRecord | None = None, processes: int = PROCESSES
) -> list[BadInput]:
    """All of these targets, without what is in the record. What showed a defect."""
    print_row("decoder", "inputs", "per CPU s", "slowest", "peak", "growth", "outcomes")
    found: list[BadInput] = []
    with ProcessPoolExecutor(processes) as pool:
        reports: dict[str, FuzzReport] = {}
        done = {name: record.batches_of(name) for name in names} if record else {}
        batches = list(plan_batches(names, seed, inputs, lambda name: done.get(name, 0)))
        left = Counter(name for name, _, _ in batches)
        for batch in pool.map(make_report, batches):
            if record and not batch.bad:
                record.add_batch(batch)
            report = reports.setdefault(batch.target, FuzzReport(batch.target))
            report.add(batch)
            left[batch.target] -= 1
            if not left[batch.target]:
                print_report(report)
                found += report.bad
    return found


def replay(path: Path) -> int:
    """Decode one stored input; its error is raised. The name of its folder is the target's."""
    TARGETS[path.parent.name].decode(path.read_bytes())
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="", help="one decoder; all when it is left out")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each decoder")
    parser.add_argument("--seed", default="0", help="another one, other inputs")
    parser.add_argument("--report", type=Path, help="a file to which it is added, whatever --seed says")
    parser.add_argument("--commit", default="", help="of the sources, for the report")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="at once; default: %(default)s")
    parser.add_argument("--replay", type=Path, help="a stored input")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay)
    if options.target and options.target not in TARGETS:
        parser.error(use_one_of(options.target, TARGETS))
    names = [options.target] if options.target else list(TARGETS)
    if options.report:
        record = FuzzRecord(options.report, options.commit)
        return 1 if run_targets(names, SEED, options.inputs, record, options.processes) else 0
    return 1 if run_targets(names, options.seed, options.inputs, processes=options.processes) else 0


if __name__ == "__main__":
    sys.exit(main())
