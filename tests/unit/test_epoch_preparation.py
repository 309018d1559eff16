"""What is asked before an epoch is created, and what is kept until the answers come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from scar.blocks import BlockState
from scar.placement import Epoch, Member, Role
from scar.tables import Job, Table
from scar_recovery.core.actions import CollectOffers, CollectReplicas, CommitEpoch, ReadClocks
from scar_recovery.core.block_sources import ReplicaCopy, WorkerOffer
from scar_recovery.core.epoch_intent import EpochIntent
from scar_recovery.core.epoch_preparation import EpochPreparation
from scar_recovery.core.events import ClocksRead, OffersCollected, ReplicasCollected


def commit(number: int, rewinds: bool) -> Any:
    intent = SimpleNamespace(number=number, restarts_clocks=rewinds, previous=None, shards=())
    return SimpleNamespace(intent=intent)


def test_an_epoch_without_a_question_is_not_kept() -> None:
    preparation = EpochPreparation()
    plain = commit(2, rewinds=False)
    assert preparation.start(plain) is plain
    assert preparation.with_answer(ClocksRead(2, 7)) is None


def test_workers_are_asked_after_shards_where_replicas_have_what_they_lack() -> None:
    shards = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(2))
    peer = Member(Role.WORKER, "worker-0", "f" * 12)
    job = Job("test", (Table("w", 4),), sources="workers", replicas=1, replicate="missing")
    owners = {"w": np.array([0, 1, 0, 1], np.uint16)}
    before = Epoch(1, "a", "test", shards, (peer,), owners)
    intent = EpochIntent(2, "a", job, before, shards[:1], (peer,), "failure", dead=(shards[1].key,))
    preparation = EpochPreparation()
    assert isinstance(preparation.start(CommitEpoch(intent)), CollectReplicas)
    copy = ReplicaCopy(shards[0], BlockState("w", np.array([1], np.uint32)))
    question = preparation.with_replicas(ReplicasCollected(2, (copy,), ()), 0.0)
    assert isinstance(question, CollectOffers)
    assert question.blocks["w"].tolist() == [1, 3]
    offer = WorkerOffer(peer, BlockState("w", np.array([3], np.uint32)))
    answer = preparation.with_answer(OffersCollected(2, (offer,), ()))
    assert answer is not None
    assert (answer.copies, answer.offers) == ((copy,), (offer,))
    assert preparation.with_answer(OffersCollected(2, (offer,), ())) is None


def test_an_epoch_waits_for_the_answer() -> None:
    preparation = EpochPreparation()
    assert preparation.start(commit(2, rewinds=True)) == ReadClocks(2, ())
    assert preparation.start(commit(3, rewinds=False)), "which replaces it"
    assert preparation.with_answer(ClocksRead(2, 7)) is None
