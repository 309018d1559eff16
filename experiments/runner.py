"""Runs an experiment: what is not recorded yet, in processes; then its table, figure and summary.

An experiment is a module with a ``NAME``, ``batches(options)`` and ``report(options, records)``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from experiments.figures import Figure, save
from experiments.progress import Progress
from experiments.records import Journal, Record
from scar.errors import ConfigError
from scar_local.forkserver import die_with
from scar_runtime.memory import keep_freed

THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Options:
    """What a user asks for. ``trials`` 0, empty ``panels``, ``lost`` or ``fractions``: what the experiment thinks best.

    ``lost``: fractions of the blocks that a failure takes. ``fractions``: r, what a round saves. ``period``: C, in iterations.
    ``mean``, ``gain``, ``horizon``, ``pending`` and ``unweighted`` as for :class:`experiments.failures.Trials`.
    ``recorded``: run nothing, report what is recorded.
    """

    trials: int = 0
    seed: int = 1
    out: Path = Path("build/experiments")
    jobs: int = 1
    quick: bool = False
    panels: tuple[str, ...] = ()
    lost: tuple[float, ...] = ()
    fractions: tuple[float, ...] = ()
    period: int = 8
    mean: float = 0.5
    gain: float | None = None
    horizon: int = 60
    pending: bool = False
    unweighted: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class Batch:
    """Trials that are run in one go. ``work(missing)`` yields a record each, and must survive pickling.

    ``alone``: it starts processes of its own or measures time, so nothing may run beside it.
    """

    panel: str
    trials: tuple[int, ...]
    work: Callable[[tuple[int, ...]], Iterator[Record]]
    alone: bool = False


@dataclass(frozen=True)
class Report:
    """``summary``: for the JSON file; ``rows``: the table, headings first."""

    summary: dict[str, Any]
    rows: Sequence[Sequence[str]]
    figure: Figure


class Experiment(Protocol):
    NAME: str

    def batches(self, options: Options) -> list[Batch]: ...

    def report(self, options: Options, records: Sequence[Record], /) -> Report: ...


def run(experiment: Experiment, options: Options, console: Console) -> Report:
    """All of it. Files: ``NAME.jsonl`` (records), ``NAME.json``, ``NAME.png``, ``NAME.svg`` below ``options.out``.

    Raises :class:`ConfigError` when there is nothing to run or to report.
    """
    batches = experiment.batches(options)
    if not batches:
        raise ConfigError(f"{experiment.NAME} shows none of these panels: {', '.join(options.panels)}")
    journal = Journal(options.out / f"{experiment.NAME}.jsonl", _plans(options, batches))
    if not options.recorded:
        jobs = 1 if any(batch.alone for batch in batches) else options.jobs
        _carry_out(experiment.NAME, batches, journal, jobs, console)
    wanted = {(batch.panel, trial) for batch in batches for trial in batch.trials}
    records = [record for record in journal.read() if (record["panel"], record["trial"]) in wanted]
    if not records:
        raise ConfigError(f"{journal.path} holds no trial of this", "Run it without --recorded")
    report = experiment.report(options, records)
    figures = save(report.figure, options.out / experiment.NAME)
    found = Counter(record["panel"] for record in records)
    missing = {panel: count - found[panel] for panel, count in Counter(panel for panel, _ in wanted).items()}
    summary = {
        "experiment": experiment.NAME,
        "command": command(experiment.NAME, options),
        "missing": {panel: count for panel, count in sorted(missing.items()) if count},
        **report.summary,
        "table": report.rows,
    }
    path = options.out / f"{experiment.NAME}.json"
    path.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    _print(experiment.NAME, report.rows, console)
    console.print("Written: " + ", ".join(str(file) for file in (journal.path, path, *figures)), highlight=False)
    return report


def command(name: str, options: Options) -> str:
    """How to get these numbers again."""
    words = ["scar", "experiment", name, "--seed", str(options.seed)]
    words += ["--trials", str(options.trials)] if options.trials else []
    words += [f"--{flag}" for flag in ("quick", "pending", "unweighted") if getattr(options, flag)]
    for name_of in ("period", "mean", "gain", "horizon"):
        value = getattr(options, name_of)
        words += [f"--{name_of}", f"{value:g}"] if value != getattr(Options, name_of) else []
    for option, values in (("--panel", options.panels), ("--lost", options.lost), ("--fraction", options.fractions)):
        words += [word for value in values for word in (option, str(value))]
    return " ".join(words)


def _plans(options: Options, batches: Sequence[Batch]) -> dict[str, str]:
    """Everything that a record of a panel depends on; not how many trials there are, so that a run can be made longer."""
    return {batch.panel: f"{options.seed} {described(batch.work)}" for batch in reversed(batches)}


def described(value: Any) -> str:
    """Like ``repr``, without what is left at its default: a new option does not make old records unreadable."""
    if isinstance(value, partial):
        return f"{value.func.__qualname__}({', '.join(map(described, value.args))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(described, value))})"
    if is_dataclass(value):
        chosen = [(one.name, getattr(value, one.name)) for one in fields(value)]
        defaults = {one.name: one.default for one in fields(value) if one.default is not MISSING}
        shown = [f"{name}={described(given)}" for name, given in chosen if name not in defaults or given != defaults[name]]
        return f"{type(value).__name__}({', '.join(shown)})"
    return value.__qualname__ if callable(value) else repr(value)


def _carry_out(name: str, batches: Sequence[Batch], journal: Journal, jobs: int, console: Console) -> None:
    done = {(record["panel"], record["trial"]) for record in journal.read()}
    total = sum(len(batch.trials) for batch in batches)
    missing = [(batch, tuple(one for one in batch.trials if (batch.panel, one) not in done)) for batch in batches]
    queue = [(batch, trials) for batch, trials in missing if trials]
    if not queue:
        return
    before = total - sum(len(trials) for _, trials in queue)
    for setting in THREAD_SETTINGS:  # read by the libraries of the processes that start now: a core each
        os.environ.setdefault(setting, "1")
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _enter, (os.getpid(),))
    with Progress(name, total, before, console) as progress, pool:
        futures = [pool.submit(_work, batch, trials, journal) for batch, trials in queue]
        try:
            _watch(futures, journal, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _enter(driver: int) -> None:
    """In a process of the pool. It ends with its driver, however that ends: nobody waits for what it would still record."""
    keep_freed()  # pages of arrays that come and go are half of the time of the CNN
    die_with(driver)


def _watch(futures: Sequence[Future[None]], journal: Journal, progress: Progress) -> None:
    while True:
        finished, waiting = wait(futures, timeout=LOOK_SECONDS)
        for future in finished:
            future.result()
        progress.show(len(journal.read()), time.monotonic())
        if not waiting:
            return


def _work(batch: Batch, trials: tuple[int, ...], journal: Journal) -> None:
    for record in batch.work(trials):
        journal.append({"panel": batch.panel, **record})


def _print(title: str, rows: Sequence[Sequence[str]], console: Console) -> None:
    table = Table(title=title)
    for index, heading in enumerate(rows[0]):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
