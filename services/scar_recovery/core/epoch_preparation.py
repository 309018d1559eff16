"""What members must say before an epoch can be created: clocks for a rewind, copies of lost blocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scar.placement import Epoch, by_table
from scar_recovery.core.actions import (
    CollectOffers,
    CollectReplicas,
    CommitEpoch,
    PlannerAction,
    ReadClocks,
)
from scar_recovery.core.epoch_intent import EpochIntent, GlobalIds
from scar_recovery.core.events import ClocksRead, OffersCollected, ReplicasCollected

SURVIVOR_SECONDS = 5.0  # to hear from every survivor what it keeps; a hung one is found dead before
# clocks beyond the open one: some shard may be one ahead, a worker one ahead of it, one more to be beyond
RESTART_AHEAD = 3


class SurvivorsSilent(Exception):
    """Some survivors did not say which copies they keep, and there is time to ask again."""


class EpochPreparation:
    """One epoch at a time: :meth:`start` says what to ask, the answers say what to commit."""

    def __init__(self) -> None:
        self._waiting: CommitEpoch | None = None
        self._asked_number = 0  # epoch whose survivors do not answer
        self._asked_since = 0.0

    def start(self, commit: CommitEpoch) -> PlannerAction:
        """The first question, or the commit itself when nothing has to be asked."""
        question = _first_question(commit.intent)
        self._waiting = commit if question is not None else None
        return question or commit

    def with_answer(self, event: ClocksRead | OffersCollected) -> CommitEpoch | None:
        """None: nobody waits for this answer any more."""
        return self._with_offers(event) if isinstance(event, OffersCollected) else self._with_clock(event)

    def _with_clock(self, event: ClocksRead) -> CommitEpoch | None:
        """Workers restart with a clock that none can have reached while a mark is missing: of the dead one,
        or of who has asked and waits.
        """
        commit = self._take_waiting(event.number)
        if commit is None:
            return None
        asked = commit.intent.asked
        highest = max(event.highest, asked.clock) if asked is not None else event.highest
        return replace(commit, intent=replace(commit.intent, restart=highest + RESTART_AHEAD))

    def _with_offers(self, event: OffersCollected) -> CommitEpoch | None:
        """Whoever has not answered in time is no source."""
        commit = self._take_waiting(event.number)
        if commit is None:
            return None
        intent = commit.intent
        if intent.job.heals_by_watermark:  # its copies may be the only ones that have what it no longer keeps
            silent = (f"{key} did not say what it holds: it was no source" for key in event.silent)
            intent = replace(intent, damage=(*intent.damage, *silent))
        return replace(commit, offers=event.offers, intent=intent)

    def with_replicas(self, event: ReplicasCollected, now: float) -> PlannerAction | None:
        """The next question, or the commit. Goes on without survivors that have not answered for a while;
        before raises SurvivorsSilent.
        """
        commit = self._take_waiting(event.number)
        if commit is None:
            return None
        if event.silent and not self._timed_out(event.number, now):
            names = ", ".join(event.silent)
            raise SurvivorsSilent(
                f"epoch {event.number} ({commit.intent.cause}) waits for a copy:"
                f" {names} did not say what it keeps of lost blocks"
            )
        commit = replace(commit, copies=event.copies)
        question = _offer_question(commit.intent)
        if question is not None:
            self._waiting = commit
        return question or commit

    def _take_waiting(self, number: int) -> CommitEpoch | None:
        commit, self._waiting = self._waiting, None
        return commit if commit is not None and commit.intent.number == number else None

    def _timed_out(self, number: int, now: float) -> bool:
        if number != self._asked_number:
            self._asked_number = number
            self._asked_since = now
        return now > self._asked_since + SURVIVOR_SECONDS


def _first_question(intent: EpochIntent) -> PlannerAction | None:
    """None: nothing has to be asked."""
    if intent.restarts_clocks:
        return ReadClocks(intent.number, intent.shards)
    previous = intent.previous
    if previous is None or intent.rollback or not intent.restores_blocks:
        return None
    if intent.job.strategy.replicas:
        return _replica_question(intent, previous, _sorted_blocks(intent.lost_blocks()))
    return _offer_question(intent)


def _offer_question(intent: EpochIntent) -> CollectOffers | None:
    """Which workers have to say what they hold; None: none."""
    previous = intent.previous
    wanted = _sorted_blocks({**intent.lost_blocks(), **intent.damaged})
    if previous is None or not (intent.job.strategy.asks_workers and len(wanted)):
        return None
    staying = tuple(
        worker
        for worker in intent.workers
        if worker in previous.workers and worker.key not in intent.failed_senders
    )
    return CollectOffers(intent.number, staying, by_table(intent.job, wanted)) if staying else None


def _sorted_blocks(found: Mapping[str, GlobalIds]) -> GlobalIds:
    return np.sort(np.concatenate([np.empty(0, np.int64), *found.values()]))


def _replica_question(intent: EpochIntent, previous: Epoch, lost: GlobalIds) -> CollectReplicas:
    """Who has to say which copies it keeps of lost blocks."""
    survivors = tuple(member for member in intent.shards if previous.shard_index(member.key) >= 0)
    former_owners = tuple(sorted({*intent.dead, *intent.orphans}))
    return CollectReplicas(intent.number, survivors, former_owners, by_table(intent.job, lost))
