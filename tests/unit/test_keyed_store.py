"""Tables whose rows are given to keys, at their owner: the same as a dict of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar.keyed_rows import USED_SLOT, mix_keys
from scar.placement import BlockSource
from scar.tables import Rule
from scar_ps.core.events import BlocksLoaded
from scar_ps.core.keyed_store import KeyedBlockStore
from scar_ps.wire import migration
from tests.unit.keyed_support import (
    READER,
    WIDTH,
    RowOracle,
    first_values,
    keyed_job,
    pull_keys,
    push_keys,
    store_of,
    without_steps,
)
from tests.unit.ps_support import (
    OTHER,
    DrivenShard,
    every_rule,
    group,
    ids,
    next_epoch,
    sender,
    started,
)

BY_ROW = [*filter(without_steps, every_rule()), tables.adagrad(0.5, rowwise=True)]
MANY = 40  # keys that pushes draw from


@settings(max_examples=150, deadline=None)
@given(
    rule=st.sampled_from(BY_ROW),
    consistency=st.sampled_from(["asp", "bsp"]),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 10_000),
)
def test_rows_of_keys_take_the_steps_that_rows_in_a_dict_take(
    rule: Rule, consistency: str, dtype: str, seed: int
) -> None:
    drawn = np.random.default_rng(seed)
    spec = keyed_job(rule, capacity=1000, dtype=dtype, consistency=consistency)
    shard, _ = started(spec, workers=2)
    oracle = RowOracle(spec)
    universe = drawn.integers(-(2**63), 2**63 - 1, MANY)
    for clock in range(4):
        pushed = []
        for rank in drawn.permutation(2).tolist():
            keys = drawn.choice(universe, 12, replace=False)
            values = drawn.normal(size=(12, WIDTH)).astype(dtype)
            push_keys(shard, rank, clock + 1, clock, keys, values)
            pushed.append((rank, keys, values))
        for rank in range(2):
            shard.mark(sender(rank), 1, clock + 1)
        _apply(oracle, rule, consistency, clock, pushed)
        asked = np.append(drawn.choice(universe, 15, replace=False), [7, -7])
        np.testing.assert_array_equal(pull_keys(shard, clock + 1, asked), oracle.pull(asked))
        np.testing.assert_array_equal(pull_keys(shard, 0, asked, READER), oracle.pull(asked, True))
    assert store_of(shard).live_rows == store_of(shard).tally.created == len(oracle.rows)
    assert store_of(shard).live_rows == np.count_nonzero(store_of(shard).used)


def _apply(
    oracle: RowOracle,
    rule: Rule,
    consistency: str,
    clock: int,
    pushed: list[tuple[int, np.ndarray, np.ndarray]],
) -> None:
    """As the shard has it: in order of arrival, or of a clock the sum in rank order."""
    if consistency == "bsp":
        pushed = sorted(pushed, key=lambda one: one[0])
    if consistency == "bsp" and rule.kind != "assign":
        total: dict[int, np.ndarray] = {}
        for _, keys, values in pushed:
            for key, value in zip(keys.tolist(), values, strict=True):
                total[key] = total[key] + value if key in total else value
        pushed = [(0, np.array([*total]), np.stack([*total.values()]))]
    for _, keys, values in pushed:
        oracle.push(clock, keys, values)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_whole_numbers_and_wide_ones_have_keys_too(dtype: str) -> None:
    spec = keyed_job(tables.add(), dtype=dtype)
    shard, _ = started(spec, workers=1)
    keys = np.array([2**63 - 1, -(2**63), 0])
    push_keys(shard, 0, 1, 0, keys, np.arange(9).reshape(3, 3).astype(dtype))
    shard.mark(sender(0), 1, 1)
    expected = first_values(spec, keys) + np.arange(9).reshape(3, 3).astype(dtype)
    np.testing.assert_array_equal(pull_keys(shard, 1, keys), expected)


def test_the_order_of_arrival_makes_no_difference_to_a_bit() -> None:
    contents = []
    for order in ([0, 1], [1, 0]):
        spec = keyed_job(tables.adagrad(0.3), capacity=16)
        shard, _ = started(spec, workers=2)
        for clock in range(6):
            for rank in order:
                drawn = np.random.default_rng([rank, clock])
                keys = drawn.integers(0, 60, 12)
                keys = np.unique(keys)
                values = drawn.normal(size=(len(keys), WIDTH)).astype(np.float32)
                push_keys(shard, rank, clock + 1, clock, keys, values)
            for rank in order:
                shard.mark(sender(rank), 1, clock + 1)
        assert store_of(shard).tally.evicted > 0
        store = store_of(shard)
        contents.append([store.values.tobytes(), *(slot.tobytes() for slot in store.slots.values())])
    assert contents[0] == contents[1]


def test_what_a_block_keeps_comes_back_with_it() -> None:
    """Loaded elsewhere, all keys have their rows; what was never saved begins again as it once began."""
    spec = keyed_job(tables.adagrad(0.5), capacity=100)
    table = spec.table("w")
    mine, his = ids(*range(0, table.blocks, 2)), ids(*range(1, table.blocks, 2))
    shard, epoch = started(spec, {"w": ids(*range(table.blocks))}, workers=1)
    keys = np.arange(50)
    push_keys(shard, 0, 1, 0, keys, np.ones((50, WIDTH), np.float32))
    shard.mark(sender(0), 1, 1)
    saved = store_of(shard).copy_blocks(mine.astype(np.int64))
    trained = pull_keys(shard, 1, keys)

    heir, _ = started(spec, {"w": his}, workers=1)
    heir.mark(sender(0), 1, 1)
    loads = heir.adopt(
        next_epoch(epoch, {"w": mine}, moved=[group("w", mine, OTHER, BlockSource.OBJECT)], failure=1), spec
    )
    [load] = [one for one in loads if one.source is BlockSource.OBJECT]
    heir.handle(BlocksLoaded(load, saved))
    heir.settle(sender(0), 2)
    found = pull_keys(heir, 0, keys)
    is_mine = np.isin(table.find_blocks(mix_keys(keys)), mine)
    np.testing.assert_array_equal(found[is_mine], trained[is_mine])
    np.testing.assert_array_equal(found[~is_mine], first_values(spec, keys[~is_mine]))
    assert 0 < store_of(heir).live_rows == np.count_nonzero(is_mine) < 50


def test_blocks_move_with_their_keys_and_with_what_waits_for_them() -> None:
    spec = keyed_job(tables.sgd(0.5), capacity=100)
    shard, _ = started(spec, workers=2)
    keys = np.arange(20)
    push_keys(shard, 0, 1, 0, keys, np.ones((20, WIDTH), np.float32))
    wanted = [("w", ids(1))]
    shard.freeze(1, wanted)
    stream = [*migration.encode_frozen(shard.offer(1, wanted), 1)]
    [incoming] = migration.decode_frozen(stream, spec, OTHER.key, 1)
    [push] = incoming.pushes
    inside = np.sort(mix_keys(keys)[spec.table("w").find_blocks(mix_keys(keys)) == 1])
    assert push.rows is not None
    assert push.rows.tolist() == inside.tolist()
    assert set(incoming.contents.slots) == {"@key", "@used"}


# --- room
# ------------------------------------------------------------------------------------------------------------


def keys_of_block(spec: tables.Job, block: int, count: int, start: int = 0) -> np.ndarray:
    found = np.arange(start, start + 4000)
    return found[spec.table("w").find_blocks(mix_keys(found)) == block][:count]


def close(shard: DrivenShard, clock: int, keys: np.ndarray) -> None:
    """A clock in which these keys are pushed."""
    push_keys(shard, 0, clock + 1, clock, keys, np.ones((len(keys), WIDTH), np.float32))
    shard.mark(sender(0), shard.number, clock + 1)


def test_a_full_block_gives_a_new_key_the_row_that_was_unused_for_longest() -> None:
    spec = keyed_job(tables.sgd(0.5), tables.keys(evict="lru"), capacity=8)
    shard, _ = started(spec, workers=1)
    store = store_of(shard)
    held = keys_of_block(spec, 0, store.rows_of_block)
    [new] = keys_of_block(spec, 0, 1, start=5000)
    close(shard, 0, held)
    close(shard, 1, held[1:])
    trained = pull_keys(shard, 2, held)
    close(shard, 2, np.array([new]))
    np.testing.assert_array_equal(pull_keys(shard, 3, held)[1:], trained[1:])
    np.testing.assert_array_equal(pull_keys(shard, 3, held[:1]), first_values(spec, held[:1]))
    np.testing.assert_array_equal(
        pull_keys(shard, 3, np.array([new])), first_values(spec, np.array([new])) - np.float32(0.5)
    )
    assert (store.tally.evicted, store.tally.refused, store.live_rows) == (1, 0, store.rows_of_block)
    close(shard, 3, held[:1])
    np.testing.assert_array_equal(
        pull_keys(shard, 4, held[:1]), first_values(spec, held[:1]) - np.float32(0.5)
    )


def test_of_more_keys_than_a_block_has_rows_in_one_clock_the_rest_is_dropped_and_counted() -> None:
    spec = keyed_job(tables.sgd(0.5), capacity=8)
    shard, _ = started(spec, workers=1)
    store = store_of(shard)
    many = keys_of_block(spec, 1, store.rows_of_block + 3)
    close(shard, 0, many)
    assert (store.tally.created, store.tally.refused) == (store.rows_of_block, 3)
    moved = (pull_keys(shard, 1, many) != first_values(spec, many)).all(axis=1)
    assert np.count_nonzero(moved) == store.rows_of_block


def test_nobody_takes_the_row_of_a_key_that_was_pushed_in_the_same_clock() -> None:
    spec = keyed_job(tables.sgd(0.5), capacity=8)
    shard, _ = started(spec, workers=1)
    store = store_of(shard)
    held = keys_of_block(spec, 1, store.rows_of_block)
    new = keys_of_block(spec, 1, 1, start=5000)
    close(shard, 0, held)
    close(shard, 1, np.sort(np.concatenate([held, new])))
    assert (store.tally.evicted, store.tally.refused) == (0, 1)
    np.testing.assert_array_equal(pull_keys(shard, 2, held), first_values(spec, held) - np.float32(1.0))


def test_a_key_that_takes_a_row_over_begins_without_its_velocity() -> None:
    spec = keyed_job(tables.momentum(0.5, 0.9), capacity=8)
    shard, _ = started(spec, workers=1)
    store = store_of(shard)
    new = keys_of_block(spec, 1, 1, start=5000)
    close(shard, 0, keys_of_block(spec, 1, store.rows_of_block))
    close(shard, 1, new)
    assert store.tally.evicted == 1
    np.testing.assert_array_equal(pull_keys(shard, 2, new), first_values(spec, new) - np.float32(0.5))


def test_without_eviction_a_full_block_takes_no_new_key() -> None:
    spec = keyed_job(tables.sgd(0.5), tables.keys(evict="never"), capacity=8)
    shard, _ = started(spec, workers=1)
    store = store_of(shard)
    held = keys_of_block(spec, 0, store.rows_of_block)
    new = keys_of_block(spec, 0, 2, start=5000)
    close(shard, 0, held)
    close(shard, 1, new)
    np.testing.assert_array_equal(pull_keys(shard, 2, new), first_values(spec, new))
    assert (store.tally.evicted, store.tally.refused) == (0, 2)


def test_a_key_that_is_not_pushed_for_too_long_begins_again() -> None:
    spec = keyed_job(tables.momentum(0.5, 0.9), tables.keys(max_age=3), capacity=100)
    shard, _ = started(spec, workers=1)
    old, other = np.array([1]), np.array([2])
    close(shard, 0, old)
    for clock in range(1, 4):
        assert (pull_keys(shard, clock, old) != first_values(spec, old)).all()
        close(shard, clock, other)
    close(shard, 4, other)
    np.testing.assert_array_equal(pull_keys(shard, 5, old), first_values(spec, old))
    assert (store_of(shard).tally.expired, store_of(shard).live_rows) == (1, 1)
    close(shard, 5, old)  # a new row, without the velocity of the former
    np.testing.assert_array_equal(pull_keys(shard, 6, old), first_values(spec, old) - np.float32(0.5))


@pytest.mark.parametrize("source", [BlockSource.OBJECT, BlockSource.INITIAL])
def test_a_row_that_comes_back_is_not_old_for_the_time_since_it_was_saved(source: BlockSource) -> None:
    spec = keyed_job(tables.sgd(0.5), tables.keys(max_age=4), capacity=100)
    shard, epoch = started(spec, workers=1)
    keys = np.arange(10)
    close(shard, 0, keys)
    every = ids(*range(spec.table("w").blocks))
    saved = store_of(shard).copy_blocks(every.astype(np.int64))
    for clock in range(1, 20):
        close(shard, clock, keys)
    back = next_epoch(epoch, moved=[group("w", every, OTHER, source)], failure=1)
    [load] = shard.adopt(back, spec)
    shard.handle(BlocksLoaded(load, saved))
    assert saved.slots[USED_SLOT].view(np.uint64).max() == 1
    shard.settle(sender(0), 2)
    close(shard, 20, np.array([99]))
    assert store_of(shard).live_rows == 11
    assert store_of(shard).tally.expired == 0


# --- admission
# ------------------------------------------------------------------------------------------------------------


def test_a_key_has_a_row_from_its_third_push_on() -> None:
    spec = keyed_job(tables.sgd(0.5), tables.keys(admit_after=3), capacity=100)
    shard, _ = started(spec, workers=1)
    keys = np.arange(20)
    for clock in range(2):
        close(shard, clock, keys)
        np.testing.assert_array_equal(pull_keys(shard, clock + 1, keys), first_values(spec, keys))
    close(shard, 2, keys)
    np.testing.assert_array_equal(pull_keys(shard, 3, keys), first_values(spec, keys) - np.float32(0.5))
    assert (store_of(shard).tally.unadmitted, store_of(shard).tally.created) == (40, 20)


def test_counters_of_rare_keys_are_halved_before_all_keys_are_known() -> None:
    spec = keyed_job(tables.sgd(0.5), tables.keys(admit_after=3), capacity=128)
    shard, _ = started(spec, workers=1)
    for clock in range(200):
        close(shard, clock, np.arange(clock * 100, (clock + 1) * 100))
    tally = store_of(shard).tally
    assert tally.created < 0.02 * tally.unadmitted


def test_a_tally_goes_on_over_an_epoch() -> None:
    spec = keyed_job(capacity=100)
    shard, epoch = started(spec, workers=1)
    close(shard, 0, np.arange(30))
    shard.adopt(next_epoch(epoch, lost={"w": ids(0)}), spec)
    store = store_of(shard)
    assert store.tally.created == 30
    assert 0 < store.live_rows < 30
    assert isinstance(store, KeyedBlockStore)
