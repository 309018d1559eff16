"""Blocks that keep their places while others come and go are the same as in stores that are made anew."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
from scar.blocks import Ids
from scar.v1.ps_pb2 import TensorHeader
from scar_ps import epoch_sync
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.block_snapshot import BlockSnapshot, StallTimer
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.distances import block_distances
from scar_ps.core.update_rules import apply_push
from scar_ps.epoch_sync import prepare_memory
from scar_ps.wire.pull_encoder import encode_blocks

RULES = [
    scar.sgd(0.1),
    scar.momentum(0.1),
    scar.adagrad(0.1),
    scar.adagrad(0.1, rowwise=True),
    scar.adam(0.1),
]
SHAPES = [
    ((12, 3), scar.rows(1)),
    ((12, 3), scar.rows(3)),
    ((11, 3), scar.rows(3)),
    ((13,), scar.rows(4)),
    ((12, 3), scar.ragged([0, 2, 4, 6, 12])),
    ((12, 3), scar.layer_shards(5)),
]
TABLES = [scar.Table("w", shape, rule=rule, blocks=blocks) for rule in RULES for shape, blocks in SHAPES]
NOTHING: Ids = np.empty(0, np.uint32)
NUMBERED = ("steps", "loading", "origin", "replay_from")
FACTS = (*NUMBERED, "unsettled", "unsaved", "changed")  # of each block of a store


class Twins:
    """A store that stays in its memory, and one that is made anew by each epoch."""

    def __init__(self, table: scar.Table, draw: np.random.Generator) -> None:
        self.draw = draw
        self.table = table
        self.staying = BlockStore(table, NOTHING)
        self.anew = BlockStore(table, NOTHING)
        self.before: list[tuple[BlockStore, np.ndarray, list[float]]] = []  # stores that somebody reads

    @property
    def both(self) -> tuple[BlockStore, BlockStore]:
        return self.staying, self.anew

    def change_blocks(self, ids: Ids, again: float = 0.0) -> None:
        """An epoch. ``again``: how many of the blocks that stay are put back all the same."""
        gained = (self.anew.find_blocks(ids) < 0) | (self.draw.random(len(ids)) < again)
        if self.draw.random() < 0.5:
            old = self.staying
            # what stays is pushed to
            left = np.setdiff1d(np.arange(len(old)), old.find_blocks(ids[~gained]))
            self.before.append((old, left, old.copy_blocks(left).values.tolist()))
        else:
            self.before.clear()
        memory = prepare_memory(self.table, ids, self.staying if len(self.staying) else None)
        self.staying = self.staying.copy_for(ids, gained, lambda: None, memory)
        self.anew = self.anew.copy_for(ids, gained, lambda: None)
        at = np.flatnonzero(gained)
        values = self.draw.normal(size=self.anew.count_elements(at)).astype(np.float32)
        saved = self.draw.normal(size=len(values)).astype(np.float32)
        for store in self.both:
            store.install_blocks(at, BlockContents(values, {}, None, saved))

    def push(self) -> None:
        kind = self.draw.integers(3)
        chosen = None if kind == 0 else np.flatnonzero(self.draw.random(len(self.anew)) < 0.5)
        by_row = kind == 2 and not self.table.rule.counts_steps
        rows = None
        if by_row:
            assert chosen is not None
            rows = self.anew.rows_of(chosen)
            rows = rows[self.draw.random(len(rows)) < 0.7]
            chosen = np.unique(self.anew.find_row_blocks(rows))
        size = self.anew.count_elements(chosen) if rows is None else len(rows) * self.table.row_elements
        pushed = self.draw.normal(size=size).astype(np.float32)
        for store in self.both:
            apply_push(store, chosen, pushed, lambda: None, rows=rows)

    def check(self) -> None:
        every = np.arange(len(self.anew))
        some = np.flatnonzero(self.draw.random(len(self.anew)) < 0.5)
        for at in (every, some):
            one, other = (store.copy_blocks(at) for store in self.both)
            assert one.values.tolist() == other.values.tolist()
            assert one.steps.tolist() == other.steps.tolist()
            assert {name: slot.tolist() for name, slot in one.slots.items()} == {
                name: slot.tolist() for name, slot in other.slots.items()
            }
            assert block_distances(self.staying, at).tobytes() == block_distances(self.anew, at).tobytes()
            assert pulled(self.staying, at) == pulled(self.anew, at)
        assert pulled(self.staying, None) == pulled(self.anew, None)
        rows = np.flatnonzero(self.draw.random(self.anew.row_counts.elements) < 0.4)
        one, other = (b"".join(encoded(StoreSlice(store, None, store.values, rows))) for store in self.both)
        assert one == other
        for store, left, values in self.before:
            assert store.copy_blocks(left).values.tolist() == values, "nobody else is at its places"


def pulled(store: BlockStore, positions: np.ndarray | None) -> bytes:
    return b"".join(encoded(StoreSlice(store, positions, store.values)))


def encoded(part: StoreSlice) -> list[bytes]:
    return [bytes(piece) for parts in encode_blocks(TensorHeader(), part) for piece in parts]


@settings(max_examples=200, deadline=None)
@given(table=st.sampled_from(TABLES), seed=st.integers(0, 2**32))
def test_blocks_that_keep_their_places_are_as_those_that_are_copied(table: scar.Table, seed: int) -> None:
    draw = np.random.default_rng(seed)
    twins = Twins(table, draw)
    for _ in range(8):
        ids = np.flatnonzero(draw.random(table.blocks) < draw.choice([0.2, 0.6, 1])).astype(np.uint32)
        twins.change_blocks(ids, again=draw.choice([0, 0.3, 1]))
        twins.check()
        for _ in range(draw.integers(3)):
            twins.push()
            twins.check()
        if draw.random() < 0.3:
            for store in twins.both:
                store.forget_saved()


@settings(max_examples=100, deadline=None)
@given(table=st.sampled_from(TABLES), seed=st.integers(0, 2**32))
def test_a_copy_of_such_blocks_is_of_its_moment(table: scar.Table, seed: int) -> None:
    draw = np.random.default_rng(seed)
    twins = Twins(table, draw)
    every = np.arange(table.blocks, dtype=np.uint32)
    twins.change_blocks(every[draw.random(len(every)) < 0.5])
    twins.change_blocks(every)
    chosen = np.flatnonzero(draw.random(len(every)) < 0.6)
    expected = twins.staying.copy_blocks(chosen)
    snapshot = BlockSnapshot(twins.staying, chosen)
    snapshot.begin(StallTimer())
    twins.push()
    while piece := snapshot.next_piece():
        twins.push()
        piece.copy()
        twins.push()
    assert snapshot.contents.values.tolist() == expected.values.tolist()
    for name, slot in expected.slots.items():
        assert snapshot.contents.slots[name].tolist() == slot.tolist()
    frozen = twins.staying.freeze()
    held = frozen.copy_blocks(chosen)
    assert held.values.tolist() == twins.anew.copy_blocks(chosen).values.tolist()
    assert {name: slot.tolist() for name, slot in held.slots.items()} == {
        name: slot.tolist() for name, slot in twins.anew.copy_blocks(chosen).slots.items()
    }


def made(table: scar.Table, ids: Ids, store: BlockStore | None = None) -> BlockStore:
    """By an epoch with these blocks; what came holds its number."""
    memory = prepare_memory(table, ids, store)
    old = store or BlockStore(table, NOTHING)
    gained = old.find_blocks(ids) < 0
    new = old.copy_for(ids, gained, lambda: None, memory)
    values = np.repeat(ids[gained], new.layout.sizes[gained]).astype(np.float32)
    new.install_blocks(np.flatnonzero(gained), BlockContents(values))
    return new


def numbers(*ids: int) -> Ids:
    return np.array(ids, np.uint32)


TABLE = scar.Table("w", (8, 3))


def test_what_stays_is_not_copied_and_what_comes_is_put_behind_it() -> None:
    first = made(TABLE, numbers(1, 3, 5))
    assert first.places is None
    second = made(TABLE, numbers(1, 2, 3, 5), first)
    assert second.memory is first.memory
    assert second.places is not None
    assert second.places.at.tolist() == [0, 3, 1, 2]
    assert second.copy_blocks(np.arange(4)).values.tolist() == np.repeat([1.0, 2, 3, 5], 3).tolist()


def test_a_place_is_given_again_once_nobody_reads_what_had_it() -> None:
    first = made(TABLE, numbers(1, 3, 5))
    second = made(TABLE, numbers(1, 3, 5, 6), first)
    third = made(TABLE, numbers(1, 5, 6), second)
    del second
    gc.collect()
    fourth = made(TABLE, numbers(1, 2, 5, 6), third)
    assert fourth.places is not None
    assert fourth.places.at.tolist() == [0, 4, 2, 3], "the first store, which is read, has block 3 at 1"
    assert first.copy_blocks(np.arange(3)).values.tolist() == np.repeat([1.0, 3, 5], 3).tolist()
    del first
    gc.collect()
    fifth = made(TABLE, numbers(1, 2, 4, 5, 6), fourth)
    assert fifth.places is not None
    assert fifth.places.at.tolist() == [0, 4, 1, 2, 3]


def test_blocks_that_lie_in_order_from_the_first_place_on_are_read_as_one() -> None:
    first = made(TABLE, numbers(1, 3))
    second = made(TABLE, numbers(1, 2, 3), first)
    del first
    gc.collect()
    third = made(TABLE, numbers(1, 3), second)
    assert third.places is None
    assert third.memory is second.memory


def test_a_store_that_has_lost_more_than_half_gets_smaller_memory() -> None:
    first = made(TABLE, numbers(*range(8)))
    second = made(TABLE, numbers(0, 7), first)
    assert second.memory is not first.memory
    assert second.places is None
    assert second.copy_blocks(np.arange(2)).values.tolist() == np.repeat([0.0, 7], 3).tolist()


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("kept", [(2, 4, 6), (2, 6)])
def test_what_is_known_of_a_block_goes_with_it(stays: bool, kept: tuple[int, ...]) -> None:
    """Between others that come, whether all stay or one goes."""
    store = made(TABLE, numbers(2, 4, 6))
    store.replay_from = np.zeros(3, np.int64)
    for name in FACTS:
        getattr(store, name)[:] = [block if name in NUMBERED else block == 6 for block in (2, 4, 6)]
    ids = numbers(1, *kept, 7)
    memory = prepare_memory(TABLE, ids, store) if stays else None
    new = store.copy_for(ids, store.find_blocks(ids) < 0, lambda: None, memory)
    assert (new.memory is store.memory) is stays
    for name in FACTS:
        known = [block if name in NUMBERED else block == 6 for block in kept]
        nothing = -1 if name == "replay_from" else 0
        assert getattr(new, name).tolist() == [nothing, *known, nothing], name


def test_a_short_block_alone_is_copied_from_its_place() -> None:
    table = scar.Table("w", (5, 3), blocks=scar.rows(2))
    alone = made(table, numbers(2), made(table, numbers(1, 2)))
    assert alone.places is not None
    assert alone.places.at.tolist() == [1]
    copied = alone.copy_for(numbers(2), np.zeros(1, np.bool_), lambda: None)
    assert copied.copy_blocks(np.arange(1)).values.tolist() == [2.0, 2, 2]


def test_where_readers_hold_all_places_the_blocks_are_copied() -> None:
    store = made(TABLE, numbers(*range(8)))
    held = [store]
    for _ in range(4):  # all of it is put back, while everything that was there is read
        memory = held[-1].memory
        new = store.copy_for(store.ids, np.ones(8, np.bool_), lambda: None, memory)
        held.append(new)
        store = new
    assert len({id(one.memory) for one in held}) > 1
    assert store.copy_blocks(np.arange(8)).values.tolist() == [0.0] * 24


def test_only_what_nobody_has_written_to_is_touched() -> None:
    first = made(TABLE, numbers(1, 2, 3, 4))
    second = made(TABLE, numbers(1, 2), first)
    assert [len(array) for array in second.memory.untouched(3)] == [9, 9], "the first store is read"
    del first
    gc.collect()
    assert [len(array) for array in second.memory.untouched(3)] == [3, 3]
    assert made(TABLE, numbers(1, 2, 5, 6), second).places is None


def test_where_nothing_is_reserved_a_store_is_copied_to_memory_of_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(epoch_sync, "reserve_zeros", refuse)
    first = made(TABLE, numbers(1, 3, 5))
    second = made(TABLE, numbers(1, 2, 3), first)
    assert (first.memory.place_rows, len(first.memory.values)) == (0, 9)
    assert second.copy_blocks(np.arange(3)).values.tolist() == np.repeat([1.0, 2, 3], 3).tolist()
    third = made(TABLE, numbers(1, 3), second)
    assert third.copy_blocks(np.arange(2)).values.tolist() == np.repeat([1.0, 3], 3).tolist()


@pytest.mark.parametrize(
    ("table", "lasting"),
    [
        (scar.Table("w", (8, 3)), True),
        (scar.Table("w", (8, 3), blocks=scar.rows(3)), True),
        (scar.Table("w", (8, 3), blocks=scar.rows(3), rule=scar.adam(0.1)), False),
        (scar.Table("w", (8, 3), blocks=scar.rows(2), rule=scar.adam(0.1)), True),
        (scar.Table("w", keys="int64", dim=3, capacity=100), False),
        (scar.Table("w", (8, 3), blocks=scar.ragged([0, 2, 4, 8])), False),  # the last one is longer
        (scar.Table("w", (8, 3), blocks=scar.ragged([0, 3, 6, 8])), True),
        (scar.Table("w", (8, 3), blocks=scar.ragged([0, 1, 5, 8])), False),
        (scar.Table("w", (8, 3), blocks=scar.layer()), True),
        (scar.Table("w", (8, 3), blocks=scar.layer_shards(3)), False),
    ],
)
def test_which_tables_can_stay_in_their_memory(table: scar.Table, lasting: bool) -> None:
    memory = BlockMemory(table, np.arange(table.blocks, dtype=np.uint32), lasting=True)
    assert bool(memory.place_rows) is lasting
