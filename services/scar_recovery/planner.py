"""Which epoch comes next, and when. A pure core: events and the time go in, actions come out; no I/O, no clock, no threads.

    planner.members.failed(report, now)
    match planner.tick(now):              # Commit | Confirm | Move | None
        ...                               # the executor carries it out and answers: committed(), members.confirmed(), moved()

One action is in flight at a time, except a move: it takes as long as copying takes, and a failure must not wait for it.
Everything that must outlive this process is in the epochs; a new leader is built from the newest ones by :meth:`Planner.begin`.
Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scar.placement import END, Epoch, Member, Role
from scar.tables import Job
from scar_recovery.levelling import transfers
from scar_recovery.members import Failure, Members
from scar_recovery.plans import GlobalIds, Intent, Moved, Transfer, orphaned, rank_order, seats

FAILURE_BATCH = 0.03  # failures that arrive within this time are repaired by one epoch
MEMBER_BATCH = 0.05  # members that come or go within this time share an epoch
ORPHAN_BATCH = 0.3  # when no shard is left: how long to wait for more of them to return
RETRY = 0.2  # between attempts while the store is down
MOVE_RETRY, MOVE_RETRY_MOST = 1.0, 60.0  # after a move that failed: at first, and when it fails again and again
NEVER = float("inf")


@dataclass(frozen=True)
class Settings:
    lease: float = 2.0  # seconds
    rebalance: bool = True
    move_bytes: int = 64 << 20
    flush: float = 3.0  # seconds


@dataclass(frozen=True)
class Commit:
    """Create this epoch. ``failures``: what it repairs."""

    intent: Intent
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Confirm:
    """Ask these suspects once more; answer by :meth:`Members.confirmed`."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Move:
    """Freeze and copy these blocks in epoch ``number``; answer by :meth:`Planner.moved`."""

    number: int
    transfers: tuple[Transfer, ...]


Action = Commit | Confirm | Move


class Planner:
    """Placement of one job under one leader. ``author``: incarnation of this coordinator."""

    def __init__(self, author: str, settings: Settings | None = None) -> None:
        self.author = author
        self.settings = settings or Settings()
        self.members = Members(self.settings.lease)
        self.job: Job | None = None
        self.epoch: Epoch | None = None
        self.problem = ""
        self._orphans: dict[str, GlobalIds] = {}  # former owner -> blocks that nobody owns
        self._orphan_failure = 0
        self._ledger = 0  # newest number of a failure record
        self._leads = False  # an epoch of our own exists, or none at all
        self._loaded = 0  # newest epoch in which every shard has all its blocks
        self._balanced: tuple[int, frozenset[str]] = (0, frozenset())  # epoch and leavers for which there is nothing to move
        self.saving: set[str] = set()  # shards that go and are saved first, by key; no block moves meanwhile
        self._moving = False
        self._moved: tuple[Moved, ...] | None = None  # of a move that has ended; its freezes wait for an epoch
        self._not_before = 0.0
        self._move_after, self._failed_moves = 0.0, 0  # each attempt costs an epoch, whether anything moves or not
        self._ending = False

    # --- events -------------------------------------------------------------------------------------------------------

    def begin(self, job: Job, history: Sequence[Epoch], ledger: int, now: float) -> None:
        """Take over a job. ``history``: its newest epochs, ascending, back to one that has shards (or to the first)."""
        self.job, self._ledger = job, ledger
        self.members.lead(now)
        for epoch in history:
            self._follow(epoch, now)
        self._leads = self.epoch is None

    def committed(self, epoch: Epoch, now: float) -> None:
        """An epoch of ours exists in the store (perhaps from an attempt whose answer was lost)."""
        if not self._leads:
            self.members.lead(now)
        self._follow(epoch, now)
        self._leads, self.problem, self._not_before = True, "", 0.0

    def _follow(self, epoch: Epoch, now: float) -> None:
        if self.job is not None and self.epoch is not None and not epoch.shards:
            fresh = orphaned(self.job, self.epoch, epoch)
            self._orphan_failure = epoch.failure if fresh else self._orphan_failure
            self._orphans |= fresh
        elif epoch.shards:
            self._orphans = {}
        self.epoch = epoch
        self._ledger = max(self._ledger, epoch.failure)
        self._moving, self._moved = False, None
        self.members.follow(epoch, now)

    def refused(self, problem: str, now: float) -> None:
        """The epoch could not be created: the store is down. Everything stays pending."""
        self.problem, self._not_before = problem, now + RETRY

    def loaded(self, number: int) -> None:
        """Every shard of this epoch has adopted it and serves all its blocks."""
        self._loaded = max(self._loaded, number)

    def moved(self, number: int, done: Sequence[Moved], complete: bool, now: float) -> None:
        """A move has ended; ``done`` are the transfers that lack only their epoch. What is frozen waits for it in any case."""
        if self.epoch is None or self.epoch.number != number or not self._moving:
            return  # a newer epoch has ended the freeze
        self._moved = tuple(done)
        self._failed_moves = 0 if done or complete else self._failed_moves + 1
        if not complete:
            self._move_after = now + min(MOVE_RETRY * 2 ** max(0, self._failed_moves - 1), MOVE_RETRY_MOST)

    def end(self) -> None:
        """The job is over: one last epoch sends every shard away, so that they come back empty, and nothing follows it."""
        self._ending = True

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        return self._ending

    @property
    def ended(self) -> bool:
        return self._ending and (self.epoch is None or self.epoch.cause == END)

    def owned(self, key: str) -> int:
        """Blocks that a shard owns in the newest epoch."""
        return 0 if self.epoch is None else sum(len(ids) for ids in self.epoch.owned_by(key).values())

    @property
    def recovering(self) -> list[str]:
        """Members whose blocks nobody owns yet."""
        return sorted({failure.key for failure in self.members.failures} | self._orphans.keys())

    @property
    def waits_for(self) -> str:
        """What keeps it from going on, in words; empty: nothing."""
        if self.problem or self.job is None:
            return self.problem
        waiting = len(self.members.waiting(Role.SHARD))
        if self.epoch is None and waiting < self.job.shards:
            return f"waiting for shards: {waiting} of {self.job.shards} have joined"
        if self._orphans:
            return "no shard is left: their blocks wait for one to join"
        if self.job.worker_strategy.waits and self.epoch is not None:
            present = {member.name for member in self.epoch.workers}
            absent = [name for name in self.epoch.ranks if name not in present]
            if absent:
                return f"clocks wait for {', '.join(absent)} to come back (worker_recovery {self.job.worker_recovery})"
        return "; ".join(f"{failure.key} is silent; its lease is awaited" for failure in self.members.suspects())

    # --- decisions ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> Action | None:
        """What to do next; None: nothing before :meth:`wake`."""
        if self.job is None or now < self._not_before or self.ended:
            return None
        if self._ending and self.epoch is not None:
            return Commit(self._last(self.job, self.epoch))
        due = tuple(f.report.member for f in self.members.suspects() if f.allowed <= now)
        if due:
            return Confirm(due)
        if self._due() <= now:
            return self._commit(self.job, now)
        return self._move(self.job, now)

    def wake(self, now: float) -> float:
        """Seconds until :meth:`tick` may have something to do; infinity: not before an event."""
        if self.job is None or self.ended:
            return NEVER
        if self._ending:
            return self._not_before - now
        suspects = [failure.allowed for failure in self.members.suspects()]
        return max(min([self._due(), self._movable(), *suspects]), self._not_before) - now

    def _due(self) -> float:
        """When the next epoch has to be created."""
        if self.epoch is None:
            shards = self.members.waiting(Role.SHARD)
            enough = self.job is not None and len(shards) >= self.job.shards
            return max(arrival.since for arrival in shards) if enough else NEVER
        if not self._leads or self._moved is not None:
            return 0.0
        times = [failure.allowed + FAILURE_BATCH for failure in self.members.dead()]
        if not self._moving:
            times.append(self._admission(bool(self.epoch.shards)))
            times += [arrival.since + MEMBER_BATCH for arrival in self.members.waiting(Role.WORKER)]
            times += [since + MEMBER_BATCH for key, since in self.members.departures.items() if not self.owned(key)]
        return min(times, default=NEVER)

    def _admission(self, survivors: bool) -> float:
        """When the shards that wait get into an epoch. Without survivors it is worth waiting a little for more of them."""
        shards = self.members.waiting(Role.SHARD)
        if not shards or self.job is None:
            return NEVER
        batch = MEMBER_BATCH if survivors or len(shards) >= self.job.shards else ORPHAN_BATCH
        return min(arrival.since for arrival in shards) + batch

    def _commit(self, job: Job, now: float) -> Commit:
        if self.epoch is None:
            shards = rank_order([arrival.member for arrival in self.members.waiting(Role.SHARD)])
            workers = rank_order([arrival.member for arrival in self.members.waiting(Role.WORKER)])
            return Commit(Intent(1, self.author, job, None, shards, workers, "start"))
        if not self._leads:  # same placement, drop nothing: what else is pending comes right after
            return Commit(self._intent(job, self.epoch, "leader", self.epoch.shards, self.epoch.workers))
        failures = tuple(self.members.dead())
        return Commit(self._change(job, self.epoch, failures, now), failures)

    def _change(self, job: Job, epoch: Epoch, failures: tuple[Failure, ...], now: float) -> Intent:
        """The next epoch with all that is pending: deaths, a finished move, arrivals, departures."""
        dead = {failure.key for failure in failures}
        moved = () if dead else self._moved or ()
        emptied = self._emptied(epoch, moved)
        staying = [member for member in epoch.shards if member.key not in dead | emptied]
        arrivals = self.members.waiting(Role.SHARD) if staying or self._admission(False) <= now else []
        admitted = [arrival.member for arrival in arrivals]
        gone = dead | self.members.departures.keys()
        workers = [member for member in epoch.workers if member.key not in gone]
        workers += [arrival.member for arrival in self.members.waiting(Role.WORKER)]
        lost_shard = any(member.key in dead for member in epoch.shards)
        rewinds = job.worker_strategy.rollback and bool(staying) and any(member.key in dead for member in epoch.workers)
        assigned = bool(self._orphans) and bool(admitted)
        cause = "workers"
        if rewinds:
            cause = "failure"
        elif lost_shard or assigned:
            cause = "failure" if lost_shard or self._orphan_failure else "resume"
        elif emptied or any(done.transfer.donor.key in self.members.departures for done in moved):
            cause = "leave"
        elif admitted or self._moved is not None:
            cause = "join"
        return self._intent(
            job,
            epoch,
            cause,
            rank_order([*staying, *admitted]),
            rank_order(workers),
            moved=moved,
            failures=failures,
            failure=self._ledger + 1 if lost_shard or rewinds else self._orphan_failure if assigned else 0,
            left=frozenset(self.members.departures),
        )

    def _intent(
        self,
        job: Job,
        epoch: Epoch,
        cause: str,
        shards: tuple[Member, ...],
        workers: tuple[Member, ...],
        moved: tuple[Moved, ...] = (),
        failures: tuple[Failure, ...] = (),
        failure: int = 0,
        left: frozenset[str] = frozenset(),
    ) -> Intent:
        return Intent(
            number=epoch.number + 1,
            author=self.author,
            job=job,
            previous=epoch,
            shards=shards,
            workers=workers,
            cause=cause,
            dead=tuple(sorted(failure.key for failure in failures)),
            fenced=(*epoch.fenced, *(failure.report.member.incarnation for failure in failures)),
            avoid=frozenset(self.members.departures),
            orphans=dict(self._orphans),
            moved=moved,
            failure=failure,
            seats=seats(job, epoch, workers, left),
        )

    def _last(self, job: Job, epoch: Epoch) -> Intent:
        """Nobody is in it; its shards are fenced, so that one that sleeps through it cannot serve afterwards."""
        fenced = (*epoch.fenced, *(member.incarnation for member in epoch.shards))
        return Intent(epoch.number + 1, self.author, job, epoch, (), (), END, fenced=fenced, orphans=dict(self._orphans))

    def _emptied(self, epoch: Epoch, moved: Sequence[Moved]) -> set[str]:
        """Shards that want to leave and own nothing once ``moved`` is done."""
        given: Mapping[str, int] = {
            key: sum(len(ids) for done in moved if done.transfer.donor.key == key for ids in done.transfer.blocks.values())
            for key in self.members.departures
        }
        return {key for key, count in given.items() if epoch.shard_index(key) >= 0 and self.owned(key) == count}

    def _movable(self) -> float:
        """When live moves may be looked for: all is quiet, and it is not known yet that there is nothing to move."""
        epoch = self.epoch
        if epoch is None or self._moving or self.saving or self._loaded != epoch.number or self.members.failures:
            return NEVER
        return NEVER if self._balanced == (epoch.number, self._leaving(epoch)) else self._move_after

    def _leaving(self, epoch: Epoch) -> frozenset[str]:
        return frozenset(key for key in self.members.departures if epoch.shard_index(key) >= 0)

    def _move(self, job: Job, now: float) -> Move | None:
        """The next slice of live moves."""
        epoch = self.epoch
        if epoch is None or self._movable() > now:
            return None
        leaving = self._leaving(epoch)
        plan = transfers(job, epoch, leaving, self.settings.rebalance, self.settings.move_bytes)
        if not plan:
            self._balanced = (epoch.number, leaving)
            return None
        self._moving = True
        return Move(epoch.number, plan)
