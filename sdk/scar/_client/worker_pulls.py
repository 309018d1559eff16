"""Pulls of a worker: at its clock, remembered, and where its job has it so, without shards that are away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from scar._client.cluster_view import ClusterView
from scar._client.core.clocks import oldest_clock
from scar._client.core.comparisons import restores_table
from scar._client.core.held_copies import HeldCopies
from scar._client.core.pull_buffer import PullBuffer
from scar._client.core.push_state import ClockSeen, PushState
from scar._client.pulls import Puller, PullReply
from scar.errors import DeadlineExceeded
from scar.losses import LossPoint
from scar.placement import Epoch, Member
from scar.wire.transport import Deadline

ASYNC_PULLS = 4
AWAY_SECONDS = 0.5  # without an answer: a shard is away, where workers go on without it
STALE_SECONDS = 0.05  # the same when it was away before


class WorkerPulls:
    """All pulls of one worker.

    ``cache``: what was pulled last, by table. ``held``: what of it can be given back. ``loss``: the newest
    that a shard has told. All are guarded by the view's lock.
    """

    def __init__(
        self, view: ClusterView, member: Member, state: PushState, deadline: Callable[[], Deadline]
    ) -> None:
        self.cache: dict[str, PullBuffer] = {}
        self.held = HeldCopies(view.job, member.key)
        self.loss: LossPoint | None = None
        self.count = 0  # pulls of the user
        self._view = view
        self._job = view.job
        self._state = state
        self._deadline = deadline
        self._goes_on_without = view.job.strategy.queues
        self._stale = False  # the last pull had to do without a shard
        self._restored: dict[str, int] = {}  # table -> the newest epoch that has put blocks of it back
        self._decisive: LossPoint | None = None
        self._puller = Puller(view, member, self._note_reply)
        self._loss_puller = Puller(view, member, self._note_loss, wait_for_loss=True)
        self._background = ThreadPoolExecutor(ASYNC_PULLS, "scar-pull-async")

    def pull(self, wants: Sequence[PullBuffer]) -> float:
        """Fill these with values that contain what the job's consistency promises for this worker's clock.

        Returns since when the last of them were under way (:func:`time.monotonic`).
        """
        return self._pull_at(wants, self._state.clocks.finished)

    def pull_async(self, wants: Sequence[PullBuffer], ahead: int = 0) -> Future[float]:
        """The same in the background, for the clock that is open now, or one so far ``ahead``."""
        self._view.check_failure()
        return self._background.submit(self._pull_at, wants, self._state.clocks.finished + ahead)

    def newest_loss(self) -> tuple[LossPoint | None, float]:
        """The newest loss, and since when it was under way. In BSP all workers ask the same shard in the same
        clock, and hear the same one.
        """
        finished = self._state.clocks.finished
        if finished and self._job.consistency == "bsp":
            one_block = PullBuffer(self._job.tables[0], np.zeros(1, np.uint32))
            oldest = oldest_clock(self._job.slack, finished)
            moving = self._loss_puller.pull([one_block], oldest, self._deadline())
            return self._decisive, moving
        return self.loss, time.monotonic()

    def forget_restored(self, epoch: Epoch) -> None:
        """Values of a former life of a block are not shown after those of the next. The lock is held."""
        if self._goes_on_without:
            for table in self._job.tables:
                if restores_table(epoch, table.name):
                    self._restored[table.name] = epoch.number
                    self.cache.pop(table.name, None)

    def close(self) -> None:
        self._puller.close()
        self._loss_puller.close()
        self._background.shutdown(wait=False, cancel_futures=True)

    def _pull_at(self, wants: Sequence[PullBuffer], finished: int) -> float:
        self.count += 1
        epoch = self._view.number
        self._begin_pulls(wants, finished)
        moving = self._pull_or_remember(wants) if self._goes_on_without else None
        if moving is None:
            oldest = oldest_clock(self._job.slack, finished)
            moving = self._puller.pull(wants, oldest, self._deadline(), finished)
        with self._view.lock:
            self._state.clocks.pulled = max(self._state.clocks.pulled, finished)
            for wanted in wants:
                # not what may be of a former life; what is older is no better than it
                if self._restored.get(wanted.table.name, 0) <= epoch:
                    exact = epoch == self._view.number and not wanted.short  # else of two placements
                    wanted.clock = finished if exact else -1
                    self.cache[wanted.table.name] = wanted
            if self._is_in_clock(finished):
                self._keep_pulls(wants, finished)
        return moving

    def _begin_pulls(self, wants: Sequence[PullBuffer], clock: int) -> None:
        if self._job.pull_slots:
            with self._view.lock:
                for wanted in wants:
                    self.held.ask_slots(wanted)
        missing = self._job.strategy.missing
        if not (missing or self._job.heals_by_watermark):  # else nothing has to be known before
            return
        with self._view.lock:
            holdable = [wanted for wanted in wants if self.held.can_hold(wanted)]
            number = self._state.begin_pull(wanted.table.name for wanted in holdable)
            for wanted in wants if missing else ():
                # shards cannot tell a rounded pull, which is never held, from another one
                if wanted.short or self.held.can_hold(wanted):
                    self._state.clocks.begin_pull(clock)
        for wanted in holdable:
            wanted.number = number

    def _keep_pulls(self, pulled: Sequence[PullBuffer], clock: int) -> None:
        told = min((stream.buffer.clock for stream in self._state.streams.values()), default=0)
        for one in filter(self.held.can_hold, pulled):
            if self.held.keep_pull(one, clock, told):
                self._state.hold_pull(one.table.name, one.number)
                if self._job.strategy.missing:
                    self._state.clocks.hold_pull(clock)

    def _is_in_clock(self, clock: int) -> bool:
        """BSP: whether no shard can have closed this clock, as none has a mark for it from a worker of this
        name. Else watermarks say what a copy contains.
        """
        if self._job.consistency != "bsp":
            return self._job.strategy.asks_workers
        ahead = any(stream.sealed > clock for stream in self._state.streams.values())
        return self._job.strategy.asks_workers and self._state.clocks.finished == clock and not ahead

    def _pull_or_remember(self, wants: Sequence[PullBuffer]) -> float | None:
        """Take what shards give at once, and for blocks of those that are away what was pulled last. Returns
        since when they were under way; None: not all of them are there.
        """
        try:
            moving = self._puller.pull(wants, 0, Deadline(STALE_SECONDS if self._stale else AWAY_SECONDS))
        except DeadlineExceeded:
            with self._view.lock:
                self._stale = all(self._fill_from_cache(wanted) for wanted in wants)
            return time.monotonic() if self._stale else None
        self._stale = False
        return moving

    def _fill_from_cache(self, wanted: PullBuffer) -> bool:
        """Complete it from the last pull. False when that did not have all of it."""
        known = self.cache.get(wanted.table.name)
        if known is not None:
            wanted.fill_from(known)
        return wanted.complete

    def _note_reply(self, key: str, reply: PullReply) -> None:
        with self._view.lock:
            if reply.loss and (self.loss is None or reply.loss.clock > self.loss.clock):
                self.loss = reply.loss
            if key in self._state.streams:
                self._state.handle(key, ClockSeen(reply.clock), time.monotonic())

    def _note_loss(self, key: str, reply: PullReply) -> None:
        self._decisive = reply.loss
        self._note_reply(key, reply)
