"""What a worker can give back of the tables that it pulled, and what it no longer can."""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import scar.tables as tables
from scar._client.core.clocks import WorkerClocks
from scar._client.core.comparisons import take_recovered
from scar._client.core.held_copies import HeldCopies
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar._client.worker_pulls import WorkerPulls
from scar.bfloat16 import nearest_short
from scar.blocks import Ids
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Job, Table

JOB = Job(
    "test", [Table("w", (6, 2)), Table("m", 4, rule=tables.momentum(0.1))], workers=2, sources="workers"
)
SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(3))
ME, PEER = (Member(Role.WORKER, f"worker-{number}", f"{number:012x}") for number in range(2))
EVERY = {"w": np.arange(6, dtype=np.uint32)}


def epoch(number: int, *moved: BlockGroup, workers: tuple[Member, ...] = (ME, PEER)) -> Epoch:
    owners = {"w": np.arange(6, dtype=np.uint16) % 3, "m": np.zeros(4, np.uint16)}
    return Epoch(number, "a", "test", SHARDS, workers, owners, moved)


def pull(
    clock: int, number: int = 1, parts: tuple[int, ...] = (0, 1, 2), sent: int | None = None
) -> PullBuffer:
    """A whole table, every value the clock; a part for each of these shards, in the clock ``sent``."""
    pulled = PullBuffer(JOB.table("w"))
    pulled.flat[:] = clock
    pulled.clock = clock
    for shard in parts:
        blocks = np.flatnonzero(np.arange(6) % 3 == shard)
        pulled.parts.append(PulledPart(blocks, number, clock if sent is None else sent, {ME.key: clock}))
    return pulled


def restored(blocks: list[int], clock: int, source: BlockSource = BlockSource.WORKER) -> BlockGroup:
    ids = np.array(blocks, np.uint32)
    return BlockGroup("w", ids, clock, former_owner=SHARDS[1].key, source=source, sender=ME.key)


def offers(held: HeldCopies, wanted: dict[str, Ids] | None = None) -> dict[int, int]:
    """Block -> clock in which it was pulled. Only a look: recovery is not told."""
    states = copy(held).offer_blocks(EVERY if wanted is None else wanted)
    found = {int(block): state.clock for state in states for block in state.ids}
    assert len(found) == sum(len(state.ids) for state in states), "a block is offered twice"
    return dict(sorted(found.items()))


@pytest.fixture
def held() -> HeldCopies:
    holding = HeldCopies(JOB, ME.key)
    holding.follow_epoch(epoch(1), 4)
    return holding


def test_only_the_lost_blocks_are_offered_from_the_newest_pull(held: HeldCopies) -> None:
    held.keep_pull(pull(4), 4)
    held.keep_pull(pull(5), 5)
    assert offers(held, {"w": np.array([1, 4], np.uint32)}) == {1: 5, 4: 5}


def test_a_part_of_another_clock_or_epoch_is_no_source(held: HeldCopies) -> None:
    held.keep_pull(pull(4, sent=5), 4)
    assert offers(held) == {}, "the shard was a clock ahead"
    held.follow_epoch(epoch(2, restored([1], 9)), 4)
    held.keep_pull(pull(4), 4)
    assert offers(held) == dict.fromkeys((0, 2, 3, 4, 5), 4), "an epoch put it back while it was pulled"
    held.follow_epoch(epoch(3, replace(restored([1], 0), source=BlockSource.DONOR)), 4)
    held.keep_pull(pull(4, 2), 4)
    assert len(offers(held)) == 6, "an epoch that puts nothing back changes nothing"
    held.keep_pull(pull(5, 2, parts=(0, 1)), 5)
    assert offers(held) == {0: 5, 1: 5, 2: 4, 3: 5, 4: 5, 5: 4}, "the older pull has the rest"


def test_tables_with_slots_and_pulls_of_some_blocks_are_no_sources(held: HeldCopies) -> None:
    slots = PullBuffer(JOB.table("m"))
    slots.parts.append(PulledPart(np.arange(4), 1, 4, {}))
    some = PullBuffer(JOB.table("w"), np.array([0, 3], np.uint32))
    some.parts.append(PulledPart(np.array([0, 3]), 1, 4, {}))
    for pulled in (slots, some):
        assert not held.can_hold(pulled)
    assert offers(held, EVERY | {"m": np.arange(4, dtype=np.uint32)}) == {}


def slotted(held: HeldCopies, clock: int) -> PullBuffer:
    """A pull of the table with slots, with what this worker has to pull beside it."""
    pulled = PullBuffer(JOB.table("m"))
    pulled.flat[:] = clock
    pulled.clock = clock
    pulled.parts.append(PulledPart(np.arange(4), 1, clock, {ME.key: clock}))
    held.ask_slots(pulled)
    if pulled.slots is not None:  # two shards sent them
        for blocks in (np.array([0, 2]), np.array([1, 3])):
            pulled.slots.add_blocks(blocks, {"slot:velocity": 100 * clock + blocks.astype(np.float32)})
    assert held.can_hold(pulled)
    held.keep_pull(pulled, clock)
    return pulled


def test_slots_come_from_the_workers_that_pull_them() -> None:
    job = replace(JOB, pull_slots=1)
    every = {"m": np.arange(4, dtype=np.uint32)}
    first, second = HeldCopies(job, ME.key), HeldCopies(job, PEER.key)
    for held in (first, second):
        held.follow_epoch(epoch(1), 4)
    assert slotted(first, 4).slots is not None
    other = slotted(second, 4)
    assert other.slots is None
    assert second.offer_blocks(every) == []
    (state,) = first.offer_blocks(every)
    moved = replace(restored([1, 2], 4), table="m", sender=ME.key)
    after = epoch(2, moved, workers=(PEER,))
    (owed,) = first.follow_epoch(after, 4)
    parts = {name: part.tolist() for name, part in owed.gather_parts().items()}
    assert (state.clock, parts) == (4, {"values": [4.0, 4.0], "slot:velocity": [401.0, 402.0]})
    second.follow_epoch(after, 4)
    assert not other.all_present, "what it compares is known, though it gives nothing back"
    assert slotted(second, 5).slots is not None, "it is the first now"


def test_pulls_of_some_blocks_are_held_for_some_clocks_where_replicas_have_the_rest() -> None:
    held = HeldCopies(replace(JOB, replicas=1, replicate="missing"), ME.key)
    held.follow_epoch(epoch(1), 4)

    def some(clock: int, *blocks: int, number: int = 3) -> PullBuffer:
        pulled = PullBuffer(JOB.table("w"), np.array(blocks, np.uint32))
        pulled.flat[:] = clock
        pulled.parts.append(PulledPart(np.array(blocks), number, clock, {ME.key: clock}))
        return pulled

    assert held.can_hold(some(4, 1))
    assert not held.can_hold(PullBuffer(JOB.table("w"), rows=np.array([1], np.uint32)))
    assert held.keep_pull(some(4, 0, 3), 4, told=4)
    assert held.keep_pull(some(5, 1, 3), 5, told=5)
    assert offers(held) == {0: 4, 1: 5, 3: 5}
    (state,) = held.offer_blocks({"w": np.array([1, 2], np.uint32)})
    (owed, *_) = held.follow_epoch(epoch(2, restored([1], 5)), 5)
    assert (state.ids.tolist(), owed.gather_parts()["values"].tolist()) == ([1], [5.0, 5.0])
    held.follow_epoch(epoch(3, restored([2, 3], 4)), 5)
    assert offers(held) == {0: 4, 1: 5, 3: 4}, "younger ones of what was put back are void"
    assert held.keep_pull(some(8, 5), 8, told=7)
    assert offers(held) == {0: 4, 1: 5, 3: 4, 5: 8}
    assert held.keep_pull(some(9, 5), 9, told=8)
    assert offers(held) == {1: 5, 5: 9}, "shards count on them no longer"
    assert not held.keep_pull(some(10, 5), 11, told=10), "it came from another clock"


def test_a_restore_cuts_the_history_of_its_blocks_and_of_no_others(held: HeldCopies) -> None:
    held.keep_pull(pull(5), 5)
    held.follow_epoch(epoch(2, restored([1, 4], 4)), 4)
    assert offers(held) == {0: 5, 2: 5, 3: 5, 5: 5}
    held.follow_epoch(epoch(3, restored([0, 3], 5)), 4)
    assert offers(held) == {0: 5, 2: 5, 3: 5, 5: 5}, "it is again what it was then"
    held.follow_epoch(epoch(4, replace(restored([2], 0), source=BlockSource.DONOR)), 4)
    assert offers(held) == {0: 5, 2: 5, 3: 5, 5: 5}, "a live move puts nothing back"
    held.follow_epoch(epoch(5, restored([2], 3, BlockSource.OBJECT)), 4)
    assert offers(held) == {0: 5, 3: 5, 5: 5}


def test_what_was_offered_is_sent_though_another_pull_came(held: HeldCopies) -> None:
    held.keep_pull(pull(4), 4)
    held.offer_blocks(EVERY)
    held.keep_pull(pull(5), 5)
    owed = held.follow_epoch(epoch(2, restored([1, 2, 4], 4)), 4)
    sent = {
        copy.owner: (copy.epoch, copy.state.ids.tolist(), copy.gather_parts()["values"].tolist())
        for copy in owed
    }
    assert sent == {
        SHARDS[1].key: (2, [1, 4], [4.0] * 4),
        SHARDS[2].key: (2, [2], [4.0] * 2),
    }
    assert held.follow_epoch(epoch(3, restored([1], 4)), 4) == [], "nothing was asked since"


def test_what_came_after_the_answer_is_no_source_before_the_next_epoch(held: HeldCopies) -> None:
    """An epoch may put back what was offered: pushes that only the later pull contains have to be kept."""
    assert held.keep_pull(pull(4), 4)
    held.offer_blocks(EVERY)
    for clock in (5, 6, 7):
        assert not held.keep_pull(pull(clock), clock)
    held.follow_epoch(epoch(2, restored([1, 4], 4)), 7)
    assert offers(held) == {0: 7, 1: 4, 2: 7, 3: 7, 4: 4, 5: 7}, "what was put back is there once more"
    assert held.keep_pull(pull(8, 2), 8)
    assert offers(held) == dict.fromkeys(range(6), 8)


def test_each_block_has_a_copy_though_two_epochs_put_blocks_back_while_tables_were_pulled(
    held: HeldCopies,
) -> None:
    held.keep_pull(pull(4), 4)
    for number, blocks in ((2, [0, 1]), (3, [1, 2])):
        held.follow_epoch(epoch(number, restored(blocks, 4)), 4)
        assert not held.keep_pull(pull(3 + number, number - 1), 3 + number)
    assert offers(held) == {0: 6, 1: 4, 2: 4, 3: 6, 4: 6, 5: 6}


def test_nothing_is_sent_in_the_name_of_another(held: HeldCopies) -> None:
    held.keep_pull(pull(4), 4)
    held.offer_blocks(EVERY)
    assert held.follow_epoch(epoch(2, replace(restored([1], 4), sender=PEER.key)), 4) == []


def compared(held: HeldCopies, pulled: PullBuffer, after: Epoch) -> list[tuple[list[int], bool]]:
    held.follow_epoch(after, 4)
    found = take_recovered(after, {"w": pulled}, 5, replayed=True)
    return [(blocks.ids.tolist(), blocks.behind) for _, blocks in found]


def test_a_comparison_is_exact_only_with_the_same_clock_and_nobody_gone(held: HeldCopies) -> None:
    for clock, workers, expected in (
        (4, (ME, PEER), [([1, 4], False)]),
        (4, (ME,), [([1, 4], True)]),
        (5, (ME, PEER), []),  # what is owed between is not in the values that were put back
    ):
        pulled = pull(4)
        held.keep_pull(pulled, 4)
        held.follow_epoch(epoch(1), 4)
        assert compared(held, pulled, epoch(2, restored([1, 4], clock), workers=workers)) == expected


def test_who_has_left_may_have_pushed_for_the_clock_that_is_open(held: HeldCopies) -> None:
    held.follow_epoch(epoch(2, workers=(ME,)), 4)
    for clock, present in ((4, False), (5, False), (6, True)):
        pulled = pull(clock, 2)
        held.keep_pull(pulled, clock)
        assert pulled.holds_state(EVERY["w"], clock) is present


@pytest.mark.parametrize(
    ("finished", "sealed", "sources", "counts"),
    [
        (4, 4, "workers", True),
        (5, 4, "workers", False),
        (4, 5, "workers", False),
        (4, 4, "checkpoint", False),
    ],
)
def test_a_pull_counts_only_while_no_shard_can_close_its_clock(
    finished: int, sealed: int, sources: str, counts: bool
) -> None:
    """``finished``: of the worker when the pull has ended; ``sealed``: of its predecessor at some shard."""
    streams = {"ps-0": SimpleNamespace(sealed=0), "ps-1": SimpleNamespace(sealed=sealed)}
    state = SimpleNamespace(streams=streams, clocks=SimpleNamespace(finished=finished))
    pulls: Any = SimpleNamespace(_state=state, _job=replace(JOB, sources=sources))
    assert WorkerPulls._is_in_clock(pulls, 4) is counts


def test_what_came_rounded_is_no_copy() -> None:
    held = HeldCopies(JOB, ME.key)
    held.follow_epoch(epoch(1), 0)
    exact = pull(3)
    held.keep_pull(exact, 3)
    rounded = PullBuffer(JOB.table("w"), short=True)
    assert held.can_hold(pull(4))
    assert not held.can_hold(rounded)
    assert set(offers(held).values()) == {3}


def test_shards_are_told_of_a_rounded_pull_that_it_is_not_held() -> None:
    job = replace(JOB, replicas=1, replicate="missing")
    held, clocks = HeldCopies(job, ME.key), WorkerClocks()
    state = SimpleNamespace(
        streams={}, clocks=clocks, begin_pull=lambda tables: 0, hold_pull=lambda table, number: None
    )
    view = SimpleNamespace(lock=nullcontext())
    pulls: Any = SimpleNamespace(_state=state, _job=job, _view=view, held=held)
    exact = pull(4)
    for wants, clock in (([exact], 4), ([pull(5), PullBuffer(JOB.table("w"), short=True)], 5)):
        WorkerPulls._begin_pulls(pulls, wants, clock)
        for wanted in wants:
            wanted.parts = [replace(part, epoch=1, clock=clock) for part in exact.parts]
        WorkerPulls._keep_pulls(pulls, wants, clock)
        assert clocks.holds(clock) is (clock == 4)


def test_what_came_rounded_stands_for_no_exact_value() -> None:
    rounded = PullBuffer(JOB.table("w"), short=True)
    rounded.fill_blocks(np.arange(6), nearest_short(np.full(len(rounded.flat), 1.001, np.float32)))
    assert rounded.flat.tolist() == [1.0] * len(rounded.flat)
    assert rounded.complete
    exact = PullBuffer(JOB.table("w"))
    exact.fill_from(rounded)
    assert not exact.complete
    again = PullBuffer(JOB.table("w"), short=True)
    again.fill_from(rounded)
    assert again.complete
