"""Selection: the search for a threshold chooses exactly what a full sort chooses, at any number of shards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scar_runtime.checkpoint.selection as selection
from scar.blocks import Ids
from scar.errors import ConfigError
from scar.tables import Job, Table
from scar_runtime.checkpoint.selection import RoundSelection, above, blocks_per_round, chosen, decide
from scar_runtime.checkpoint.top_keys import (
    DIGITS,
    DistanceArray,
    KeyRange,
    ThresholdSearch,
    block_keys,
    count_keys,
)

DistanceReport = tuple[str, Ids, DistanceArray]  # table, blocks of one shard, their distances
FLOATS = st.one_of(
    st.sampled_from([0.0, 1.0, 1.0, 2.5, math.inf, math.nan, 1e-45, 3.4e38]), st.floats(min_value=0, width=32)
)


@st.composite
def reports(draw: st.DrawFn) -> tuple[Job, list[DistanceReport]]:
    """A job with two tables, its settled blocks dealt to some shards (one may be empty), and any
    distances.
    """
    blocks = [draw(st.integers(1, 12)), draw(st.integers(1, 12))]
    job = Job("j", [Table("a", (blocks[0], 2)), Table("b", (blocks[1],))], seed=draw(st.integers(0, 9)))
    shards = draw(st.integers(1, 4))
    found: list[DistanceReport] = []
    for table, count in zip(job.tables, blocks, strict=True):
        # -1: not settled, nobody reports it
        owner = np.array([draw(st.integers(-1, shards - 1)) for _ in range(count)])
        for shard in range(shards):
            ids = np.flatnonzero(owner == shard).astype(np.uint32)
            found.append((table.name, ids, np.array([draw(FLOATS) for _ in ids], dtype=np.float32)))
    return job, found


def picked(decision: RoundSelection, job: Job, found: list[DistanceReport]) -> set[int]:
    """Global ids that the shards choose, each for itself."""
    out: set[int] = set()
    for table, ids, values in found:
        out |= {int(i) + job.bases[table] for i in ids[chosen(decision, job, table, ids, values)]}
    return out


def search(count: int, job: Job, found: list[DistanceReport]) -> tuple[int, int]:
    """The threshold, and how many questions it took: each shard counts its own keys."""
    keys = [block_keys(job, *report) for report in found]
    state: ThresholdSearch | int = ThresholdSearch(count)
    asked = 0
    while isinstance(state, ThresholdSearch):
        counts = np.zeros(state.within.size, np.int64)
        for own in keys:
            counts += count_keys(own, state.within)
        state = state.advance(counts)
        asked += 1
    return state, asked


def by_sorting(count: int, job: Job, found: list[DistanceReport]) -> set[int]:
    rows = []
    for table, ids, values in found:
        for block, value in zip(ids, values, strict=True):
            distance = math.inf if math.isnan(value) else float(value)
            rows.append((-distance, int(block) + job.bases[table]))
    return {order for distance, order in sorted(rows)[:count] if distance < 0}


@given(reports(), st.floats(0.01, 1.0))
def test_priority_equals_the_full_sort(case: tuple[Job, list[DistanceReport]], fraction: float) -> None:
    job, found = case
    count = blocks_per_round(fraction, job)
    threshold, asked = search(count, job, found)
    assert picked(above(threshold), job, found) == by_sorting(count, job, found)
    assert asked <= len(DIGITS)


@given(reports(), st.integers(1, 12), st.integers(0, 3))
def test_what_a_shard_that_left_had_counted_leaves_fewer_and_never_others(
    case: tuple[Job, list[DistanceReport]], count: int, leaves_after: int
) -> None:
    """It takes no part any more; of the others those are chosen that a full sort of all would choose."""
    job, found = case
    keys = [block_keys(job, *report) for report in found]
    state: ThresholdSearch | int = ThresholdSearch(count)
    asked = 0
    while isinstance(state, ThresholdSearch):
        there = keys if asked < leaves_after else keys[1:]
        counts = sum((count_keys(own, state.within) for own in there), np.zeros(state.within.size, np.int64))
        state = state.advance(counts)
        asked += 1
    wanted = by_sorting(count, job, found)
    got = picked(above(state), job, found[1:])
    if leaves_after:
        assert got >= wanted & picked(above(1), job, found[1:])
        assert len(got) <= count
    else:
        assert got == by_sorting(count, job, found[1:])


def test_priority_without_any_change_chooses_nothing() -> None:
    job = Job("j", [Table("a", (4,))])
    ids = np.arange(4, dtype=np.uint32)
    still = np.zeros(4, dtype=np.float32)
    assert not count_keys(block_keys(job, "a", ids, still), KeyRange()).any()
    threshold, _ = search(4, job, [("a", ids, still)])
    assert not chosen(above(threshold), job, "a", ids, still).any()
    assert not chosen(RoundSelection("priority"), job, "a", ids, still).any(), "whatever the threshold"


def test_a_distance_that_is_no_number_counts_as_infinite() -> None:
    job = Job("j", [Table("a", (4,))])
    found = [("a", np.arange(4, dtype=np.uint32), np.float32([1, np.inf, np.nan, 2]))]
    for count in (1, 2, 3):
        assert picked(above(search(count, job, found)[0]), job, found) == {1, 2, 3} - set(range(1 + count, 4))


def test_priority_of_a_million_blocks_takes_a_moment() -> None:
    job = Job("j", [Table("a", (1_000_000,))])
    ids = np.arange(1_000_000, dtype=np.uint32)
    values = np.random.default_rng(1).integers(0, 50, len(ids)).astype(np.float32)  # many ties
    threshold, _ = search(100_000, job, [("a", ids, values)])
    mask = chosen(above(threshold), job, "a", ids, values)
    assert mask.sum() == 100_000
    assert values[mask].min() >= values[~mask].max()


@pytest.mark.parametrize(("blocks", "fraction"), [(10, 0.3), (7, 0.125), (5, 1.0), (1, 0.01)])
def test_round_robin_visits_every_block_in_turn(blocks: int, fraction: float) -> None:
    job = Job("j", [Table("a", (blocks,)), Table("b", (2,))])
    found = [
        ("a", np.arange(blocks, dtype=np.uint32), np.empty(0, np.float32)),
        ("b", np.arange(2, dtype=np.uint32), np.empty(0, np.float32)),
    ]
    count = math.ceil(fraction * job.blocks)
    sequence = [picked(decide("round", fraction, number, job), job, found) for number in range(1, 40)]
    assert all(len(one) == count for one in sequence)
    flat = [
        order for number in range(1, 40) for order in ((number - 1) * count + step for step in range(count))
    ]
    assert sequence == [
        {order % job.blocks for order in flat[i * count : (i + 1) * count]} for i in range(39)
    ]


def test_random_is_the_same_at_every_shard_and_differs_by_round() -> None:
    job = Job("j", [Table("a", (100,))], seed=4)
    whole = [("a", np.arange(100, dtype=np.uint32), np.empty(0, np.float32))]
    halves = [("a", half.astype(np.uint32), np.empty(0, np.float32)) for half in np.split(np.arange(100), 2)]
    one, two = decide("random", 0.25, 1, job), decide("random", 0.25, 2, job)
    assert len(picked(one, job, whole)) == 25
    assert picked(one, job, whole) == picked(one, job, halves) != picked(two, job, whole)
    selection._draw_random.cache_clear()
    assert picked(one, job, whole) == picked(decide("random", 0.25, 1, job), job, whole)


def test_full_chooses_everything_that_is_settled() -> None:
    job = Job("j", [Table("a", (10,))])
    ids = np.array([1, 5, 9], dtype=np.uint32)
    decision = decide("full", 0.1, 3, job)
    assert chosen(decision, job, "a", ids, np.empty(0, np.float32)).all()


def test_an_unknown_selection_is_refused() -> None:
    with pytest.raises(ConfigError, match="priority, round, random, full"):
        decide("best", 0.1, 1, Job("j", [Table("a", (1,))]))
