"""SSP and ASP: what workers keep and give back where no clock says what a copy contains."""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scar import tables
from scar._client.copy_sender import SEND_SECONDS, SENDERS, CopySender
from scar._client.core.comparisons import RecoveredBlocks, take_recovered
from scar._client.core.held_copies import HeldCopies, OwedCopy
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar._client.core.pulled_tables import KEPT_BY_CLOCKS, PulledTables
from scar._client.core.pushes import ShardPush, TablePush
from scar._client.core.resend_buffer import ResendBuffer
from scar.blocks import BlockState, Ids
from scar.errors import InvalidRequest, NotServing
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.strategies import PUSHES_KEPT
from scar.tables import Job, Table
from scar_ps.core.events import PullRequested
from scar_recovery.core.actions import CollectOffers, CommitEpoch
from scar_recovery.core.epoch_intent import EpochIntent
from scar_recovery.core.epoch_preparation import EpochPreparation
from scar_recovery.core.events import OffersCollected
from scar_runtime.failure_records import FailureRecord, TableDelta, WorkerReport
from tests.unit.ps_support import job, push, sender, started

TABLES = (Table("w", (6, 2)), Table("v", 4), Table("m", 4, rule=tables.momentum(0.1)))
JOB = Job("test", TABLES, workers=2, consistency="asp", sources="workers")
SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(2))
ME, PEER = (Member(Role.WORKER, f"worker-{number}", f"{number:012x}") for number in range(2))
EVERY = {"w": np.arange(6, dtype=np.uint32)}


# --- pushes that are kept
# --------------------------------------------------------------------------------------------------------


def one_push(push_id: int, clock: int = 0, *names: str) -> ShardPush:
    block = TablePush(np.zeros(1, np.uint32), np.zeros(2, np.float32))
    return ShardPush(push_id, clock, dict.fromkeys(names or ("w",), block))


class Stream:
    """A push stream and the pulls of its worker."""

    def __init__(self) -> None:
        self.pulled = PulledTables()
        self.buffer = ResendBuffer(until_closed=False, pulled=self.pulled)
        self.released: list[int] = []

    def push(self, one: ShardPush) -> None:
        self.buffer.append(one)
        head = self.buffer.next_push()
        assert head is not None
        self._note(self.buffer.acknowledge(head.seq, 0))

    def pull(self, *names: str) -> None:
        number = self.pulled.begin_pull(names)
        self.end(number, *names)

    def end(self, number: int, *names: str) -> None:
        for name in names:
            self.pulled.hold_pull(name, number)
        self._note(self.buffer.release_pulled())

    def _note(self, released: list[ShardPush]) -> None:
        self.released += [one.push_id for one in released]

    @property
    def kept(self) -> list[int]:
        return [one.push_id for one in self.buffer.pushes()]


def test_a_push_is_kept_until_a_later_pull_of_its_tables_is_there() -> None:
    stream = Stream()
    stream.push(one_push(1))
    assert (stream.kept, stream.released) == ([], [1]), "a table that is never pulled whole"
    stream.pull("w")
    stream.push(one_push(2))
    under_way = stream.pulled.begin_pull(["w"])
    stream.push(one_push(3))
    assert stream.kept == [2, 3]
    assert stream.buffer.idle
    assert stream.buffer.empty, "nobody waits for what is only kept"
    stream.end(under_way, "w")
    assert (stream.kept, stream.released) == ([3], [1, 2]), "3 came after the shard may have answered"
    assert stream.buffer.see_clock(9) == [], "clocks say nothing here"
    stream.pull("w")
    assert stream.kept == []


def test_every_table_of_a_push_has_to_be_pulled() -> None:
    stream = Stream()
    stream.pull("w", "v")
    stream.push(one_push(1, 0, "w", "v", "m"))
    stream.pull("w")
    assert stream.kept == [1]
    stream.pull("v")
    assert stream.kept == [], "of m, which has slots, there is no copy"


def test_what_is_not_pulled_again_is_kept_for_some_clocks() -> None:
    stream = Stream()
    stream.pull("w")
    for clock in range(PUSHES_KEPT + 3):
        stream.push(one_push(clock + 1, clock))
    assert stream.kept == list(range(3, PUSHES_KEPT + 4))
    assert stream.released == [1, 2]


def test_what_a_value_that_was_put_back_contains_is_kept_whatever_is_pulled() -> None:
    """Its source may fail."""
    stream = Stream()
    stream.pull("w")
    contained = replace(one_push(4), acked=True, pulls=KEPT_BY_CLOCKS)
    stream.buffer.replace_pushes([contained])
    stream.pull("w")
    assert stream.kept == [4]


# --- copies
# --------------------------------------------------------------------------------------------------------


def epoch(number: int, *moved: BlockGroup, workers: tuple[Member, ...] = (ME, PEER)) -> Epoch:
    owners = {table.name: np.arange(table.blocks, dtype=np.uint16) % 2 for table in TABLES}
    return Epoch(number, "a", "test", SHARDS, workers, owners, moved)


def pull(number: int, mine: int, others: int, at: int = 1) -> PullBuffer:
    """A whole table in epoch ``at``; each shard says that it had so many pushes of both workers."""
    pulled = PullBuffer(JOB.table("w"))
    pulled.flat[:] = number
    pulled.number = number
    for shard in range(2):
        blocks = np.flatnonzero(np.arange(6) % 2 == shard)
        pulled.parts.append(PulledPart(blocks, at, 5, {ME.key: mine, PEER.key: others}))
    return pulled


def restored(
    blocks: list[int], mine: int, others: int, source: BlockSource = BlockSource.WORKER
) -> BlockGroup:
    contents = {ME.key: mine, PEER.key: others}
    ids = np.array(blocks, np.uint32)
    return BlockGroup("w", ids, 5, contents, former_owner=SHARDS[1].key, source=source, sender=ME.key)


def offers(held: HeldCopies, wanted: dict[str, Ids] = EVERY) -> dict[int, tuple[int, int]]:
    """Block -> how many pushes of both workers are in what is offered. Only a look: recovery is not told."""
    states = copy(held).offer_blocks(wanted)
    return {
        int(block): (state.watermark[ME.key], state.watermark[PEER.key])
        for state in states
        for block in state.ids
    }


@pytest.fixture
def held() -> HeldCopies:
    holding = HeldCopies(JOB, ME.key)
    holding.follow_epoch(epoch(1), 4)
    return holding


def test_the_pull_that_began_last_is_the_copy(held: HeldCopies) -> None:
    assert held.keep_pull(pull(2, 4, 4), 7)
    assert not held.keep_pull(pull(1, 3, 3), 7), "one ahead that has ended later"
    assert offers(held) == dict.fromkeys(range(6), (4, 4))
    assert held.keep_pull(pull(3, 5, 4), 8)
    assert offers(held) == dict.fromkeys(range(6), (5, 4))


def test_what_was_put_back_voids_copies_that_contain_more(held: HeldCopies) -> None:
    held.keep_pull(pull(1, 4, 4), 7)
    held.follow_epoch(epoch(2, restored([1, 3], 4, 6)), 7)
    assert offers(held) == dict.fromkeys(range(6), (4, 4)), "the other's copy is newer: this one is its past"
    held.follow_epoch(epoch(3, restored([0, 1], 9, 3, BlockSource.OBJECT)), 7)
    assert offers(held) == dict.fromkeys(range(2, 6), (4, 4)), "it lacks a push that this copy has"
    assert held.keep_pull(pull(2, 9, 9), 8) is False, "it was pulled before"
    held.keep_pull(pull(3, 9, 9, at=3), 8)
    assert offers(held) == dict.fromkeys(range(6), (9, 9))


def test_what_was_put_back_voids_nothing_that_another_shard_had_sent_later(held: HeldCopies) -> None:
    """It dies again at once, and nobody else has what this worker has given back."""
    ahead = pull(1, 4, 4)
    ahead.parts[0] = replace(ahead.parts[0], watermark={ME.key: 4, PEER.key: 5})
    held.keep_pull(ahead, 7)
    held.follow_epoch(epoch(2, restored([1, 3], 4, 4)), 7)
    assert offers(held) == {0: (4, 5), 2: (4, 5), 4: (4, 5)} | dict.fromkeys((1, 3, 5), (4, 4))
    held.follow_epoch(epoch(3, restored([0, 1], 4, 4)), 7)
    assert offers(held) == {2: (4, 5), 4: (4, 5)} | dict.fromkeys((1, 3, 5), (4, 4))


def test_what_was_offered_is_sent_and_nothing_of_another_state(held: HeldCopies) -> None:
    held.keep_pull(pull(1, 4, 4), 7)
    held.offer_blocks(EVERY)
    held.keep_pull(pull(2, 5, 5), 7)
    assert held.follow_epoch(epoch(2, restored([1, 2], 5, 5)), 7) == []
    held.offer_blocks(EVERY)
    owed = held.follow_epoch(epoch(3, restored([1, 2], 5, 5)), 7)
    assert {one.owner: one.gather_parts()["values"].tolist() for one in owed} == {
        SHARDS[0].key: [2.0] * 2,
        SHARDS[1].key: [2.0] * 2,
    }
    assert [one.as_restored().behind for one in owed] == [False, False]
    held.follow_epoch(epoch(4, workers=(ME,)), 7)
    assert [one.as_restored().behind for one in owed] == [True, True], "a worker has left since"


def test_nobody_compares_what_others_may_have_pushed_to_since(held: HeldCopies) -> None:
    pulled = pull(1, 4, 4)
    pulled.clock = 5
    after = epoch(2, restored([1], 4, 4), restored([2], 3, 3, BlockSource.OBJECT))
    assert [blocks.ids.tolist() for _, blocks in take_recovered(after, {"w": pulled}, 5)] == [[2]]
    assert not pulled.holds_newest(np.array([1], np.uint32), 5)


@pytest.mark.parametrize(
    ("error", "number", "squared"), [(None, 2, 0.0), (None, 3, None), (InvalidRequest("no"), 2, None)]
)
def test_the_sender_reports_what_arrived_as_it_was(
    held: HeldCopies, error: Exception | None, number: int, squared: float | None
) -> None:
    """``number``: of the epoch that is followed when the new owner has answered."""
    held.keep_pull(pull(1, 4, 4), 7)
    held.offer_blocks(EVERY)
    (owed,) = held.follow_epoch(epoch(2, restored([1], 4, 4)), 7)
    told: list[tuple[RecoveredBlocks, float | None]] = []
    sending = sender_to(error, number, told)
    sending._send_copy(owed)
    ((blocks, distance),) = told
    assert (blocks.ids.tolist(), blocks.epoch, blocks.sent, distance) == ([1], 2, True, squared)


def test_an_owner_that_has_died_as_well_keeps_no_other_waiting() -> None:
    """Each waits for a source only so long; the dead one is known to be only with the next epoch."""
    state = BlockState("w", np.arange(6, dtype=np.uint32), 3)
    dead, alive = (shard.key for shard in SHARDS)
    pulled = pull(1, 4, 4)
    owed = [OwedCopy(2, dead, state, pulled) for _ in range(2 * SENDERS)]
    arrived = threading.Event()

    def restore_dead(_chunks: Any, _seconds: float) -> None:
        raise NotServing("nobody answers")

    def restore(chunks: Any, _seconds: float) -> None:
        assert list(chunks)
        arrived.set()

    links = {dead: SimpleNamespace(restore=restore_dead), alive: SimpleNamespace(restore=restore)}
    view: Any = SimpleNamespace(links=SimpleNamespace(find=links.get), lock=threading.RLock(), number=2)
    recovery: Any = None
    sending = CopySender(view, ME, HeldCopies(JOB, ME.key), recovery)
    sending.send_copies([*owed, OwedCopy(2, alive, state, pulled)])
    try:
        assert arrived.wait(SEND_SECONDS / 2)
    finally:
        sending.close()


def sender_to(error: Exception | None, number: int, told: list[Any]) -> CopySender:
    def restore(chunks: Any, seconds: float) -> None:
        assert list(chunks)
        if error is not None:
            raise error

    link = SimpleNamespace(restore=restore)
    view: Any = SimpleNamespace(
        links=SimpleNamespace(find=lambda key: link), lock=threading.RLock(), number=number
    )
    recovery: Any = None
    return CopySender(view, ME, HeldCopies(JOB, ME.key), recovery, lambda *report: told.append(report))


# --- shards and recovery
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["ssp", "asp"])
def test_what_a_shard_says_of_its_values_stays_true_while_they_are_sent(consistency: str) -> None:
    spec = job(consistency=consistency, sources="workers")
    shard, _ = started(spec, workers=2)
    push(shard, 0, 1, None, np.ones(12), push_id=4)
    found = shard.handle(PullRequested(sender(1), 1, 0, [("w", None)], contents=True))
    push(shard, 1, 1, None, np.ones(12), push_id=9)
    (part,) = found.parts
    assert part.store.values.tolist() == [1.0] * 12
    assert list(found.contents) == [{sender(0).key: 4}]
    some = shard.handle(PullRequested(sender(1), 1, 0, [("w", np.array([1], np.uint32))], contents=True))
    assert list(some.contents) == [None], "nobody keeps it"


def test_comparisons_of_what_workers_have_sent_add_up() -> None:
    """Each of two workers puts half of the blocks back; others are compared by both."""
    record = FailureRecord(1, sources={"worker": 6, "object": 3})
    halves = [TableDelta("w", 0.0, 3, sent=True), TableDelta("w", 9.0, 3)]
    one = record.with_reports([WorkerReport("a", delta=tuple(halves))])
    assert (one.delta_norm, one.exact_blocks) == (3.0, 6)
    both = one.with_reports([WorkerReport("b", delta=tuple(halves))])
    assert (both.delta_norm, both.exact_blocks) == (3.0, 9)


def test_who_did_not_answer_is_named_in_the_ledger() -> None:
    before = epoch(1)
    for consistency, damage in (
        ("asp", (f"{PEER.key} did not say what it holds: it was no source",)),
        ("bsp", ()),
    ):
        asked = replace(JOB, consistency=consistency)
        intent = EpochIntent(2, "a", asked, before, SHARDS[:1], (ME, PEER), "failure", dead=(SHARDS[1].key,))
        preparation = EpochPreparation()
        assert isinstance(preparation.start(CommitEpoch(intent)), CollectOffers)
        commit = preparation.with_answer(OffersCollected(2, (), (PEER.key,)))
        assert commit is not None
        assert commit.intent.damage == damage
