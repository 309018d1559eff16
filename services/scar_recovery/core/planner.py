"""Which epoch comes next, and when: events and the time go in, actions come out. Pure.

    for action in planner.handle(TimePassed(), now):
        ...                              # carry it out, and hand its result to handle(), which may
                                         # return the action that follows

Only ``TimePassed`` begins something, so that what happens at the same time shares an epoch. One
action is in flight at a time, except moves and saves of leaving shards: they take as long as copying takes,
and a failure must not wait for them. Everything that must outlive this process is in the epochs; a new leader
is built from the newest ones by ``JobStarted``. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from scar.event_log import EventRing
from scar.placement import END, Epoch, Role
from scar.tables import Job
from scar_recovery.core.actions import CommitEpoch, ConfirmSuspects, PlannerAction
from scar_recovery.core.admission import MEMBER_BATCH, admission_due
from scar_recovery.core.damage_record import DamageRecord
from scar_recovery.core.epoch_intent import GlobalIds, orphaned_blocks
from scar_recovery.core.epoch_preparation import EpochPreparation, SurvivorsSilent
from scar_recovery.core.events import (
    BlocksMoved,
    ClocksRead,
    DamageFound,
    EpochCommitted,
    EpochLoaded,
    EpochRefused,
    JobEnded,
    JobEvent,
    JobStarted,
    LeaderReplaced,
    MemberEvent,
    MemberFailed,
    OffersCollected,
    PlannerEvent,
    ReplicasCollected,
    RollbackAsked,
    RollbackFailed,
    RunBegun,
    ShardSaved,
    TimePassed,
    TrafficRead,
)
from scar_recovery.core.live_moves import LiveMoves
from scar_recovery.core.membership import Membership
from scar_recovery.core.next_epoch import (
    PendingChanges,
    first_epoch,
    last_epoch,
    leader_epoch,
    next_epoch,
    owned_count,
)
from scar_recovery.core.pending_rollback import PendingRollback
from scar_recovery.core.rendezvous import WorkerRendezvous
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.core.traffic_watch import NEVER
from scar_recovery.core.waits import describe_wait

FAILURE_BATCH = 0.03  # failures that arrive within this time are repaired by one epoch
RETRY = 0.2  # between attempts while the store is down

Actions = tuple[PlannerAction, ...]


class Planner:
    """Placement of one job under one leader. ``author``: incarnation of this coordinator."""

    def __init__(
        self, author: str, settings: PlannerSettings | None = None, story: EventRing | None = None
    ) -> None:
        self.author = author
        self.story = story or EventRing()
        self.settings = settings or PlannerSettings()
        self.members = Membership(self.settings.lease)
        self.job: Job | None = None
        self.epoch: Epoch | None = None
        self.problem = ""  # why the next epoch could not be created, in words
        self.outage = ""  # the same, when it waits for the store
        self.replaced_by = ""  # incarnation of the coordinator that leads instead of us
        self.ending = False
        self._orphans: dict[str, GlobalIds] = {}  # former owner -> blocks that nobody owns
        self._orphan_failure = 0
        self._damage = DamageRecord()
        self._rollback = PendingRollback()
        self._newest_failure = 0
        self._leads = False  # an epoch of our own exists, or none at all
        self._loaded = 0  # newest epoch in which every shard has all its blocks
        self._rendezvous = WorkerRendezvous()
        self._moves = LiveMoves(self.settings, self.members)
        self._preparation = EpochPreparation()
        self._not_before = 0.0
        self._noted: dict[str, object] = {}  # facts in the story

    # --- events

    def handle(self, event: PlannerEvent, now: float) -> Actions:
        """What to do about an event. Members that may not join are ignored: ask ``members`` before."""
        actions = self._handle(event, now)
        self._note_changes()
        self.story.record(now, event, actions)
        return actions

    def _handle(self, event: PlannerEvent, now: float) -> Actions:
        match event:
            case TimePassed():
                return self._decide(now)
            case ReplicasCollected():
                return self._commit_with_replicas(event, now)
            case ClocksRead() | OffersCollected():
                commit = self._preparation.with_answer(event)
                return (commit,) if commit is not None else ()
        self._record(event, now)
        return ()

    def _note_changes(self) -> None:
        """What the event changed, for the story."""
        facts: dict[str, object] = {
            "epoch": self.epoch_number,
            "suspects": len(self.members.suspects()),
            "dead": len(self.members.proved_dead()),
            "leaving": len(self.members.departures),
            "orphaned_blocks": sum(map(len, self._orphans.values())),
            "moving": self._moves.in_progress,
            "problem": self.problem,
        }
        changed = {name: fact for name, fact in facts.items() if self._noted.get(name) != fact}
        if changed:
            self.story.note(**changed)
            self._noted = facts

    def _record(self, event: PlannerEvent, now: float) -> None:
        """Events that only change what is known."""
        match event:
            case JobStarted() | RunBegun() | JobEnded():
                self._record_job(event, now)
            case EpochCommitted(epoch):
                self._commit_succeeded(epoch, now)
            case EpochRefused(number, cause, reason):
                self._delay_epoch(f"epoch {number} ({cause}) waits for the store: {reason}", now)
                self.outage = self.problem
            case LeaderReplaced(author):
                self.replaced_by = author
            case BlocksMoved() | ShardSaved() | TrafficRead():
                self._moves.record_answer(event, self.epoch_number, now)
            case EpochLoaded(number):
                self._loaded = max(self._loaded, number)
                self._moves.epoch_loaded(now)
                self._damage.end_heal(number)
            case DamageFound():
                self._damage.record_damage(event, now)
            case RollbackAsked() | RollbackFailed():
                self._rollback.handle(event, self.epoch, now)
            case TimePassed() | ReplicasCollected() | OffersCollected() | ClocksRead():
                pass
            case _:
                self._record_member(event, now)

    def _record_job(self, event: JobEvent, now: float) -> None:
        if isinstance(event, JobStarted):
            self._start_job(event, now)
        elif isinstance(event, RunBegun):
            self._rendezvous.begin_run(self.epoch)
        else:
            self.ending = True

    def _record_member(self, event: MemberEvent, now: float) -> None:
        self.members.handle(event, now)
        if isinstance(event, MemberFailed) and event.report.proved:
            self._moves.stop_waiting_for(event.report.member.key)

    def _start_job(self, event: JobStarted, now: float) -> None:
        self.job = event.job
        self._newest_failure = event.newest_failure
        self.members.start_leading(now)
        for epoch in event.history:
            self._adopt_epoch(epoch, now)
        self._leads = self.epoch is None
        if event.begins_run:
            self._rendezvous.begin_run(self.epoch)

    def _commit_succeeded(self, epoch: Epoch, now: float) -> None:
        """An epoch of ours exists, perhaps from an attempt whose answer was lost, or one of a successor."""
        if epoch.author != self.author:
            self.replaced_by = epoch.author
            return
        if not self._leads:
            self.members.start_leading(now)
        self._adopt_epoch(epoch, now)
        if self.job is not None:
            self._rendezvous.adopt_epoch(self.job, epoch)
        self._leads = True
        self.problem = ""
        self.outage = ""
        self._not_before = 0.0

    def _adopt_epoch(self, epoch: Epoch, now: float) -> None:
        if self.job is not None and self.epoch is not None and not epoch.shards:
            fresh = orphaned_blocks(self.job, self.epoch, epoch)
            self._orphan_failure = epoch.failure if fresh else self._orphan_failure
            self._orphans |= fresh
        elif epoch.shards:
            self._orphans = {}
        self.epoch = epoch
        self._newest_failure = max(self._newest_failure, epoch.failure)
        self._moves.adopt_epoch()
        self._rollback.adopt_epoch(epoch)
        if self.job is not None:
            self._damage.adopt_epoch(self.job, epoch)
        self.members.adopt_epoch(epoch, now)

    # --- questions

    @property
    def ended(self) -> bool:
        return self.ending and (self.epoch is None or self.epoch.cause == END)

    @property
    def epoch_number(self) -> int:
        """Of the newest epoch; 0: none."""
        return self.epoch.number if self.epoch is not None else 0

    def owned_blocks(self, key: str) -> int:
        """Number of blocks that a shard owns in the newest epoch."""
        return owned_count(self.epoch, key)

    @property
    def recovering(self) -> list[str]:
        """Members whose blocks nobody owns yet."""
        return sorted({failure.key for failure in self.members.failures} | self._orphans.keys())

    @property
    def waits_for(self) -> str:
        """What keeps it from going on, in words; empty: nothing."""
        if self.problem or self.job is None:
            return self.problem
        return describe_wait(self.job, self.epoch, self.members, bool(self._orphans))

    # --- when something is due

    def wake_after(self, now: float) -> float:
        """Seconds until ``TimePassed`` may have something to do; infinity: not before another event."""
        if self.job is None or self.ended or self.replaced_by:
            return NEVER
        if self.ending:
            return self._not_before - now
        if self.epoch is not None and self._moves.unsaved_leavers(self.epoch):
            return self._not_before - now
        suspects = [failure.allowed for failure in self.members.suspects()]
        return max(min([self._epoch_due(), self._move_due(), *suspects]), self._not_before) - now

    def _epoch_due(self) -> float:
        """When the next epoch has to be created."""
        if self.epoch is None:
            shards = self.members.arrivals_of(Role.SHARD)
            enough = self.job is not None and len(shards) >= self.job.shards
            return max(arrival.since for arrival in shards) if enough else NEVER
        if not self._leads or self._moves.moved is not None:
            return 0.0
        failed = [self._damage.since, *(failure.allowed for failure in self.members.proved_dead())]
        failed += [self._rollback.since] if self.epoch.shards else []  # else it waits for some
        times = [since + FAILURE_BATCH for since in failed]
        if not self._moves.in_progress:
            times.append(self._admission_due(bool(self.epoch.shards)))
            times += [arrival.since + MEMBER_BATCH for arrival in self.members.arrivals_of(Role.WORKER)]
            for key, since in self.members.departures.items():
                if not self.owned_blocks(key):
                    times.append(since + MEMBER_BATCH)
        return min(times, default=NEVER)

    def _admission_due(self, survivors: bool) -> float:
        return admission_due(self.job, self.members, survivors)

    def _move_due(self) -> float:
        """When live moves may be looked for: all is quiet, and there may be something to move."""
        epoch = self.epoch
        if epoch is None or self._loaded != epoch.number or self.members.failures:
            return NEVER
        return self._moves.next_due(epoch)

    # --- decisions

    def _decide(self, now: float) -> Actions:
        if self.job is None or now < self._not_before or self.ended or self.replaced_by:
            return ()
        if self.ending and self.epoch is not None:
            return (CommitEpoch(last_epoch(self._pending_changes(self.job, self.epoch, now))),)
        saves = self._moves.save_leavers(self.epoch) if self.epoch is not None else ()
        if saves:
            return saves
        due = tuple(f.report.member for f in self.members.suspects() if f.allowed <= now)
        if due:
            return (ConfirmSuspects(due),)
        if self._epoch_due() <= now:
            return (self._preparation.start(self._plan_epoch(self.job, now)),)
        if self.epoch is not None and self._move_due() <= now:
            return self._moves.plan_slice(self.job, self.epoch, now)
        return ()

    def _plan_epoch(self, job: Job, now: float) -> CommitEpoch:
        if self.epoch is None:
            shards = [arrival.member for arrival in self.members.arrivals_of(Role.SHARD)]
            workers = [arrival.member for arrival in self.members.arrivals_of(Role.WORKER)]
            return CommitEpoch(first_epoch(self.author, job, shards, workers))
        pending = self._pending_changes(job, self.epoch, now)
        if not self._leads:
            return CommitEpoch(leader_epoch(pending))
        return CommitEpoch(next_epoch(pending), pending.failures)

    def _pending_changes(self, job: Job, epoch: Epoch, now: float) -> PendingChanges:
        return PendingChanges(
            author=self.author,
            job=job,
            epoch=epoch,
            newest_failure=self._newest_failure,
            failures=tuple(self.members.proved_dead()),
            moved=self._moves.moved,
            levels_traffic=self._moves.levels_traffic,
            shards=tuple(arrival.member for arrival in self.members.arrivals_of(Role.SHARD)),
            workers=tuple(arrival.member for arrival in self.members.arrivals_of(Role.WORKER)),
            admit_without_survivors=self._admission_due(survivors=False) <= now,
            departures=frozenset(self.members.departures),
            finished=frozenset(self.members.finished),
            orphans=dict(self._orphans),
            orphan_failure=self._orphan_failure,
            damage=dict(self._damage.blocks),
            failed_senders=self._damage.failed_senders,
            loaded=self._loaded >= epoch.number,
            former=self._rendezvous.former,
            rollback=self._rollback.request,
        )

    def _commit_with_replicas(self, event: ReplicasCollected, now: float) -> Actions:
        try:
            commit = self._preparation.with_replicas(event, now)
        except SurvivorsSilent as error:
            self._delay_epoch(str(error), now)
            self.outage = ""
            return ()
        return (commit,) if commit is not None else ()

    def _delay_epoch(self, problem: str, now: float) -> None:
        """Everything stays pending, and is tried again later."""
        self.problem = problem
        self._not_before = now + RETRY
