"""Copies of rounds that are made while pushes go on: of one moment, whole, and nobody waits for all of them.

docs/protocol.md §10.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
import scar_ps.core.block_snapshot as block_snapshot
import scar_ps.core.checkpoint_round as checkpoint_round
from scar.errors import InvalidRequest
from scar.placement import BlockSource
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_snapshot import (
    BlockSnapshot,
    StallTimer,
    make_snapshots,
    renew_snapshot,
    split_pieces,
)
from scar_ps.core.block_store import BlockStore
from scar_ps.core.checkpoint_round import committed_values
from scar_ps.core.distances import block_distances
from scar_ps.core.update_rules import apply_push
from tests.unit.ps_support import ME, group, ids, job, next_epoch, push, started, values

ASP = job(consistency="asp")
MINE = {"w": ids(0, 2, 4)}
ELEMENTS = 8  # of a piece in these tests
RULES = [scar.adam(0.1), scar.adagrad(0.1, rowwise=True), scar.sgd(0.1)]
SHAPES = [((24, 2), 1), ((25, 2), 4), ((40, 2), 20), ((9, 2), 9)]  # rows, and rows of a block


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    pieces = partial(split_pieces, elements=ELEMENTS)
    monkeypatch.setattr(block_snapshot, "split_pieces", pieces)
    monkeypatch.setattr(checkpoint_round, "split_pieces", pieces)


def drawn_store(rule, shape, block_rows, draw):
    table = scar.Table("w", shape, rule=rule, blocks=scar.rows(block_rows))
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    store.values[:] = draw.normal(size=store.values.shape)
    for slot in store.slots.values():
        slot[:] = draw.random(slot.shape)
    store.steps[:] = draw.integers(0, 9, len(store))
    return store


def push_some(store, draw):
    """To blocks, to rows, or to everything."""
    kind = draw.integers(3)
    if kind == 1 and (store.table.rule.kind != "adam" or len(store) == store.table.shape[0]):
        rows = np.flatnonzero(draw.random(store.table.shape[0]) < 0.3).astype(np.uint32)
        if len(rows):
            positions, at = store.locate_rows(rows)
            pushed = draw.normal(size=2 * len(rows)).astype(np.float32)
            apply_push(store, positions, pushed, lambda: None, rows=at)
        return
    chosen = None if kind == 0 else np.flatnonzero(draw.random(len(store)) < 0.4)
    pushed = draw.normal(size=store.count_elements(chosen)).astype(np.float32)
    apply_push(store, chosen, pushed, lambda: None)


@settings(max_examples=150, deadline=None)
@given(
    rule=st.sampled_from(RULES),
    shape=st.sampled_from(SHAPES),
    share=st.sampled_from([0.3, 1]),
    seed=st.integers(0, 2**32),
)
def test_a_copy_is_of_the_moment_at_which_it_was_begun_whatever_is_pushed_between_its_pieces(
    rule, shape, share, seed
):
    draw = np.random.default_rng(seed)
    store = drawn_store(rule, *shape, draw)
    chosen = np.flatnonzero(draw.random(len(store)) < share)
    snapshot = BlockSnapshot(store, chosen)
    push_some(store, draw)
    expected = store.copy_blocks(chosen)
    snapshot.begin(StallTimer())
    push_some(store, draw)
    while piece := snapshot.next_piece():
        for _ in range(draw.integers(3)):
            push_some(store, draw)
        piece.copy()  # of what has changed since, too
        for _ in range(draw.integers(3)):
            push_some(store, draw)
    assert snapshot.contents.values.tolist() == expected.values.tolist()
    assert snapshot.contents.steps.tolist() == expected.steps.tolist()
    for name, slot in expected.slots.items():
        assert snapshot.contents.slots[name].tolist() == slot.tolist()
    assert store.before_change == []


@pytest.mark.parametrize("shape", SHAPES)
def test_no_piece_copies_more_than_it_may(shape):
    """A block that is larger than a piece is copied in several."""
    store = drawn_store(scar.sgd(0.1), *shape, np.random.default_rng(1))
    seen = []
    snapshot = BlockSnapshot(store, np.arange(len(store)))
    snapshot.begin(StallTimer(lambda: 0.0))
    snapshot.contents.values[:] = np.nan
    while piece := snapshot.next_piece():
        piece.copy()
        seen.append(int(np.count_nonzero(~np.isnan(snapshot.contents.values))))
    assert seen[-1] == store.layout.elements
    assert max(np.diff([0, *seen])) <= ELEMENTS


def test_what_stalls_is_added_up_and_the_longest_is_known():
    now = iter([0.0, 1.0, 10.0, 14.0])
    timer = StallTimer(lambda: next(now))
    for _ in range(2):
        with timer:
            pass
    assert (timer.total, timer.longest) == (5.0, 4.0)


# --- of a round
# ------------------------------------------------------------------------------------------------------------


def begin(shard, number, *blocks):
    """A round up to the first piece of its copy."""
    candidates = shard.begin_round(shard.number, number, 0)
    for one in candidates:
        one.distances = block_distances(one.store)[one.positions]
    shard.measured(shard.number, candidates)
    chosen = [(one.store, one.positions[np.isin(one.ids, blocks)]) for one in candidates]
    return shard.begin_copy(shard.number, number, chosen)


def finish_copy(shard, copied):
    while shard.copy_piece(copied):
        pass


@pytest.fixture
def tiny_pieces(monkeypatch):
    """A block each."""
    pieces = partial(split_pieces, elements=2)
    monkeypatch.setattr(block_snapshot, "split_pieces", pieces)
    monkeypatch.setattr(checkpoint_round, "split_pieces", pieces)


@pytest.mark.usefixtures("tiny_pieces")
def test_pushes_are_applied_between_the_pieces_and_the_watermark_is_that_of_the_copy():
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, [1] * 6)
    copied = begin(shard, 1, 0, 2, 4)
    assert shard.copy_piece(copied)
    push(shard, 0, 2, None, [1] * 6)
    finish_copy(shard, copied)
    assert values(shard) == [2.0] * 6
    assert copied[0].contents.values.tolist() == [1.0] * 6
    assert list(copied[0].state.watermark.values()) == [1]
    shard.uploaded(1, copied)
    shard.finish_round(1, True)
    assert shard.ownership.tables["w"].saved.tolist() == [1.0] * 6


def test_nothing_is_durable_before_all_of_it_is_copied():
    shard, _ = started(ASP, MINE)
    copied = begin(shard, 1, 0, 2, 4)
    with pytest.raises(InvalidRequest):
        shard.uploaded(1, copied)
    finish_copy(shard, copied)
    shard.uploaded(1, copied)


def test_what_froze_since_a_copy_was_made_is_left_out_of_it():
    shard, _ = started(ASP, MINE)
    store = shard.ownership.tables["w"]
    made = BlockSnapshot(store, np.arange(3))
    assert made.is_current()
    store.frozen[1] = True
    store.update_blocked()
    assert not made.is_current()
    assert [one.ids.tolist() for one in renew_snapshot(made)] == [[0, 4]]


def test_a_copy_is_made_again_for_blocks_whose_origin_has_changed_since():
    """What each of them contains is said by its origin."""
    shard, _ = started(ASP, MINE)
    store = shard.ownership.tables["w"]
    store.origin[:] = 1
    (made,) = make_snapshots(store, np.arange(3))
    store.origin[:2] = 0
    assert not made.is_current()
    renewed = {one.origin: one.ids.tolist() for one in renew_snapshot(made)}
    assert renewed == {0: [0, 2], 1: [4]}


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("end", ["failed", "not committed", "next round", "epoch"])
def test_a_copy_that_is_given_up_costs_no_later_push_anything(end):
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, [1] * 6)
    copied = begin(shard, 1, 0, 4)
    assert shard.copy_piece(copied)
    if end == "failed":
        shard.miss_round(copied)
    elif end == "not committed":
        shard.finish_round(1, False)
    elif end == "next round":
        shard.begin_round(1, 2, 0)
    else:
        shard.adopt(next_epoch(epoch), ASP)
    assert shard.ownership.tables["w"].before_change == []
    assert shard.ownership.tables["w"].saved.tolist() == [0.0] * 6
    with pytest.raises(InvalidRequest):
        shard.copy_piece(copied)


@pytest.mark.usefixtures("tiny_pieces")
def test_what_is_committed_counts_as_saved_before_all_of_it_is_in_its_place():
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, np.arange(6))
    copied = begin(shard, 1, 0, 4)
    finish_copy(shard, copied)
    shard.uploaded(1, copied)
    assert shard.hear_end(1, True)
    store = shard.ownership.tables["w"]
    for expected in ([0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 4, 5]):
        assert store.saved.tolist() == expected
        assert committed_values(store, np.arange(3), shard.round.committed).tolist() == [0, 1, 0, 0, 4, 5]
        shard.install_piece()
    assert shard.round.committed == []


@pytest.mark.usefixtures("tiny_pieces")
def test_a_round_begins_with_all_that_is_committed():
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, np.arange(6))
    copied = begin(shard, 1, 0, 4)
    finish_copy(shard, copied)
    shard.uploaded(1, copied)
    shard.hear_end(1, True)
    shard.begin_round(1, 2, 0)
    assert shard.ownership.tables["w"].saved.tolist() == [0, 1, 0, 0, 4, 5]


@pytest.mark.usefixtures("tiny_pieces")
def test_an_epoch_in_the_middle_keeps_what_is_committed_of_the_blocks_that_stay():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.arange(6))
    copied = begin(shard, 1, 0, 4)
    finish_copy(shard, copied)
    shard.uploaded(1, copied)
    shard.hear_end(1, True)
    shard.install_piece()
    after = next_epoch(
        epoch,
        {"w": ids(1)},
        {"w": ids(0)},
        [group("w", ids(1), source=BlockSource.INITIAL), group("w", ids(0), ME)],
    )
    shard.install(shard.adopt(after, ASP)[0], BlockContents(np.full(2, 9, np.float32)))
    store = shard.ownership.tables["w"]
    assert committed_values(store, np.arange(3), shard.round.committed).tolist() == [9, 9, 0, 0, 4, 5]
    shard.begin_round(after.number, 2, 0)
    assert store.saved.tolist() == [9, 9, 0, 0, 4, 5]


@pytest.mark.usefixtures("tiny_pieces")
def test_what_a_damaged_manifest_held_does_not_come_back_as_saved():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.arange(6) + 1)
    copied = begin(shard, 1, 0, 4)
    finish_copy(shard, copied)
    shard.uploaded(1, copied)
    shard.hear_end(1, True)
    after = replace(next_epoch(epoch), resave=True)
    shard.adopt(after, ASP)
    candidates = shard.begin_round(after.number, 2, 0)
    assert all((block_distances(one.store)[one.positions] != 0).all() for one in candidates)
