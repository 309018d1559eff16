"""A job whose workers have all done their work is finished when the model as they left it is durable.

The epoch with which the last workers leave says so (``Epoch.finished``); a round of every block follows, and
one record under that epoch's number. Each of the three outlives this process, and a successor goes on with
what is missing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar.errors import NotServing, ScarError
from scar.losses import LossPoint
from scar.placement import Epoch, Member
from scar.v1 import recovery_pb2
from scar.wire.timing import TIMING
from scar_recovery.core.job_end import (
    EndRecorded,
    EpochSeen,
    JobEnd,
    RecordEnd,
    RecordingFailed,
    finished_epoch,
)
from scar_recovery.executor import Executor

IDLE = 2 * TIMING.look_every  # seconds between looks at the newest epoch

_log = logging.getLogger(__name__)


class JobFinisher:
    """``executor``: None while there is no job.

    ``save_all``: a round of every block, which returns the number of its manifest. ``read_losses``: the
    losses that a shard knows, by clock. ``now``: seconds of a monotonic clock; ``wall``: since 1970.
    ``keep_history``: is called before the end is told of; whoever hears of it may stop the shards.
    """

    def __init__(
        self,
        executor: Callable[[], Executor | None],
        save_all: Callable[[str], int],
        read_losses: Callable[[Member], dict[int, LossPoint]],
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        keep_history: Callable[[], None] = lambda: None,
    ) -> None:
        self._executor = executor
        self._save_all = save_all
        self._read_losses = read_losses
        self._wall = wall
        self._now = now
        self._keep_history = keep_history
        self._end = JobEnd()
        self._record = recovery_pb2.FinishedRecord()

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(IDLE):
            self.step()

    def step(self) -> bool:
        """Finish the job if it is time for it. False: that could not be done yet."""
        executor = self._executor()
        epoch = executor.state.epoch if executor is not None else None
        for action in self._end.handle(EpochSeen(epoch), self._now()):
            assert executor is not None
            before = self._end.problem
            self._end.handle(self._record_end(executor, action), self._now())
            if self._end.problem not in ("", before):
                _log.warning("finish.delayed", extra={"job": executor.job.name, "reason": self._end.problem})
        return not self._end.problem

    @property
    def record(self) -> recovery_pb2.FinishedRecord | None:
        """What is durable about the end that the newest epoch tells of; None: nothing yet, or no end."""
        epoch = self._newest_finished
        return self._record if epoch is not None and self._record.number == epoch.finished else None

    @property
    def problem(self) -> str:
        """Why the last state is not durable yet, in words; empty: nothing is wrong."""
        return self._end.problem if self._newest_finished is not None else ""

    @property
    def _newest_finished(self) -> Epoch | None:
        """The newest epoch, if the job's workers had done their work by then."""
        executor = self._executor()
        return finished_epoch(executor.state.epoch) if executor is not None else None

    def _record_end(self, executor: Executor, action: RecordEnd) -> EndRecorded | RecordingFailed:
        try:
            known = executor.store.read_finished(action.number)
            self._record = known or self._save_and_record(executor, action.epoch)
        except ScarError as error:
            return RecordingFailed(error.message)
        return EndRecorded(action.number)

    def _save_and_record(self, executor: Executor, epoch: Epoch) -> recovery_pb2.FinishedRecord:
        if not epoch.shards:
            raise NotServing("no shard is left")
        manifest = executor.store.read_manifest(self._save_all(executor.job.name))
        if not manifest.full:
            raise NotServing(f"manifest {manifest.number} has not every block")
        last = self._last_loss(epoch)
        record = recovery_pb2.FinishedRecord(
            number=epoch.finished,
            manifest=manifest.number,
            clock=manifest.clock,
            loss=last.loss if last else None,
            loss_fraction=last.fraction if last else 0.0,
            epoch=manifest.epoch,
            created=self._wall(),
        )
        self._keep_history()
        record = executor.store.create_finished(record)
        _log.info(
            "job.finished",
            extra={"job": executor.job.name, "manifest": record.manifest, "clock": record.clock},
        )
        return record

    def _last_loss(self, epoch: Epoch) -> LossPoint | None:
        """One shard may lack a loss that another one has."""
        known: dict[int, LossPoint] = {}
        for member in epoch.shards:
            try:
                known |= self._read_losses(member)
            except ScarError:
                continue
        return known[max(known)] if known else None
