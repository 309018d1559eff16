"""Runs the trials of an experiment that are not recorded yet, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait

from rich.console import Console

from scar_compare.experiment import TrialBatch
from scar_compare.records import TrialJournal
from scar_compare.trial_progress import TrialProgress
from scar_local.forkserver import die_with
from scar_runtime.process.memory import keep_freed

THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
POLL_SECONDS = 0.5


def run_missing_trials(
    name: str, batches: Sequence[TrialBatch], journal: TrialJournal, jobs: int, console: Console
) -> None:
    """Run what the journal lacks, in ``jobs`` processes that append every record as soon as it is made."""
    queue = _missing_trials(batches, journal)
    if not queue:
        return
    total = sum(len(batch.trials) for batch in batches)
    before = total - sum(len(trials) for _, trials in queue)
    for setting in THREAD_SETTINGS:  # read by the libraries of the processes that start now: a core each
        os.environ.setdefault(setting, "1")
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _prepare_process, (os.getpid(),))
    with TrialProgress(name, total, before, console) as progress, pool:
        futures = [pool.submit(_run_batch, batch, trials, journal) for batch, trials in queue]
        try:
            _wait_for_trials(futures, journal, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _missing_trials(
    batches: Sequence[TrialBatch], journal: TrialJournal
) -> list[tuple[TrialBatch, tuple[int, ...]]]:
    done = {(record["panel"], record["trial"]) for record in journal.read()}
    queue = []
    for batch in batches:
        missing = tuple(trial for trial in batch.trials if (batch.panel, trial) not in done)
        if missing:
            queue.append((batch, missing))
    return queue


def _prepare_process(driver: int) -> None:
    """In a process of the pool: it ends with its driver, whose end leaves nobody to wait for its records."""
    keep_freed()  # pages of arrays that come and go are half of the time of the CNN
    die_with(driver)


def _wait_for_trials(futures: Sequence[Future[None]], journal: TrialJournal, progress: TrialProgress) -> None:
    while True:
        finished, waiting = wait(futures, timeout=POLL_SECONDS)
        for future in finished:
            future.result()
        progress.show(len(journal.read()), time.monotonic())
        if not waiting:
            return


def _run_batch(batch: TrialBatch, trials: tuple[int, ...], journal: TrialJournal) -> None:
    for record in batch.work(trials):
        journal.append({"panel": batch.panel, **record})
