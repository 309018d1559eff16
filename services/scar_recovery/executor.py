"""Carries out what the planner decides, and turns results into events.

Every step can be the last. What was decided is in the store before anybody acts on it, everything can be
repeated, and a successor starts from the newest epoch: :meth:`Executor.take_over`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from scar.errors import NotServing, ScarError
from scar.placement import Epoch, Member, by_table, global_ids
from scar.tables import Job
from scar.wire import tracing
from scar.wire.epoch_messages import epoch_from_proto, epoch_to_proto
from scar_recovery import metrics
from scar_recovery.block_mover import BlockMover
from scar_recovery.core.actions import (
    CollectOffers,
    CollectReplicas,
    CommitEpoch,
    ConfirmSuspects,
    MoveBlocks,
    PlannerAction,
    ReadClocks,
    ReadTraffic,
    SaveShard,
)
from scar_recovery.core.block_sources import NothingSaved, ReplicaCopy, SavedState
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import EpochIntent
from scar_recovery.core.events import (
    ClocksRead,
    DamageFound,
    EpochCommitted,
    EpochLoaded,
    EpochRefused,
    FailureReport,
    JobStarted,
    LeaderReplaced,
    MemberFailed,
    MemberHeard,
    PlannerEvent,
    ReplicasCollected,
    ShardSaved,
    SuspectsAnswered,
    TimePassed,
)
from scar_recovery.core.planner import Actions
from scar_recovery.epoch_log import EpochLog
from scar_recovery.leader_state import LeaderState
from scar_recovery.ledger_writer import LedgerWriter
from scar_recovery.member_calls import call_in_parallel
from scar_recovery.offer_board import OfferBoard
from scar_recovery.recovery_store import RecoveryStore
from scar_recovery.rollback_desk import RollbackDesk
from scar_recovery.shard_client import ShardClient, UnreadableBlocks

COLLECT = 8  # epochs after which old ones are looked for

_log = logging.getLogger(__name__)


class EpochPublisher(Protocol):
    """Who tells the shards (:class:`scar_recovery.epoch_broadcaster.EpochBroadcaster`)."""

    def publish(self, epoch: Epoch) -> None: ...


class Executor:
    """One leadership of one coordinator, from taking over to being replaced.

    ``background``: runs a function in a thread of its own (a move, which may take long). ``save_shard``: has
    a leaving shard saved, and calls back when what would be missed most is safe.
    """

    def __init__(
        self,
        state: LeaderState,
        ledger: LedgerWriter,
        store: RecoveryStore,
        shards: ShardClient,
        background: Callable[[Callable[[], None]], None],
        save_shard: Callable[[Member, Callable[[], None]], None],
    ) -> None:
        self.state = state
        self.ledger = ledger
        self.store = store
        self.shards = shards
        self.epochs = EpochLog(store.read_epoch)
        self.offers = OfferBoard(self.epochs, state.settings.offers)
        self.rollbacks = RollbackDesk(state, store, ledger, self._highest_clock)
        self.publisher: EpochPublisher | None = None
        self._background = background
        self._mover = BlockMover(state, shards)
        self._save_shard = save_shard
        self._silent: list[Member] = []  # did not answer when we took over, and are no suspects yet
        self._collected = 0  # newest epoch when old ones were looked for

    @property
    def job(self) -> Job:
        return self.store.job

    def take_over(self, begins_run: bool) -> None:
        """Read where the job stands. Raises what the store raises; then it is tried again.

        ``begins_run``: somebody starts or resumes the job.
        """
        started = self.state.now()
        protos = self.store.read_recent_epochs()
        history = [epoch_from_proto(proto) for proto in protos]
        records = self.store.read_failures()
        members = [*history[-1].shards, *history[-1].workers] if history else []
        gone, silent = self._ask_who_lives(members)
        newest_failure = self.ledger.take_over(records, history)
        for proto in protos:
            self.epochs.append(proto)
        self.state.post(JobStarted(self.job, tuple(history), newest_failure, begins_run), at=started)
        for member in gone:
            self._post_failure(member, proved=True, evidence="nobody listens at its address")
        self._silent = silent

    def report_silent(self, block_lease: Callable[[str], None]) -> None:
        """Who did not answer when we took over is a suspect from the moment that no heartbeat renews its
        lease any more: it may work, and we may be the ones who are cut off.

        Raises what ``block_lease`` (of a member key) raises; then it is to be tried again.
        """
        while self._silent:
            block_lease(self._silent[-1].key)
            member = self._silent.pop()
            self._post_failure(member, proved=False, evidence="it did not answer a new leader")

    def _post_failure(self, member: Member, proved: bool, evidence: str) -> None:
        self.state.post(MemberFailed(FailureReport(member, proved=proved, evidence=evidence)))

    def _ask_who_lives(self, members: Sequence[Member]) -> tuple[list[Member], list[Member]]:
        """(gone for certain, silent).

        The detector's reports about them may have been taken by the former leader. Whom no detector watches
        nobody has reported.
        """
        members = [member for member in members if self.shards.is_watched(member)]
        asks = (self.shards.is_gone, self.shards.is_serving)
        questions = [partial(ask, member) for ask in asks for member in members]
        answers = call_in_parallel(lambda question: question(), questions)
        refused = answers[: len(members)]
        alive = answers[len(members) :]
        gone = [member for member, no in zip(members, refused, strict=True) if no]
        return gone, [m for m, no, yes in zip(members, refused, alive, strict=True) if not (no or yes)]

    def leads(self) -> bool:
        """Ask the store whether somebody else has created an epoch since our last one.

        Raises what the store raises.
        """
        newest = self.epochs.newest
        if self.store.has_epoch(newest + 1):
            author = self.store.read_epoch(newest + 1).author
            if author != self.state.author:
                self.state.post(LeaderReplaced(author))
        elif newest and not self.store.has_epoch(newest):
            # so much later that our epochs have been collected
            self.state.post(LeaderReplaced("a later leader"))
        return not self.state.replaced_by

    def check_leads(self) -> None:
        """Raises :class:`NotServing` when somebody else does."""
        if not self.leads():
            raise NotServing("this recovery coordinator does not lead any more")

    # --- the loop

    def step(self) -> bool:
        """Do what is due now; False: nothing is. Never raises for a store that is down."""
        actions = self._post(TimePassed())
        todo = list(actions)
        while todo:
            result = self._carry_out(todo.pop(0))
            if result is not None:
                todo.extend(self._post(result))
        return bool(actions)

    def _post(self, event: PlannerEvent) -> Actions:
        before = self.state.problem
        actions = self.state.post(event)
        if self.state.problem not in ("", before):
            number = self.state.epoch_number + 1
            _log.warning("epoch.refused", extra={"number": number, "reason": self.state.problem})
        return actions

    def _carry_out(self, action: PlannerAction) -> PlannerEvent | None:
        """Returns the result; None: it comes later, or was told already."""
        match action:
            case CommitEpoch():
                return self._commit_epoch(action)
            case CollectReplicas():
                return self._collect_replicas(action)
            case CollectOffers():
                return self.offers.collect_offers(action)
            case ReadClocks(number, shards):
                return ClocksRead(number, self._highest_clock(shards))
            case ConfirmSuspects():
                return self._confirm_suspects(action)
            case MoveBlocks():
                self._background(lambda: self._mover.move_blocks(action))
            case ReadTraffic():
                self._background(lambda: self._mover.read_traffic(action))
            case SaveShard(member):
                self._save_shard(member, partial(self._shard_saved, member))
        return None

    # --- epochs

    def _commit_epoch(self, action: CommitEpoch) -> PlannerEvent | None:
        intent = action.intent
        started = self.state.now()
        operation = ("epoch", intent.number)
        kind = "recovery" if intent.dead else "change of members"
        tracing.begin_operation(operation, kind, *(("failure", key) for key in intent.dead))
        try:
            with tracing.trace_span("plan and commit", operation):
                saved = self._seal_checkpoint(intent)
                wanted = epoch_to_proto(draft_epoch(intent, saved, action.copies, action.offers))
                winner = self.store.create_epoch(wanted)
        except ScarError as error:
            return EpochRefused(intent.number, intent.cause, error.message)
        before = self.state.epoch
        epoch = epoch_from_proto(winner)
        self.state.post(EpochCommitted(epoch))
        if self.state.replaced_by:
            return None
        # shards hear of it first, then the ledger, and only then the workers, who will report to it
        if self.publisher is not None:
            self.publisher.publish(epoch)
        seconds = self.state.now() - started
        self.ledger.record_epoch(before, epoch, action if winner is wanted else None, seconds)
        self.epochs.append(winner)
        _report_epoch(epoch, len(action.failures) if winner is wanted else 0, seconds)
        return None

    def _seal_checkpoint(self, intent: EpochIntent) -> SavedState:
        if intent.asked is not None:
            return self.rollbacks.seal_request(intent.asked, self.state.author, intent.number)
        if not intent.reads_checkpoint:
            return NothingSaved()
        suspects = by_table(self.job, intent.damaged[""]) if intent.damaged else {}
        return self.store.seal_checkpoint(intent.rollback, self.state.author, intent.number, suspects)

    def _highest_clock(self, shards: Sequence[Member]) -> int:
        return max(call_in_parallel(self._open_clock, shards), default=0)

    def _open_clock(self, shard: Member) -> int:
        try:
            return self.shards.read_state(shard).clock
        except ScarError:
            return 0  # a shard that does not answer is not ahead of the others by more than a clock

    def _collect_replicas(self, action: CollectReplicas) -> ReplicasCollected:
        answers = call_in_parallel(lambda shard: self._claim_replicas(shard, action), action.survivors)
        pairs = list(zip(action.survivors, answers, strict=True))
        silent = tuple(shard.key for shard, answer in pairs if answer is None)
        copies = tuple(copy for answer in answers if answer for copy in answer)
        return ReplicasCollected(action.number, copies, silent)

    def _claim_replicas(self, shard: Member, action: CollectReplicas) -> list[ReplicaCopy] | None:
        """None: it does not answer."""
        try:
            return self.shards.claim_replicas(shard, action.number - 1, action.former_owners, action.blocks)
        except ScarError as error:
            _log.info("claim.failed", extra={"shard": shard.key, "reason": error.message})
            return None

    # --- suspects, leaving shards

    def _confirm_suspects(self, action: ConfirmSuspects) -> SuspectsAnswered:
        answers = call_in_parallel(self.shards.is_serving, action.members)
        pairs = list(zip(action.members, answers, strict=True))
        alive = tuple(member.key for member, answers_us in pairs if answers_us)
        return SuspectsAnswered(alive, tuple(member.key for member, answers_us in pairs if not answers_us))

    def _shard_saved(self, shard: Member) -> None:
        self.state.post(ShardSaved(shard.key))

    # --- what shards say about epochs (DeliveryListener)

    def shard_adopted(self, key: str, adopted: Mapping[int, int]) -> None:
        """A shard has adopted an epoch. ``adopted``: its open clock when each of the last ones came."""
        self.state.post(MemberHeard(key))
        self.ledger.record_clocks(key, adopted)

    def blocks_unreadable(self, number: int, shard: Member, found: Sequence[UnreadableBlocks]) -> None:
        """A shard cannot load blocks. Those that we cannot read either come from elsewhere.

        Raises what the store raises.
        """
        for one in found:
            ids = self.store.find_unreadable(one.manifest, one.object_key, one.table, one.ids)
            if len(ids):
                blocks = global_ids(self.job, one.table, ids)
                description = f"{len(ids)} blocks at {shard.name}: {one.reason}"
                self.state.post(DamageFound(number, blocks, description))

    def epoch_loaded(self, number: int, clock: int) -> None:
        """Every shard of the newest epoch serves all its blocks."""
        self.ledger.record_loaded(number, clock)
        tracing.end_operation(("epoch", number))
        self.state.post(EpochLoaded(number))

    # --- upkeep

    def maintain_store(self) -> None:
        """Store changed ledger records, find out whether somebody else leads, read new manifests before a
        failure needs them, drop old epochs.

        Raises what the store raises.
        """
        self.ledger.write()
        if not self.leads():  # else a leader that Redis names again tells its old epochs forever
            return
        self.store.prefetch_manifests()
        newest = self.epochs.newest
        if newest >= self._collected + COLLECT:
            self.store.collect_epochs(self.epochs.get(newest))
            self._collected = newest


def _report_epoch(epoch: Epoch, failures: int, seconds: float) -> None:
    metrics.EPOCHS.labels(epoch.cause).inc()
    metrics.COMMIT_SECONDS.observe(seconds)
    metrics.FAILURES.inc(failures)
    counts = {"shards": len(epoch.shards), "workers": len(epoch.workers)}
    counts["moved"] = sum(len(group.ids) for group in epoch.moved)
    told = {"number": epoch.number, "cause": epoch.cause, **counts, "seconds": round(seconds, 4)}
    _log.info("epoch.created", extra=told)
