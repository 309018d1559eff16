"""Many seeds of the swarm, on all cores, with a report.

    python -m tests.simulation.simulate --seeds 1000 --first 1 [--report FILE]
    python -m tests.simulation.simulate --seeds 200 --commit $(git rev-parse HEAD)

``--commit``: the first seed is drawn from this text, so that each commit plays seeds that no other has
played. Exit code 1: a guarantee did not hold, or a run did not end; each such seed is told with the commands
that play it again and cut it down.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.simulated import ROOT, Run, command_of, parse_run

CHUNK = 5  # seeds of one process: it costs a second to start
SEED_SPACE = 1_000_000_000
SHOWN = 200  # characters of what was wrong


def first_seed(commit: str) -> int:
    """Of a commit: any text."""
    return 1 + int(hashlib.sha256(commit.encode()).hexdigest(), 16) % SEED_SPACE


def chunks_of(first: int, seeds: int) -> list[range]:
    """All of these seeds. No chunk is in two blocks of seeds, whose heartbeats are imported one by one."""
    end = first + seeds
    begins = [first, *range(first - first % CHUNK + CHUNK, end, CHUNK)]
    return [range(begin, min(end, begin - begin % CHUNK + CHUNK)) for begin in begins if begin < end]


def play_seeds(first: int, seeds: int, jobs: int, until: float = math.inf) -> Iterator[Run]:
    """Runs as they end, in no order. ``until``: none begins later, in seconds of the monotonic clock."""
    ended: SimpleQueue[Run | None] = SimpleQueue()

    def play_chunk(chunk: range) -> None:
        if time.monotonic() > until:
            return
        begin, count = chunk.start, len(chunk)
        command = command_of("swarm", f"--first={begin}", f"--seeds={count}")
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            silent = set(range(begin, begin + count))
            for line in process.stdout:
                run = parse_run(line)
                silent.discard(run.seed)
                ended.put(run)
        for seed in sorted(silent):
            ended.put(Run("swarm", seed, f"no result; the process ended with {process.returncode}"))

    def play_all() -> None:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(play_chunk, chunks_of(first, seeds)))
        ended.put(None)

    Thread(target=play_all, daemon=True).start()
    while (run := ended.get()) is not None:
        yield run


def summarize(runs: Sequence[Run], wall: float) -> dict[str, object]:
    """The report. ``wall``: seconds that it took."""
    tally: Counter[str] = Counter()
    for run in runs:
        tally.update(run.tally)
    cpu = sum(run.cpu for run in runs)
    hours = sum(run.seconds for run in runs) / 3600
    return {
        "seeds": len(runs),
        "failed": sorted(run.seed for run in runs if run.wrong),
        "simulated_hours": round(hours, 2),
        "simulated_seconds_per_cpu_second": round(3600 * hours / cpu, 1) if cpu else 0.0,
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(wall, 1),
        "faults": _counted(tally, "fault "),
        "pairs": _counted(tally, "pair "),
        "rpcs": _counted(tally, "rpc "),
        "failpoints": _counted(tally, "failpoint "),
    }


def _counted(tally: Counter[str], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): tally[key] for key in sorted(tally) if key.startswith(prefix)}


def show_report(screen: Console, report: dict[str, object], runs: Sequence[Run]) -> None:
    faults = report["faults"]
    assert isinstance(faults, dict)
    table = Table(title=f"{sum(faults.values())} faults of {len(faults)} kinds")
    table.add_column("kind")
    table.add_column("count", justify="right")
    for kind, number in faults.items():
        table.add_row(kind, str(number))
    screen.print(table)
    pairs = report["pairs"]
    rpcs = report["rpcs"]
    failpoints = report["failpoints"]
    assert isinstance(pairs, dict)
    assert isinstance(rpcs, dict)
    assert isinstance(failpoints, dict)
    screen.print(
        f"{report['seeds']} seeds, {report['simulated_hours']} simulated hours in {report['wall_seconds']} s"
        f" ({report['simulated_seconds_per_cpu_second']} simulated seconds per CPU second),"
        f" {len(pairs)} pairs of faults, {len(rpcs)} pairs of a fault and an RPC,"
        f" {len(failpoints)} failpoints hit"
    )
    for run in runs:
        if run.wrong:
            screen.print(f"[bold red]seed {run.seed}[/]: {run.wrong[:SHOWN]}", highlight=False)
            screen.print(
                f"  play it again: python -m tests.simulation swarm --first {run.seed} --trace FOLDER"
            )
            screen.print(f"  cut it down:   python -m tests.simulation.shrink --seed {run.seed}")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.simulate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--commit", default="", help="draw the first seed from this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at the same time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more seeds after these")
    parser.add_argument("--report", type=Path, help="write the report there, as JSON")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    first = first_seed(arguments.commit) if arguments.commit else arguments.first
    screen = Console(stderr=True, width=None if sys.stderr.isatty() else 160)
    screen.print(f"seeds {first} to {first + arguments.seeds - 1}", highlight=False)
    began = time.monotonic()
    runs: list[Run] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as progress:
        shown = progress.add_task("simulating", total=arguments.seeds)
        for run in play_seeds(first, arguments.seeds, arguments.jobs, began + 60 * arguments.minutes):
            runs.append(run)
            if run.wrong:
                screen.print(f"[bold red]seed {run.seed}[/]: {run.wrong[:SHOWN]}", highlight=False)
            failed = sum(bool(one.wrong) for one in runs)
            progress.update(shown, advance=1, description=f"simulating, {failed} failed")
    runs.sort(key=lambda run: run.seed)
    report = summarize(runs, time.monotonic() - began)
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")
    show_report(screen, report, runs)
    return int(bool(report["failed"]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
