"""A round by distance looks only at blocks that may have changed, and misses none that has.
docs/protocol.md §10.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.block_cuts import ragged
from scar.placement import BlockSource
from scar.tables import Table, add, keys
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import BlockStore
from scar_ps.core.distances import block_distances
from tests.unit.keyed_support import WIDTH, keyed_job, push_keys, store_of
from tests.unit.ps_support import group, ids, job, next_epoch, push, sender, started

ASP = job(consistency="asp")
MINE = {"w": ids(0, 2, 4)}


def measure(shard, number):
    candidates = shard.begin_round(shard.number, number, 0, by_distance=True)
    for one in candidates:
        one.distances = block_distances(one.store, one.positions)
    shard.measured(shard.number, candidates)
    return candidates


def copy(shard, number, blocks):
    found = shard.candidates(shard.number, number)
    chosen = [(one.store, one.positions[np.isin(one.ids, blocks)]) for one in found]
    return shard.copy_round(shard.number, number, chosen)


def test_blocks_that_were_pushed_take_part_until_they_are_saved_and_all_settled_ones_are_counted():
    shard, _ = started(ASP, MINE)
    assert [(one.ids.tolist(), one.settled) for one in measure(shard, 1)] == [([], 3)]
    push(shard, 0, 1, ids(0, 4), [1.0] * 4)
    assert [(one.ids.tolist(), one.settled) for one in measure(shard, 2)] == [([0, 4], 3)]
    shard.uploaded(1, copy(shard, 2, [4]))
    assert shard.finish_round(2, True)
    assert measure(shard, 3)[0].ids.tolist() == [0]


def test_what_changes_while_it_is_saved_takes_part_again():
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, ids(0, 4), [1.0] * 4)
    measure(shard, 1)
    copied = copy(shard, 1, [0, 4])
    push(shard, 0, 2, ids(4), [1.0] * 2)
    shard.uploaded(1, copied)
    assert shard.finish_round(1, True)
    assert measure(shard, 2)[0].ids.tolist() == [4]


def test_blocks_whose_checkpoint_is_of_another_moment_take_part():
    """A donor's, whose saved values are older than its values."""
    shard, epoch = started(ASP, MINE)
    loads = shard.adopt(next_epoch(epoch, {"w": ids(1)}, moved=[group("w", ids(1))]), ASP)
    older = BlockContents(np.ones(2, np.float32), saved=np.zeros(2, np.float32))
    shard.install(loads[0], older)
    shard.settle(sender(0), 2)
    assert measure(shard, 1)[0].ids.tolist() == [1]


def test_after_the_store_went_back_all_blocks_take_part():
    shard, _ = started(ASP, MINE)
    shard.ownership.forget_saved()
    assert measure(shard, 1)[0].ids.tolist() == [0, 2, 4]


def test_a_key_whose_row_goes_makes_its_block_take_part():
    spec = keyed_job(policy=keys(max_age=3), capacity=100, consistency="asp")
    shard, _ = started(spec)
    push_keys(shard, 0, 1, 0, np.array([1]), np.ones((1, WIDTH), np.float32))
    store = store_of(shard)
    store.unsaved[:] = False
    store.expire_rows(100)
    assert store.tally.expired == 1
    assert store.unsaved.any()


TABLES = [
    Table("w", (6, 2), norm="l1", weights=[1, 2, 3, 4, 5, 6]),
    Table("w", (6, 2)),
    Table("w", (6, 2), dtype="int32", norm="histogram", rule=add()),
    Table("w", (7, 2), norm="tv", blocks=ragged([0, 1, 3, 4, 5, 6, 7])),
]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("at", [[], [1], [0, 2], [0, 1, 2]])
def test_distances_of_some_blocks_are_those_of_all_at_their_places(table, at):
    store = BlockStore(table, ids(0, 2, 4))
    store.values[:] = np.arange(len(store.values))
    positions = np.array(at, np.int64)
    np.testing.assert_array_equal(block_distances(store, positions), block_distances(store)[positions])


ENDS = ["save", "lose it", "miss it", "begin again", "move in between", "move before it is copied"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*ENDS, "push", "move"]),
        st.sets(st.sampled_from([0, 2, 4]), min_size=1),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_no_block_whose_values_are_not_saved_is_ever_left_out(steps):
    shard, epoch = started(ASP, MINE)
    seq = 0
    for number, (what, blocks) in enumerate(steps, start=1):
        if what == "push":
            seq += 1
            some = np.array(sorted(blocks), np.uint32)
            push(shard, 0, seq, some, np.full(2 * len(some), float(number)), epoch=shard.number)
        elif what == "move":
            epoch = move_block(shard, epoch)
        else:
            epoch = play_round(shard, 2 * number, sorted(blocks), what, epoch)
        found = measure(shard, 2 * number + 1)[0]
        changed = found.store.ids[block_distances(found.store) > 0]
        assert set(changed.tolist()) <= set(found.ids.tolist())


def move_block(shard, epoch):
    """Block 1 comes, or goes."""
    owned = epoch.owners["w"][1] == 0
    moved = [group("w", ids(1), source=BlockSource.INITIAL)]
    after = next_epoch(epoch, lost={"w": ids(1)}) if owned else next_epoch(epoch, {"w": ids(1)}, moved=moved)
    for load in shard.adopt(after, ASP):
        shard.install(load, BlockContents(np.zeros(2, np.float32)))
    shard.settle(sender(0), after.number)
    return after


def play_round(shard, number, blocks, what, epoch):
    measure(shard, number)
    if what == "move before it is copied":
        [one] = shard.candidates(shard.number, number)
        shard.begin_copy(shard.number, number, [(one.store, one.positions[np.isin(one.ids, blocks)])])
        return move_block(shard, epoch)
    copied = copy(shard, number, blocks)
    if what == "miss it":
        shard.miss_round(copied)
    elif what != "begin again":
        shard.uploaded(shard.number, copied)
        epoch = move_block(shard, epoch) if what == "move in between" else epoch
        shard.finish_round(number, what != "lose it")
    return epoch
