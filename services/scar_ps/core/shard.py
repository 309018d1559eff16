"""One shard: events in, actions out (docs/protocol.md §2 to §7, §10, §11).

Pure and single-threaded: no I/O, no clock, no locks of its own. What it decides is in the handlers, by
subject; here is who handles what, and in front of it which requests have to wait.

A request that cannot be served yet is parked and tried again after every change, in order of arrival, until
its deadline. Those of workers and readers are many, so only :data:`MAX_PARKED` of them may wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scar.errors import Busy, Internal, NotServing, ScarError
from scar.event_log import EventRing
from scar.placement import Member
from scar_ps.core import events, transfer_events
from scar_ps.core.actions import (
    AnswerRequest,
    CrashProcess,
    ParkRequest,
    RefuseRequest,
    RetryRequests,
    ShardAction,
)
from scar_ps.core.admission import Admission
from scar_ps.core.block_arrays import OnProgress
from scar_ps.core.block_store import NewLock, no_lock
from scar_ps.core.clocks import ClockHandler
from scar_ps.core.core_state import CoreState, no_progress
from scar_ps.core.epochs import EpochHandler
from scar_ps.core.events import Event, ShardTick
from scar_ps.core.loads import LoadHandler
from scar_ps.core.membership import MembershipHandler
from scar_ps.core.migrations import MigrationHandler
from scar_ps.core.pushes import PushHandler
from scar_ps.core.replication import ReplicationHandler
from scar_ps.core.requests import MustWait
from scar_ps.core.rounds import RoundHandler
from scar_ps.core.status import StatusHandler

MAX_PARKED = 40  # of workers and readers: each holds a thread of the server; what it waits for needs one, too
NO_LEASE = "this shard's lease has run out"

Handler = Callable[[Any], Any]


class Shard:
    """One life of one shard. Arguments as of :class:`CoreState`."""

    def __init__(
        self,
        member: Member,
        progress: OnProgress = no_progress,
        new_lock: NewLock = no_lock,
        story: EventRing | None = None,
    ) -> None:
        self.state = CoreState(member, progress, new_lock, story)
        admission = Admission(self.state)
        clocks = ClockHandler(self.state, admission)
        self._pushes = PushHandler(self.state, admission)
        self._clocks = clocks
        self._loads = LoadHandler(self.state)
        self._epochs = EpochHandler(self.state, admission, clocks, self._loads)
        self._membership = MembershipHandler(self.state)
        self._migrations = MigrationHandler(self.state, admission)
        self._rounds = RoundHandler(self.state, admission, clocks)
        self._replication = ReplicationHandler(self.state, admission)
        self._status = StatusHandler(self.state, self._loads, self._rounds, self._replication)
        self._handlers: dict[type[Event], Handler] = {ShardTick: self._handle_tick}
        self._handlers |= self._worker_handlers() | self._epoch_handlers()
        self._handlers |= self._round_handlers() | self._replication_handlers()

    def _worker_handlers(self) -> dict[type[Event], Handler]:
        return {
            events.PushReceived: self._pushes.receive_push,
            events.AcknowledgementDue: self._pushes.await_acknowledgement,
            events.PullRequested: self._pushes.find_pulled,
            events.ClockFinished: self._clocks.finish_clock,
            events.WorkerSettled: self._clocks.settle_worker,
        }

    def _epoch_handlers(self) -> dict[type[Event], Handler]:
        return {
            events.EpochReceived: self._epochs.receive_epoch,
            events.BlocksLoaded: self._loads.install_load,
            events.LoadFailed: self._loads.record_failure,
            events.CopyReceived: self._loads.receive_copy,
            events.JoinAnswered: self._membership.record_join,
            events.StoreChecked: self._membership.record_check,
            transfer_events.FreezeRequested: self._migrations.freeze_blocks,
            transfer_events.FrozenRequested: self._migrations.find_frozen,
            transfer_events.BlocksReceived: self._migrations.keep_incoming,
        }

    def _round_handlers(self) -> dict[type[Event], Handler]:
        return {
            transfer_events.RoundStarted: self._rounds.start_round,
            transfer_events.CandidatesMeasured: self._rounds.record_distances,
            transfer_events.CandidatesRequested: self._rounds.find_candidates,
            transfer_events.BlocksChosen: self._rounds.copy_blocks,
            transfer_events.CopyContinued: self._rounds.next_piece,
            transfer_events.InstallContinued: self._rounds.install_piece,
            transfer_events.ObjectUploaded: self._rounds.record_upload,
            transfer_events.UploadFailed: self._rounds.record_failure,
            transfer_events.RoundFinished: self._rounds.finish_round,
            events.StatusRequested: self._status.summarize,
        }

    def _replication_handlers(self) -> dict[type[Event], Handler]:
        return {
            transfer_events.OutgoingRequested: self._replication.next_outgoing,
            transfer_events.BatchArrived: self._replication.record_arrival,
            transfer_events.BatchFailed: self._replication.record_failure,
            transfer_events.OutgoingCompleted: self._replication.record_completion,
            transfer_events.BatchReceived: self._replication.receive_batch,
            transfer_events.ReplicasClaimed: self._replication.claim_blocks,
            transfer_events.ReplicasReleased: self._replication.release_owner,
        }

    def handle(self, event: Event, now: float) -> list[ShardAction]:
        """What is to be done because of ``event``: work first, the answer last.

        ``now``: seconds of any clock that does not jump.

        The last one is :class:`AnswerRequest`, or :class:`RefuseRequest` or :class:`ParkRequest`; after these
        two nothing has changed.
        """
        self.state.now = now
        try:
            answer: ShardAction = AnswerRequest(self._handlers[type(event)](event))
        except MustWait as reason:
            answer = ParkRequest(str(reason))
        except ScarError as error:
            answer = RefuseRequest(error)
            self.state.story.note(refused=f"{type(error).__name__}: {error.message}")
        work = self.state.actions
        self.state.story.record(now, event, work)
        self.state.actions = []
        return [*work, answer]

    def _handle_tick(self, event: ShardTick) -> None:
        self._loads.start_due()
        self._membership.start_due(event.leased)
        self._rounds.abandon_overdue()

    def saved_age(self, now: float) -> float:
        """Seconds since the last committed round; -1: none yet. For any thread."""
        saved_at = self._rounds.saved_at
        return -1.0 if saved_at is None else now - saved_at


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """An event with somebody who waits for its answer until ``deadline``.

    ``limited``: a worker's or a reader's. It is served with a valid lease only, and counts among those of
    which only so many may wait.
    """

    number: int
    event: Any
    deadline: float
    limited: bool = False


@dataclass(frozen=True, slots=True)
class ParkedRequest:
    """``reason``: what it waits for, in words."""

    request: ShardRequest
    reason: str


class RequestQueue:
    """In front of one shard. ``handle_event`` is its ``handle``."""

    def __init__(self, handle_event: Callable[[Any, float], list[ShardAction]]) -> None:
        self._handle_event = handle_event
        self._parked: list[ParkedRequest] = []

    def __len__(self) -> int:
        return len(self._parked)

    def handle(self, request: ShardRequest, now: float, leased: bool) -> list[ShardAction]:
        """The shard's actions. ``leased``: it may serve workers and readers."""
        if request.limited and not leased:
            return [RefuseRequest(NotServing(NO_LEASE))]
        try:
            actions = self._handle_event(request.event, now)
        except Exception as error:
            return self._refuse_unexpected(request, error)
        answer = actions[-1]
        if isinstance(answer, ParkRequest):
            return [*actions[:-1], self._park(request, answer, now)]
        if self._parked and isinstance(answer, AnswerRequest) and request.event.changes:
            return [*actions, self._take_parked(now)]
        return actions

    @staticmethod
    def _refuse_unexpected(request: ShardRequest, error: Exception) -> list[ShardAction]:
        internal = Internal(f"{type(error).__name__} in the apply thread")
        internal.__cause__ = error
        return (
            [CrashProcess(error), RefuseRequest(internal)]
            if request.event.changes
            else [RefuseRequest(internal)]
        )

    def _park(self, request: ShardRequest, answer: ParkRequest, now: float) -> ShardAction:
        self.drop_expired(now)
        limited = sum(parked.request.limited for parked in self._parked)
        if request.limited and limited >= MAX_PARKED:
            return RefuseRequest(
                Busy(f"{MAX_PARKED} calls are waiting already, this one for {answer.reason}")
            )
        self._parked.append(ParkedRequest(request, answer.reason))
        return answer

    def _take_parked(self, now: float) -> RetryRequests:
        self.drop_expired(now)
        numbers = tuple(parked.request.number for parked in self._parked)
        self._parked = []
        return RetryRequests(numbers)

    def drop_expired(self, now: float) -> None:
        """Nobody waits for these any more."""
        self._parked = [parked for parked in self._parked if parked.request.deadline > now]

    @property
    def waiting_reason(self) -> str:
        """What the oldest parked request waits for; empty: nothing waits."""
        return next((parked.reason for parked in self._parked if parked.reason), "")
