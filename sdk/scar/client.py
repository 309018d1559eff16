"""A worker's side of the protocol: splits pushes over lanes, collects pulls, follows epochs. For one user thread.

Lanes (`lanes.py`) send in the background; what an epoch change means is decided by `reroute.py`; this module joins the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from scar.blocks import Array, Ids, positions_of
from scar.epochs import Deal, Follower, Recovery, View
from scar.errors import DeadlineExceeded, Fenced, Internal, InvalidRequest, ScarError
from scar.lanes import DONE, Comparison, Course, Lane, resume_points
from scar.packing import Wanted, gathered
from scar.placement import NOBODY, Epoch, Member
from scar.pulls import Answer, Puller
from scar.reports import Reports
from scar.reroute import NOWHERE, Moves, Outcome, Part, Piece, recovered, reroute
from scar.tables import Job
from scar.transport import Deadline

UNACKED_BYTES = 256 << 20
DRAIN_POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0  # between looks at the deadline, which may end early
ASYNC_PULLS = 4
AWAY_SECONDS = 0.5  # without an answer: a shard is away, where workers go on without it
STALE_SECONDS = 0.05  # the same when it was away before


@dataclass(frozen=True)
class Pushed:
    """What a user pushed to one table: flat values of these blocks (ascending ids; None: the whole table)."""

    ids: Ids | None
    values: Array


class Pace:
    """Seconds per clock, averaged over about the last ten."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: float | None = None

    def tick(self) -> None:
        now = time.monotonic()
        if self._last is not None:
            took = now - self._last
            self.seconds = 0.9 * self.seconds + 0.1 * took if self.seconds else took
        self._last = now


class Client:
    """One worker. ``timeout``: seconds for one operation of the user; ``unacked``: bytes that one lane may have under way."""

    def __init__(self, job: Job, member: Member, recovery: Recovery, timeout: float, unacked: int = UNACKED_BYTES) -> None:
        self.job, self.member, self.timeout = job, member, timeout
        self.view = View(job)
        self.loss, self.loss_clock = float("nan"), 0  # loss of clock loss_clock - 1, summed over workers
        self.reroutes = 0  # epochs followed
        self.progress = 0  # operations of the user
        self.pace = Pace()
        self._unacked = unacked
        self._queues = job.strategy.queues
        self._stale = False  # the last pull had to do without a shard
        self._course = Course(self.view, member, timeout, self._compared)
        self._lanes: dict[str, Lane] = {}
        self._homeless: list[Part] = []  # retained parts for blocks without an owner
        self._cache: dict[str, Wanted] = {}  # what was pulled last, by table
        self._push_id = 0
        self._pulled = -1  # last clock in which values were pulled
        self._voided = -1  # clock whose pushes no longer count
        self._reports = Reports(member, recovery)
        self._puller = Puller(self.view, member, self._answered)
        self._background = ThreadPoolExecutor(ASYNC_PULLS, "scar-pull-async")
        self._recovery = recovery
        self._follower: Follower | None = None

    # --- joining and leaving -----------------------------------------------------------------------------------------

    def start(self, epoch: Epoch, deadline: Deadline) -> None:
        """Follow from this epoch on, and begin with the lowest clock that no predecessor has finished on every shard."""
        self.follow(epoch)
        self._follower = Follower(self.view, self._recovery, self.follow)
        with self.view.lock:
            self._await(self._introduced, deadline, "every shard to answer")
            known = {lane: lane.record for lane in self._lanes.values() if lane.record is not None}
            for lane, clock in zip(known, resume_points(list(known.values())), strict=True):
                lane.sealed = clock
            self._course.finished = max(min(lane.sealed for lane in known), self.view.epoch.restart)
            self.view.notify()

    def await_workers(self, deadline: Deadline) -> None:
        """Wait until the job's workers are there. In a job that is under way nobody waits: some may have finished already."""
        self._await(
            lambda: self.finished > 0 or len(self.view.epoch.workers) >= self.job.workers, deadline, "the other workers"
        )

    @property
    def finished(self) -> int:
        """Clocks that this worker has finished."""
        return self._course.finished or 0

    def finish(self, deadline: Deadline) -> None:
        """Wait until everything pushed is in the model, then say to all shards that nothing more will come."""
        with self.view.lock:
            if any(part.clock >= self.finished for parts in self._held().values() for part in parts):
                self._course.finished = self.finished + 1  # an open clock never closes without its mark
                self.view.notify()
        while not self._await(self._drained, deadline, "pushes to be applied", DRAIN_POLL_SECONDS):
            with self.view.lock:
                for lane in self._lanes.values():
                    if not lane.held.empty:
                        lane.mark_again()  # its answer says whether the clock has closed
        with self.view.lock:
            self._course.done = True
            self.view.notify()
        self._await(lambda: all(lane.marked[1] == DONE for lane in self._lanes.values()), deadline, "the last mark to be taken")

    def close(self) -> None:
        """Stop all threads and connections; later calls raise. Nothing is waited for but reports that are on their way."""
        self._reports.close()
        with self.view.lock:
            self.view.fail(InvalidRequest("this worker has left the job"))
            for lane in self._lanes.values():
                lane.end()
        if self._follower is not None:
            self._follower.close()
        self._puller.close()
        self._background.shutdown(wait=False, cancel_futures=True)
        self.view.close()

    # --- the user's operations ---------------------------------------------------------------------------------------

    def push(self, tables: Mapping[str, Pushed]) -> None:
        """One push. Returns when its parts are queued; waits only while a lane is full."""
        self.progress += 1
        deadline = Deadline(self.timeout)
        while True:
            self._await(self._room, deadline, "room to push")
            deal = self.view.deal
            shares = self._shares(deal, tables)
            with self.view.lock:
                self.view.check()
                if deal is not self.view.deal:
                    continue  # cut again: an epoch arrived while the parts were copied
                self._push_id += 1  # one that does not count any more has a number, too: its user counts it
                if not self._void:
                    self._enqueue(shares)
                return

    def pull(self, wants: Sequence[Wanted]) -> None:
        """Fill these with values that contain what the job's consistency promises for this worker's clock."""
        self._pull(wants, self.finished)

    def pull_async(self, wants: Sequence[Wanted]) -> Future[None]:
        """The same in the background, for the clock that is open now."""
        self.view.check()
        return self._background.submit(self._pull, wants, self.finished)

    def clock(self, loss: float | None) -> None:
        """Finish a clock: wait until its pushes are acknowledged; marks follow in the background. May be tried again."""
        self._await(self._acknowledged, Deadline(self.timeout), "pushes to be acknowledged")
        with self.view.lock:
            self._course.finish(max(self.finished + 1, self.view.epoch.restart), None if self._void else loss)
            self.view.notify()
        self.pace.tick()

    @property
    def _void(self) -> bool:
        """The open clock's pushes do not count: they are computed from values that no longer exist, or not by everybody."""
        return self._voided == self.finished or self.finished < self.view.epoch.restart

    def refresh_loss(self) -> None:
        """Hear the loss of the last closed clock; in BSP all workers hear the same one."""
        one_block = Wanted(self.job.tables[0], np.zeros(1, np.uint32))
        self._puller.pull([one_block], self._min_clock(self.finished), Deadline(self.timeout))

    def _pull(self, wants: Sequence[Wanted], finished: int) -> None:
        self.progress += 1
        epoch = self.view.number
        if not self._queues or not self._pulled_as_it_is(wants):
            self._puller.pull(wants, self._min_clock(finished), Deadline(self.timeout))
        with self.view.lock:
            self._pulled = max(self._pulled, finished)
            if not self._queues or epoch == self.view.number:
                self._cache.update({wanted.table.name: wanted for wanted in wants})

    def _pulled_as_it_is(self, wants: Sequence[Wanted]) -> bool:
        """Take what the shards give at once, and the values that were pulled last for blocks of those that are away."""
        try:
            self._puller.pull(wants, 0, Deadline(STALE_SECONDS if self._stale else AWAY_SECONDS))
        except DeadlineExceeded:
            with self.view.lock:
                self._stale = all(self._remembered(wanted) for wanted in wants)
            return self._stale
        self._stale = False
        return True

    def _remembered(self, wanted: Wanted) -> bool:
        """Complete it from the last pull. False when that did not have all of it."""
        known = self._cache.get(wanted.table.name)
        positions, ids = wanted.missing()
        at = ids.astype(np.int64) if known is None or known.ids is None else positions_of(known.ids, ids)
        if known is None or (at < 0).any():
            return wanted.complete
        wanted.fill(positions, known.layout.gather(known.flat, at))
        return True

    def _min_clock(self, finished: int) -> int:
        return max(0, finished - self.job.slack)

    def _answered(self, key: str, answer: Answer) -> None:
        with self.view.lock:
            if answer.loss_clock > self.loss_clock:
                self.loss, self.loss_clock = answer.loss, answer.loss_clock
            if key in self._lanes:
                self._course.journal.release(self._lanes[key].held.see(answer.clock))

    # --- pushing -----------------------------------------------------------------------------------------------------

    def _shares(self, deal: Deal, tables: Mapping[str, Pushed]) -> dict[str, dict[str, Piece]]:
        """Copies of the values, cut by owner: lane key -> table -> piece."""
        shares: dict[str, dict[str, Piece]] = {}
        for name, pushed in tables.items():
            layout, ids = self.job.table(name).layout, pushed.ids
            if ids is not None:
                layout = layout.take(ids.astype(np.int64))
            for owner, positions in deal.shares(name) if ids is None else deal.epoch.split(name, ids):
                key = NOWHERE if owner == NOBODY else deal.epoch.shards[owner].key
                mine = deal.owned(name, owner) if ids is None else ids[positions]
                shares.setdefault(key, {})[name] = Piece(mine, layout.gather(pushed.values, positions))
        return shares

    def _enqueue(self, shares: Mapping[str, Mapping[str, Piece]]) -> None:
        for key, pieces in shares.items():
            part = Part(self._push_id, self.finished, pieces)
            if key == NOWHERE:
                self._homeless.append(part)
            elif self.finished >= self._lanes[key].sealed:
                self._lanes[key].add(part)
        if self._queues:
            self._bound()

    def _bound(self) -> None:
        """A queue of pushes for shards that are away takes no more memory than one push of everything that waits."""
        if sum(part.bytes for part in self._homeless) > self._unacked:
            self._homeless = [gathered(self.job, self._homeless)]
        for lane in self._lanes.values():
            if lane.held.waiting_bytes > self._unacked:
                lane.held.gather()

    def _introduced(self) -> bool:
        return bool(self._lanes) and all(lane.record for lane in self._lanes.values())

    def _room(self) -> bool:
        return self._queues or all(lane.held.waiting_bytes < self._unacked for lane in self._lanes.values())

    def _acknowledged(self) -> bool:
        if self._queues:
            return True
        lanes = self._lanes.values()
        return not self._homeless and all(lane.held.idle and lane.marked[1] >= self.finished for lane in lanes)

    def _drained(self) -> bool:
        return not self._homeless and all(lane.held.empty for lane in self._lanes.values())

    def _await(self, ready: Callable[[], bool], deadline: Deadline, what: str, poll: float | None = None) -> bool:
        """Wait until ``ready`` or (with ``poll``) for that many seconds; says which. Raises what has stopped the work."""
        with self.view.lock:
            while True:
                seconds = min(poll or LOOK_SECONDS, deadline.remaining)
                done = self.view.changed.wait_for(lambda: self.view.failure is not None or ready(), seconds)
                self.view.check()
                if done or (poll is not None and not deadline.expired):
                    return done
                if deadline.expired:
                    raise self._too_late(deadline, what)

    def _too_late(self, deadline: Deadline, what: str) -> ScarError:
        stuck = [lane for lane in self._lanes.values() if not lane.held.empty or lane.record is None or lane.problem]
        names = [lane.shard.name for lane in stuck] + (["an owner for some blocks"] if self._homeless else [])
        problem = next((lane.problem for lane in stuck if lane.problem), None)
        return deadline.exceeded(f"{what} ({', '.join(names) or 'no shard'}, epoch {self.view.number})", problem)

    # --- epochs ------------------------------------------------------------------------------------------------------

    def follow(self, epoch: Epoch) -> None:
        """Take one step to the next epoch: nothing pushed is lost in silence, nothing is counted twice."""
        with self.view.lock:
            known = self.view.number
            if epoch.number <= known:
                return
            if known and epoch.number != known + 1:
                raise Internal(f"epoch {epoch.number} follows {known}: what moved in between is unknown")
            if self.member not in epoch.workers:
                raise Fenced(f"{self.member.key} is not part of epoch {epoch.number} any more")
            outcome = reroute(self.job, epoch, self.member.key, self._held(), self._course.journal)
            if epoch.rollback and self._pulled == self.finished:
                self._voided = self.finished  # its pushes were computed from values that no longer exist
            self.view.adopt(epoch)
            self.reroutes += known > 0
            self._move_lanes(epoch, outcome)
            self._compare(epoch, known > 0, outcome)
            if self._queues:  # values of a former life of a block are not shown after those of the next
                self._cache = {name: held for name, held in self._cache.items() if not _restored(epoch, name)}
            self.view.notify()

    def _held(self) -> dict[str, list[Part]]:
        return {**{key: lane.held.parts() for key, lane in self._lanes.items()}, NOWHERE: self._homeless}

    def _move_lanes(self, epoch: Epoch, outcome: Outcome) -> None:
        former, self._lanes = self._lanes, {}
        for shard in epoch.shards:
            lane = former.pop(shard.key, None) or Lane(self._course, shard, self.view.links[shard.key])
            lane.held.replace(outcome.kept.get(shard.key, []))
            for part in outcome.sent.get(shard.key, []):
                lane.add(part)
            self._lanes[shard.key] = lane
        for lane in former.values():
            self._abandon(lane)
            lane.end()
        self._homeless = outcome.kept.get(NOWHERE, []) + outcome.sent.get(NOWHERE, [])

    # --- measuring what a recovery cost ------------------------------------------------------------------------------

    def _compare(self, epoch: Epoch, following: bool, outcome: Outcome) -> None:
        """Queue a comparison of every recovered block that is in the cache, and open the report of this epoch."""
        moves = Moves(self.job, epoch, self.member.key)
        for lane in self._lanes.values():
            self._abandon(lane, moves)
        fresh: list[tuple[str, Comparison]] = []
        for group in epoch.moved if following else ():
            wanted = self._cache.get(group.table)
            if wanted is None or not recovered(group):
                continue
            ids = group.ids if wanted.ids is None else np.intersect1d(group.ids, wanted.ids, assume_unique=True)
            for owner, part in epoch.split(group.table, ids):
                if owner != NOBODY:
                    at = ids[part] if wanted.ids is None else np.searchsorted(wanted.ids, ids[part])
                    cached = wanted.layout.gather(wanted.flat, at.astype(np.int64))
                    fresh.append((epoch.shards[owner].key, Comparison(epoch.number, group.table, ids[part], cached)))
        self._reports.open(epoch, outcome, len(fresh))
        for key, comparison in fresh:
            self._lanes[key].comparisons.append(comparison)

    def _abandon(self, lane: Lane, moves: Moves | None = None) -> None:
        """Give up comparisons of blocks that moved again (None: all of the lane)."""
        for comparison in list(lane.comparisons):
            if moves is None or moves.of(comparison.table, comparison.ids).any():
                lane.comparisons.remove(comparison)
                self._compared(comparison, None)

    def _compared(self, comparison: Comparison, squared: float | None) -> None:
        self._reports.compared(comparison.epoch, comparison.table, len(comparison.ids), squared)


def _restored(epoch: Epoch, table: str) -> bool:
    return any(group.table == table and recovered(group) for group in epoch.moved)
