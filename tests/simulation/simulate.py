"""Many seeds of the swarm, on all cores, with a report.

    python -m tests.simulation.simulate --seeds 1000 [--first 1] [--report FILE]
    python -m tests.simulation.simulate --seeds 200 --commit $(git rev-parse HEAD)

``--commit``: the first seed is drawn from this text, so that each commit plays seeds that no other has
played. ``--report`` adds to what the file says already, and goes on after its last seed: thousands of seeds
are played in several runs, of which each names its commit. Exit code 1: a guarantee did not hold, or a run
did not end; each such seed is told with the commands that play it again and cut it down.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.report import (
    Report,
    add_reports,
    is_played,
    make_report,
    next_seed,
    seeds_of,
    speed_of,
)
from tests.simulation.simulated import ROOT, Run, command_of, parse_run

CHUNK = 10  # seeds of one process: it costs a second to start
SEED_SPACE = 1_000_000_000
SHOWN = 200  # characters of what was wrong
WRITTEN_EVERY = 60.0  # seconds between two writes of the report


def first_seed(commit: str) -> int:
    """Of a commit: any text."""
    return 1 + int(hashlib.sha256(commit.encode()).hexdigest(), 16) % SEED_SPACE


def chunks_of(first: int, seeds: int) -> list[range]:
    """All of these seeds. No chunk is in two blocks of seeds, whose heartbeats are imported one by one."""
    end = first + seeds
    begins = [first, *range(first - first % CHUNK + CHUNK, end, CHUNK)]
    return [range(begin, min(end, begin - begin % CHUNK + CHUNK)) for begin in begins if begin < end]


def play_seeds(scenario: str, first: int, seeds: int, jobs: int, until: float = math.inf) -> Iterator[Run]:
    """Runs as they end, in no order. ``until``: none begins later, in seconds of the monotonic clock."""
    ended: SimpleQueue[Run | None] = SimpleQueue()

    def play_chunk(chunk: range) -> None:
        if time.monotonic() > until:
            return
        begin, count = chunk.start, len(chunk)
        command = command_of(scenario, f"--first={begin}", f"--seeds={count}")
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            silent = set(range(begin, begin + count))
            for line in process.stdout:
                run = parse_run(line)
                silent.discard(run.seed)
                ended.put(run)
        for seed in sorted(silent):
            ended.put(Run(scenario, seed, f"no result; the process ended with {process.returncode}"))

    def play_all() -> None:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(play_chunk, chunks_of(first, seeds)))
        ended.put(None)

    Thread(target=play_all, daemon=True).start()
    while (run := ended.get()) is not None:
        yield run


def read_report(file: Path | None) -> Report:
    """Of former runs; without a file, of none."""
    return json.loads(file.read_text()) if file is not None and file.exists() else make_report([], 0.0, "")


def choose_first(arguments: argparse.Namespace, known: Report) -> int:
    """Raises SystemExit when the report has some of these seeds already."""
    scenario = arguments.scenario
    begin = arguments.first or next_seed(known, scenario)
    first = first_seed(arguments.commit) if arguments.commit else begin
    if is_played(known, scenario, first, first + arguments.seeds - 1):
        raise SystemExit(
            f"{arguments.report} has some of seeds {first} to {first + arguments.seeds - 1} already: leave"
            f" --first out to go on at seed {next_seed(known, scenario)}, or remove the file to begin anew"
        )
    return first


def sources_commit() -> str:
    """Of what is played; "+" behind it: the sources are not all as they were committed."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class ReportFile:
    """``known``: what it said before; ``commit``: that is played now. What lasts for days may be stopped at
    any time: it is written again and again.
    """

    def __init__(self, file: Path | None, known: Report, commit: str) -> None:
        self._file, self._known, self._commit = file, known, commit
        self._began = self._written = time.monotonic()

    def write(self, runs: Sequence[Run], every: float = 0.0) -> Report:
        """Of these runs. ``every``: not when it was written within so many seconds."""
        now = time.monotonic()
        report = make_report(runs, now - self._began, self._commit)
        if self._file is not None and now >= self._written + every:
            self._written = now
            whole = self._file.with_suffix(".new")
            whole.write_text(json.dumps(add_reports(self._known, report), indent=2) + "\n")
            whole.replace(self._file)
        return report


def show_report(screen: Console, report: Report, runs: Sequence[Run]) -> None:
    faults = report["faults"]
    table = Table(title=f"{sum(faults.values())} faults of {len(faults)} kinds")
    table.add_column("kind")
    table.add_column("count", justify="right")
    for kind, number in faults.items():
        table.add_row(kind, str(number))
    screen.print(table)
    screen.print(
        f"{seeds_of(report)} seeds, {report['simulated_hours']} simulated hours in {report['wall_seconds']} s"
        f" ({speed_of(report)} simulated seconds per CPU second),"
        f" {len(report['pairs'])} pairs of faults, {len(report['rpcs'])} pairs of a fault and an RPC,"
        f" {len(report['failpoints'])} failpoints hit"
    )
    for run in runs:
        if run.wrong:
            screen.print(f"[bold red]seed {run.seed}[/]: {run.wrong[:SHOWN]}", highlight=False)
            again = f"{run.scenario} --first {run.seed} --trace FOLDER"
            screen.print(f"  play it again: python -m tests.simulation {again}")
            if run.scenario == "swarm":
                screen.print(f"  cut it down:   python -m tests.simulation.shrink --seed {run.seed}")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.simulate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--first", type=int, default=0, help="the first seed; 0: after those of the report, or 1"
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--scenario", default="swarm", help="a part of all runs: see focus.py")
    parser.add_argument("--commit", default="", help="draw the first seed from this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at the same time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more seeds after these")
    parser.add_argument("--report", type=Path, help="add it to the report there, JSON")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    known = read_report(arguments.report)
    first = choose_first(arguments, known)
    screen = Console(stderr=True, width=None if sys.stderr.isatty() else 160)
    screen.print(f"seeds {first} to {first + arguments.seeds - 1}", highlight=False)
    runs: list[Run] = []
    file = ReportFile(arguments.report, known, sources_commit())
    until = time.monotonic() + 60 * arguments.minutes
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as progress:
        shown = progress.add_task("simulating", total=arguments.seeds)
        for run in play_seeds(arguments.scenario, first, arguments.seeds, arguments.jobs, until):
            runs.append(run)
            if run.wrong:
                screen.print(f"[bold red]seed {run.seed}[/]: {run.wrong[:SHOWN]}", highlight=False)
            failed = sum(bool(one.wrong) for one in runs)
            progress.update(shown, advance=1, description=f"simulating, {failed} failed")
            file.write(runs, WRITTEN_EVERY)
    runs.sort(key=lambda run: run.seed)
    report = file.write(runs)
    show_report(screen, report, runs)
    return int(bool(report["failed"]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
