"""When is a round run, what does it save, when does it count? A pure core: events and times come in, actions
go out.

A round goes through these stages: distances of all shards; for `priority`, counts of their keys until the
threshold is known; objects of those that answered; one manifest; and `FinishRound` for every shard that had
begun. A shard that answers late or not at all misses the round; a round commits what is there. Nothing exists
before its manifest is created, and no two coordinators create the same number: who loses goes on from the
winner's.

The running checkpoint begins as x(0), so a job without any manifest is restorable. Times are monotonic
seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from scar.event_log import EventRing
from scar.placement import Epoch
from scar.tables import Job
from scar_checkpoint.core.block_choice import ask_shards, choose_blocks
from scar_checkpoint.core.events import (
    COMMITTED,
    FAILED,
    UNCHANGED,
    AbandonRound,
    BlocksSaved,
    ClockTicked,
    CommitEvent,
    CommitFailed,
    CommitManifest,
    CoordinatorAction,
    CoordinatorEvent,
    DistancesMeasured,
    EpochAdopted,
    KeysCounted,
    LeadershipGained,
    LeadershipLost,
    ManifestCommitted,
    ManifestTaken,
    ObjectsCompacted,
    ReadFailed,
    RoundDone,
    RoundTriggered,
    ShardEvent,
    ShardFinished,
    ShardRefused,
    finish_round,
    measure_distances,
)
from scar_checkpoint.core.manifest_chain import ManifestChain
from scar_checkpoint.core.round_schedule import RoundSchedule
from scar_checkpoint.core.rounds import ActiveRound, RoundStage, RoundSummary, RoundTicket, new_round
from scar_checkpoint.core.takeover import Takeover
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint

HISTORY = 16
LEFT = "it left the cluster"
RESIGNED = "this coordinator does not lead any more"


class Coordinator:
    """Rounds of one job. ``author`` signs manifests; ``timeout`` is for each stage of a round."""

    def __init__(self, job: Job, author: str, timeout: float = 30.0, story: EventRing | None = None) -> None:
        self.job = job
        self.story = story or EventRing()
        self.leading = False
        self.epoch: Epoch | None = None
        self.chain = ManifestChain(job, author)
        self.schedule = RoundSchedule(job)
        self.recent: deque[RoundSummary] = deque(maxlen=HISTORY)
        self._author = author
        self._timeout = timeout
        self._takeover = Takeover()
        self._round: ActiveRound | None = None
        self._last_round = 0
        self._tickets: list[RoundTicket] = []

    def handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
        """What to do about it."""
        actions = self._handle(event, now)
        self.story.record(now, event, actions)
        return actions

    @property
    def problem(self) -> str:
        """Why there are no rounds at the moment; empty: nothing is wrong."""
        refusing = self._round.refusing_text if self._round is not None else ""
        return self._takeover.problem or self.schedule.problem or refusing

    def _handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
        match event:
            case ClockTicked():
                return self._check_time(now)
            case LeadershipGained():
                return self._lead(event, now)
            case ReadFailed(reason):
                self._takeover.record_failure(reason, now)
                return []
            case LeadershipLost():
                return self._resign(now)
            case EpochAdopted(epoch):
                return self._adopt_epoch(epoch, now)
            case RoundTriggered(ticket):
                return self._accept_ticket(ticket, now)
            case ObjectsCompacted(rewrite):
                self.story.note(waits_for="the next manifest")
                self.chain.rewrite = rewrite
                return []
            case ManifestCommitted() | ManifestTaken() | CommitFailed():
                return self._handle_commit(event, now)
            case _:
                return self._handle_shard(event, now)

    # --- leading, epochs, requests of people, time

    def _lead(self, event: LeadershipGained, now: float) -> list[CoordinatorAction]:
        self.leading = True
        self._takeover.end()
        self._follow_manifest(event.running, event.number)
        self.schedule.resume(event.running, now)
        self.chain.committed_at = now - event.age if event.age >= 0 else None
        return self._begin_round(now)

    def _resign(self, now: float) -> list[CoordinatorAction]:
        """End the round and whatever waits for one."""
        self.leading = False
        self._takeover.end()
        actions: list[CoordinatorAction] = []
        current = self._round
        if current is not None:
            actions.append(AbandonRound(current.number))
            if current.answered_at is not None and current.stage is not RoundStage.FINISHING:
                actions += self._end_round(current, FAILED, RESIGNED, now)
        refused = RoundSummary(0, error=RESIGNED)
        actions += [RoundDone(FAILED, refused, (ticket.number,)) for ticket in self._tickets]
        self._tickets = []
        self._round = None
        return actions

    def _adopt_epoch(self, epoch: Epoch, now: float) -> list[CoordinatorAction]:
        """Shards that left it take no further part in the round; a rollback voids the round."""
        self.epoch = epoch
        self.schedule.follow_epoch(epoch)
        current = self._round
        if current is None:
            return self._begin_round(now)
        if current.stage in (RoundStage.MEASURING, RoundStage.SEARCHING):
            # shards forget what they have measured when they adopt an epoch
            return self._restart_round(current, now)
        if current.stage is not RoundStage.SAVING:
            return []
        if epoch.rollback:
            return self._fail_round(current, "the job was rolled back", now)
        current.drop_shards(current.shards.keys() - {member.key for member in epoch.shards}, LEFT)
        return self._advance(current, now)

    def _accept_ticket(self, ticket: RoundTicket, now: float) -> list[CoordinatorAction]:
        self._tickets.append(ticket)
        if self._round is not None and self._round.waits_for_clock:
            return self._restart_round(self._round, now)
        return self._begin_round(now)

    def _check_time(self, now: float) -> list[CoordinatorAction]:
        current = self._round
        if current is None:
            return [*self._takeover.start_due(now), *self._begin_round(now)]
        if current.waits_for_clock and self.schedule.hasten(now):
            return self._restart_round(current, now)
        actions = self._measure(current, current.take_due(now))
        if current.stage is RoundStage.COMMITTING or current.answered_at is None or now < current.deadline:
            return actions
        if missing := {*current.waiting_for, *current.retry_at}:
            self.story.note(given_up=current.names_of(missing), stage=current.stage)
        current.drop_shards(missing, f"no answer within {self._timeout:g} s")
        return [*actions, *self._advance(current, now)]

    # --- answers of shards

    def _handle_shard(self, event: ShardEvent, now: float) -> list[CoordinatorAction]:
        """Late answers, and those about another round, change nothing."""
        current = self._round
        if current is None or current.number != event.round or event.shard not in current.waiting_for:
            return []
        match event:
            case DistancesMeasured(_, shard, clock, settled, counts) if current.stage is RoundStage.MEASURING:
                if current.answered_at is None:
                    current.start_deadline(now, self._timeout)
                current.record_distances(shard, clock, settled, counts)
            case KeysCounted(_, shard, within, counts) if current.stage is RoundStage.SEARCHING:
                current.record_counts(shard, within, counts)
            case ShardRefused(_, shard, reason, passing):
                if current.record_refusal(shard, reason, passing, now):
                    self.story.note(retry_in=current.retry_at[shard] - now)
            case BlocksSaved(_, shard, found, copied, stalled) if current.stage is RoundStage.SAVING:
                current.record_object(shard, found, copied, stalled)
            case ShardFinished() if current.stage is RoundStage.FINISHING:
                current.waiting_for.discard(event.shard)
            case _:
                return []
        self.story.note(waiting_for=current.names_of(current.waiting_for))
        return self._advance(current, now)

    # --- answers of the store

    def _handle_commit(self, event: CommitEvent, now: float) -> list[CoordinatorAction]:
        current = self._round
        if current is not None and not current.awaits_commit(event.round):
            current = None  # the answer comes too late for its round
        match event:
            case ManifestCommitted(_, running):
                return self._finish_commit(current, running, now)
            case ManifestTaken():
                return self._follow_winner(current, event, now)
            case CommitFailed(_, reason):
                return [] if current is None else self._fail_round(current, reason, now)

    def _finish_commit(
        self, current: ActiveRound | None, running: RunningCheckpoint, now: float
    ) -> list[CoordinatorAction]:
        if current is None:  # we resigned meanwhile; it exists all the same
            if running.manifest.number > self.chain.number:
                self._follow_manifest(running, running.manifest.number)
            return []
        self.chain.accept_commit(current, running, now)
        return self._succeed(current, COMMITTED, now)

    def _follow_winner(
        self, current: ActiveRound | None, event: ManifestTaken, now: float
    ) -> list[CoordinatorAction]:
        """Of this round's own manifest the answer was lost. An older one of ours (a put that arrived late) is
        a parent like any other. Our objects may be older than somebody else's, so the round fails.
        """
        manifest = event.running.manifest
        if current is not None and manifest.author == self._author and manifest.round == event.round:
            return self._finish_commit(current, event.running, now)
        self._follow_manifest(event.running, event.number)
        if current is None:
            return []
        if manifest.author == self._author:
            return self._commit(current)
        self.schedule.skip_to(manifest.clock)
        done = self._fail_round(current, f"another coordinator has committed manifest {manifest.number}", now)
        if manifest.sealed_for:
            self.schedule.problem = ""  # rounds go on with the epoch of the recovery
        return done

    def _follow_manifest(self, running: RunningCheckpoint, number: int) -> None:
        self.chain.follow_manifest(running, number)
        self._last_round = max(self._last_round, running.manifest.round)

    # --- the course of a round

    def _begin_round(self, now: float) -> list[CoordinatorAction]:
        """What was triggered, else the periodic round at its clock; none before the epoch of a seal."""
        if self._round is not None or not self.leading or self.epoch is None or not self.epoch.shards:
            return []
        is_late = self.epoch.number < self.chain.running.manifest.sealed_for
        if is_late or (not self._tickets and now < self.schedule.not_before):
            return []
        ticket = self._tickets.pop(0) if self._tickets else None
        shards = {m.key: m for m in self.epoch.shards if ticket is None or ticket.shard in ("", m.key)}
        if ticket is not None and not shards:
            gone = RoundSummary(0, error=f"{ticket.shard} is in no epoch any more")
            return [RoundDone(FAILED, gone, (ticket.number,)), *self._begin_round(now)]
        self._last_round += 1
        current = new_round(
            self._last_round, self.schedule.checkpoint, ticket, shards, self.schedule.due_clock
        )
        self._round = current
        if ticket:  # nobody has to wait for a clock
            current.start_deadline(now, self._timeout)
        self.story.note(begins="asked for" if ticket else "periodic", selection=current.selection)
        return self._measure(current, shards)

    def _measure(self, current: ActiveRound, shards: Iterable[str]) -> list[CoordinatorAction]:
        assert self.epoch is not None
        current.waiting_for.update(shards)
        return [measure_distances(current, shard, self.epoch.number) for shard in shards]

    def _restart_round(self, current: ActiveRound, now: float) -> list[CoordinatorAction]:
        """The round under way gives way to another one, for which waits whoever waited for it."""
        if current.ticket is not None:
            self._tickets.insert(0, current.ticket)
        self._round = None
        return [AbandonRound(current.number), *self._begin_round(now)]

    def _advance(self, current: ActiveRound, now: float) -> list[CoordinatorAction]:
        """The next stage, when nobody is missing any more."""
        if current.waiting_for or current.retry_at:
            return []
        if current.stage in (RoundStage.MEASURING, RoundStage.SEARCHING):
            return self._choose_blocks(current, now)
        if current.stage is RoundStage.SAVING:
            if current.keep_listed(self.chain.running):
                return self._commit(current)
            if current.missed:
                return self._fail_round(current, current.missed_text, now)
            return self._succeed(current, UNCHANGED, now)
        if current.stage is RoundStage.FINISHING:
            self._round = None
            return [AbandonRound(current.number), *self._begin_round(now)]
        return []

    def _choose_blocks(self, current: ActiveRound, now: float) -> list[CoordinatorAction]:
        if not current.choosing:
            return self._fail_round(current, f"no shard took part: {current.missed_text}", now)
        assert self.epoch is not None
        chosen = choose_blocks(current, self.job, self.chain.number + 1)
        if chosen is None:
            current.decided_at = now
            return self._succeed(current, UNCHANGED, now)
        self.story.note(chosen=chosen)
        return [*ask_shards(current, chosen, self.chain.running, self.epoch.number, now, self._timeout)]

    def _commit(self, current: ActiveRound) -> list[CoordinatorAction]:
        assert self.epoch is not None
        current.stage = RoundStage.COMMITTING
        running = self.chain.build_next(current, self.epoch, self.schedule.plan)
        return [CommitManifest(current.number, running, self.job.checkpoint.keep)]

    # --- the end of a round

    def _succeed(self, current: ActiveRound, result: str, now: float) -> list[CoordinatorAction]:
        """``result``: committed or unchanged."""
        self.schedule.record_success(current, now)
        no_state = current.selection == "full" and not self.chain.running.manifest.full
        if current.ticket is None and result == COMMITTED and no_state:
            self.schedule.repeat_soon(current, now)
        self.story.note(next_clock=self.schedule.due_clock)
        why = current.unchanged_text if result == UNCHANGED else ""
        return self._end_round(current, result, why, now)

    def _fail_round(self, current: ActiveRound, why: str, now: float) -> list[CoordinatorAction]:
        self.story.note(retry_in=self.schedule.record_failure(why, now))
        return self._end_round(current, FAILED, why, now)

    def _end_round(self, current: ActiveRound, result: str, why: str, now: float) -> list[CoordinatorAction]:
        """Tell whoever waits, and every shard that has a round open."""
        manifest = self.chain.running.manifest if result == COMMITTED else None
        summary = current.summarise(self.job.blocks, now, manifest, why, result == UNCHANGED)
        self.recent.append(summary)
        members = {member.key for member in self.epoch.shards} if self.epoch else set()
        told = [shard for shard in current.open_shards() if shard.key in members]
        current.start_finishing(told, now)
        tickets = (current.ticket.number,) if current.ticket else ()
        finish = finish_round(current, told, summary)
        return [RoundDone(result, summary, tickets), *finish, *self._advance(current, now)]
