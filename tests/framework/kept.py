"""A training file whose workers keep local state: random steps of least squares, each drawn from the step's
own numbers.

``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments) and ``SCAR_TEST_HISTORY`` (a folder) come from the
environment. So does ``SCAR_TEST_MARKS``, "worker clock shard": this worker dies once, when only this shard
has its mark of that clock. The last steps wait for a file ``over`` in the folder: all deaths are over.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import scar
from scar._client.core.push_state import MarkTaken
from scar._client.core.stream_steps import SendMark

STEPS = 60
HELD_STEP = 50
PAUSE = 0.02  # seconds of "computing" in a step, so that a kill finds the training under way


def make_job(name: str = "kept", **options: Any) -> scar.Job:
    checkpoint = scar.Checkpoint("full", fraction=1.0, period=5)
    tables = [
        scar.Table("w", (16, 4), rule=scar.sgd(0.05), init=scar.normal(0, 1)),
        scar.worker_state_table(workers=3, size=1),
    ]
    return scar.Job(name, tables=tables, workers=3, checkpoint=checkpoint, **options)


def die_between_marks(worker: scar.Worker, clock: int, shard: str, done: Path) -> None:
    """SIGKILL once this shard has the mark of this clock; the others never get it."""

    def watch_marks(name: str, send: Callable[[SendMark], MarkTaken]) -> Callable[[SendMark], MarkTaken]:
        def send_mark(step: SendMark) -> MarkTaken:
            if step.mark != clock + 1:
                return send(step)
            if name != shard:
                threading.Event().wait()
            send(step)
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        return send_mark

    if not done.exists():
        for stream in worker._client.pushes._streams.values():
            stream._send_mark = watch_marks(stream.shard.name, stream._send_mark)  # type: ignore[method-assign]


def train(worker: scar.Worker) -> None:
    """Ends after STEPS steps are in the model. What each worker hands in is the sum of all that it has
    drawn.
    """
    folder = Path(os.environ["SCAR_TEST_HISTORY"])
    name, clock, shard = os.environ.get("SCAR_TEST_MARKS", "nobody 0 -").split()
    if worker.member.name == name:
        die_between_marks(worker, int(clock), shard, folder / "died")
    for _ in worker.clocks():
        local = worker.load_state()
        if local.step >= STEPS:
            break
        while local.step == HELD_STEP and not (folder / "over").exists():
            time.sleep(PAUSE)
        target = local.rng.normal(size=(16, 4)).astype(np.float32)
        worker.push("w", worker.pull("w") - target)
        worker.save_state(local.values + float(target.sum()))
        time.sleep(PAUSE)
    if worker.rank == 0:
        final = {name.replace(".", "_"): worker.pull(name) for name in ("w", "scar.workers")}
        np.savez(folder / "final.npz", **final)


job = make_job(**json.loads(os.environ.get("SCAR_TEST_JOB", "{}")))
