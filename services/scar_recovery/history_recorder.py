"""Keeps how the run goes in the store, beside the leader's loop: nothing waits for it, and what it cannot
read or write now it tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar.errors import ScarError
from scar.placement import END, Epoch, Member
from scar.v1.recovery_pb2 import HistorySample
from scar.wire.timing import TIMING
from scar_recovery.executor import Executor
from scar_recovery.shard_client import ShardProgress
from scar_recovery.store_health import StoreWatch
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store.history_log import HistoryLog

LOOK_SECONDS = 10 * TIMING.look_every
WRITE_SECONDS = 2.0  # at least, between two versions
BYTES_PER_SECOND = 4096  # written, about, however large a version is
ASKED = 4  # shards in a look: any one knows about all losses, and others come next time
LATE_CLOCKS = 64  # of these a loss may become known later than that of the next clock
DONE = 1 << 62  # an open clock from here on: every worker has finished

_log = logging.getLogger(__name__)


class HistoryRecorder:
    """``executor``: None while there is no job. ``read_progress``: a shard's open clock and its losses from a
    clock on. ``author``: of the versions. ``wall``: seconds since 1970; ``now``: of a monotonic clock.
    ``store_watch``: how its requests to the store went.
    """

    def __init__(
        self,
        executor: Callable[[], Executor | None],
        read_progress: Callable[[Member, int], ShardProgress],
        author: str,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._read_progress = read_progress
        self._author = author
        self._wall = wall
        self._now = now
        self.store_watch = StoreWatch(now)
        self._turn = threading.Lock()  # guards what follows
        self._of: Executor | None = None  # whose job this is the history of
        self._versions: HistoryLog | None = None
        self._history = ProgressHistory()
        self._newest = 0  # clock with a loss
        self._looks = 0
        self._changed = False
        self._next_write = 0.0

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(LOOK_SECONDS):
            self.step()

    def step(self, at_once: bool = False) -> None:
        """Look, and write when it is time for it, or ``at_once``. Raises nothing that passes by itself."""
        executor = self._executor()
        epoch = executor.state.epoch if executor is not None else None
        if executor is None or epoch is None or epoch.cause == END:
            return
        try:
            with self._turn:
                self._look(self._follow(executor), epoch, len(epoch.shards) if at_once else ASKED)
                if self._changed and (at_once or self._now() >= self._next_write):
                    self._write()
        except ScarError as error:
            _log.warning("history.delayed", extra={"job": executor.job.name, "reason": error.message})

    def _follow(self, executor: Executor) -> ProgressHistory:
        """Go on with what the store has of this job."""
        if executor is not self._of:
            with self.store_watch.request():
                log = executor.store.history_log()
                self._history = log.read()
            self._versions = log
            self._newest = self._looks = 0
            self._of = executor
        return self._history

    def _look(self, history: ProgressHistory, epoch: Epoch, asked: int) -> None:
        since = max(0, self._newest - LATE_CLOCKS)
        found = [self._ask(member, since) for member in self._next_shards(epoch, asked)]
        told = [one for one in found if one is not None]
        for one in told:
            self._changed |= history.add_losses(one.losses)
            self._changed |= bool(history.metrics.add_metrics(one.metrics))
            self._newest = max(self._newest, *one.losses, 0)
        clock = min((one.clock for one in told if one.blocks and one.clock < DONE), default=None)
        if clock is not None and epoch.workers:
            sizes = {"shards": len(epoch.shards), "workers": len(epoch.workers)}
            history.add_samples([HistorySample(time=self._wall(), clock=clock, epoch=epoch.number, **sizes)])
            self._changed = True

    def _next_shards(self, epoch: Epoch, most: int) -> list[Member]:
        count = len(epoch.shards)
        first = self._looks * most
        self._looks += 1
        return [epoch.shards[(first + one) % count] for one in range(min(most, count))]

    def _ask(self, member: Member, since: int) -> ShardProgress | None:
        try:
            return self._read_progress(member, since)
        except ScarError:  # it may have died: others know as much
            return None

    def _write(self) -> None:
        assert self._versions is not None
        with self.store_watch.request():
            written = self._versions.write(self._history, self._author)
        self._changed = False
        self._next_write = self._now() + max(WRITE_SECONDS, written / BYTES_PER_SECOND)
