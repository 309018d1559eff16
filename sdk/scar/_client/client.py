"""A worker's side of the protocol: joins, follows epochs, finishes clocks, leaves. For one user thread.

Pushes go through :class:`scar._client.push_stream.PushStreams`, pulls through
:class:`scar._client.worker_pulls.WorkerPulls`; what is decided is in `core/push_state.py`.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from scar._client.cluster_view import ClusterView
from scar._client.copy_sender import CopySender
from scar._client.core.comparisons import RecoveredBlocks
from scar._client.pace import Pace
from scar._client.push_stream import PushStreams
from scar._client.recovery_client import EpochFollower, RecoveryClient
from scar._client.reroute_reports import RerouteReports
from scar._client.worker_pulls import WorkerPulls
from scar.errors import Fenced, Internal, InvalidRequest
from scar.losses import LossPart, LossPoint
from scar.placement import Epoch, Member
from scar.tables import Job
from scar.wire.transport import Deadline

UNACKED_BYTES = 256 << 20
DRAIN_POLL_SECONDS = 0.02
ROLLBACK_SECONDS = 1.0  # after which it is asked for again: the leader may be another one


class Client:
    """One worker.

    ``timeout``: seconds for one operation of the user; ``outage_timeout``: seconds more while a
    recovery waits for the object store. ``unacked_bytes``: that one push stream may have under way.
    """

    def __init__(
        self,
        job: Job,
        member: Member,
        recovery: RecoveryClient,
        timeout: float,
        unacked_bytes: int = UNACKED_BYTES,
        outage_timeout: float = math.inf,
    ) -> None:
        self.job = job
        self.member = member
        self.timeout = timeout
        self.reroutes = 0  # epochs followed
        self.pace = Pace()
        self.view = ClusterView(job)
        self.pushes = PushStreams(self.view, member, timeout, unacked_bytes, self._report_comparison)
        self.state = self.pushes.state
        self.pulls = WorkerPulls(self.view, member, self.state, self.deadline)
        self._outage_timeout = outage_timeout
        self._marking = False  # a clock is finished, and not every shard has taken the mark
        self._reports = RerouteReports(member, recovery)
        self._recovery = recovery
        on_sent = self._report_comparison if self.job.heals_by_watermark else None
        self._copies = CopySender(self.view, member, self.pulls.held, recovery, on_sent)
        self._follower: EpochFollower | None = None

    @property
    def progress(self) -> int:
        """Operations of the user."""
        return self.pushes.count + self.pulls.count

    @property
    def finished(self) -> int:
        """Clocks that this worker has finished."""
        return self.state.clocks.finished

    @property
    def opened(self) -> Epoch:
        """The epoch that was followed when the open clock was opened."""
        return self.state.clocks.opened or self.view.epoch

    def deadline(self) -> Deadline:
        """Of one operation. A store that is away while blocks wait for their recovery is nobody's hang."""
        return Deadline(self.timeout, held=lambda: self.view.outage, patience=self._outage_timeout)

    # --- joining and leaving

    def start(self, epoch: Epoch, deadline: Deadline) -> None:
        """Follow from this epoch on; begin with the first clock of which no shard has heard."""
        self.follow_epoch(epoch)
        answer = self._copies.answer_question if self.job.strategy.asks_workers else None
        self._follower = EpochFollower(self.view, self._recovery, self.follow_epoch, answer, self.member)
        with self.view.lock:
            self.pushes.wait_until(self._is_introduced, deadline, "every shard to answer")
            self.state.resume_clocks(self.view.epoch)
            self.view.notify()

    def _is_introduced(self) -> bool:
        return self.state.is_introduced(self.view.epoch)

    def await_workers(self, deadline: Deadline) -> None:
        """Wait until all workers of a run that has begun are there.

        In one that is under way nobody waits: some may have finished already.
        """
        self.pushes.wait_until(self._has_workers, deadline, "the other workers")
        self.state.clocks.opened = self.view.epoch

    def _has_workers(self) -> bool:
        return not self.view.epoch.awaits_workers

    def drain_pushes(self, deadline: Deadline) -> None:
        """Wait until everything pushed is in the model, then tell all shards that nothing more will come."""
        # else a mark, and its part, is left out
        self.pushes.wait_until(self.state.is_acknowledged, deadline, "pushes to be acknowledged")
        with self.view.lock:
            self._finish_joined_clocks()
        while not self.pushes.wait_until(
            self.state.is_drained, deadline, "pushes to be applied", DRAIN_POLL_SECONDS
        ):
            with self.view.lock:
                self._finish_joined_clocks()  # an epoch may have made a push late meanwhile
                self.pushes.repeat_marks()  # the answer says whether the clock has closed
        with self.view.lock:
            self.state.clocks.done = True
            self.view.notify()
        self.pushes.wait_until(self.state.is_done, deadline, "the last mark to be taken")

    def _finish_joined_clocks(self) -> None:
        if self.state.finish_joined_clocks():
            self.view.notify()

    def flush_reports(self, seconds: float) -> None:
        """Wait until recovery has what epochs cost this worker, at most so long.

        Once the worker has left nobody listens to it.
        """
        with self.view.lock:
            self._reports.release_drafts()
        self._reports.flush(seconds)

    def close(self) -> None:
        """Stop all threads and connections; later calls raise. Nothing is waited for."""
        self._reports.close()
        with self.view.lock:
            self.view.fail(InvalidRequest("this worker has left the job"))
            self.pushes.close()
        if self._follower is not None:
            self._follower.close()
        self._copies.close()
        self.pulls.close()
        self.view.close()

    # --- clocks

    def finish_clock(self, part: LossPart | None) -> None:
        """Finish a clock: its pushes are acknowledged and, in BSP, every shard has its mark.

        May be tried again after an error.
        """
        began = time.monotonic()
        deadline = self.deadline()
        if not self._marking:
            self.pushes.wait_until(self.state.is_acknowledged, deadline, "pushes to be acknowledged")
            with self.view.lock:
                self.state.clocks.finish_clock(self.view.epoch, part)
                self._marking = self.job.consistency == "bsp" and not self.job.strategy.queues
                self.view.notify()
        if self._marking:  # before, a successor would do this clock again, and our pushes would not count
            self.pushes.wait_until(self.state.is_marked, deadline, "every shard to take the mark")
            self._marking = False
        self.pace.note_push(began)
        self.pace.tick()

    def end_at_loss(self, loss: LossPoint) -> None:
        """The user ends because of this loss: the last mark tells it to the shards that lack it."""
        with self.view.lock:
            self.state.clocks.final_loss = loss

    def roll_back(self, clock: int, heard: int, reason: str) -> None:
        """Have everything go back to what was saved before this clock, and go on with the clock with which
        all workers do. ``heard``: clock of the newest loss.

        Raises :class:`scar.errors.Diverged` where there is nothing to go back to.
        """
        deadline = self.deadline()

        def went_back() -> bool:
            return heard < self.view.epoch.restart

        while True:
            self._recovery.request_rollback(self.member, clock, reason, deadline)
            if self.pushes.wait_until(went_back, deadline, "the rollback", ROLLBACK_SECONDS):
                break
        while self.finished < self.view.epoch.restart:
            self.finish_clock(None)  # its pushes would not count

    # --- epochs

    def follow_epoch(self, epoch: Epoch) -> None:
        """Take one step to the next epoch: nothing pushed is lost in silence, nothing is counted twice."""
        with self.view.lock:
            known = self.view.number
            if epoch.number <= known:
                return
            if known and epoch.number != known + 1:
                raise Internal(f"epoch {epoch.number} follows {known}: what moved in between is unknown")
            if self.member not in epoch.workers:
                raise Fenced(f"{self.member.key} is not part of epoch {epoch.number} any more")
            owed = self.pulls.held.follow_epoch(epoch, self.state.clocks.finished)
            change = self.state.follow_epoch(epoch, self.pulls.cache, time.monotonic())
            if self.job.heals_by_watermark:
                change = replace(change, comparisons=change.comparisons + len(owed))
            self.view.follow_epoch(epoch)
            self._copies.send_copies(owed)
            self.reroutes += known > 0
            self.pushes.follow_change(change)
            for blocks in change.abandoned:
                self._report_comparison(blocks, None)
            self._reports.open_draft(epoch, change, first=not known)
            self.pulls.forget_restored(epoch)
            self.view.notify()

    def _report_comparison(self, blocks: RecoveredBlocks, squared: float | None) -> None:
        self._reports.add_comparison(blocks, squared)
