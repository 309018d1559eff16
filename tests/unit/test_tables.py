"""Tables, blocks and initial values: the same model on every machine and for every number of shards."""

from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
from scar import tables
from scar.blocks import Layout, positions_of
from scar.errors import ConfigError, ShapeMismatch, UnknownTable
from scar.initial_values import PAGE_ELEMENTS
from scar.placement import spread_blocks

SEEDED = settings(max_examples=60, derandomize=True)

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=12)


@SEEDED
@given(SIZES, st.data())
def test_gather_and_scatter_of_ragged_blocks(sizes: list[int], data: st.DataObject) -> None:
    layout = Layout(np.array(sizes))
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
    positions = np.array(sorted(chosen), dtype=np.int64)
    values = np.arange(layout.elements, dtype=np.float32)
    packed = layout.gather(values, positions)
    pieces = [values[layout.starts[at] : layout.starts[at + 1]] for at in positions]
    np.testing.assert_array_equal(packed, np.concatenate([*pieces, values[:0]]))
    np.testing.assert_array_equal(layout.take(positions).sizes, np.array(sizes)[positions])
    target = np.zeros_like(values)
    layout.scatter(target, positions, packed)
    expected = np.where(np.isin(np.repeat(np.arange(len(sizes)), sizes), positions), values, 0)
    np.testing.assert_array_equal(target, expected)


@SEEDED
@given(
    st.lists(st.integers(0, 30), unique=True),
    st.lists(st.integers(0, 30)),
    st.sampled_from([(np.uint32, 1), (np.uint32, 1 << 26), (np.uint64, 1), (np.uint64, 1 << 59)]),
)
def test_positions_of(held: list[int], wanted: list[int], kind: tuple[type[np.unsignedinteger], int]) -> None:
    dtype, apart = kind
    ascending = sorted(held)
    scaled = (np.array(ids, dtype) * dtype(apart) for ids in (ascending, wanted))
    expected = [ascending.index(value) if value in held else -1 for value in wanted]
    assert positions_of(*scaled).tolist() == expected


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (None, list(range(11))),
        (scar.rows(4), [0, 4, 8, 10]),
        (scar.layer(), [0, 10]),
        (scar.layer_shards(3), [0, 3, 6, 10]),
        (scar.layer_shards(99), list(range(11))),
        (scar.ragged([0, 7, 10]), [0, 7, 10]),
    ],
)
def test_cuts(blocks: scar.Blocks | None, expected: list[int]) -> None:
    table = scar.Table("w", (10, 3), blocks=blocks)
    assert table.row_offsets.tolist() == expected
    assert table.layout.starts.tolist() == [3 * row for row in expected]
    assert table.blocks == len(expected) - 1


INITS = [scar.zeros(), scar.constant(2.5), scar.uniform(-1, 1), scar.normal(0, 3)]


@SEEDED
@given(st.sampled_from(INITS), SIZES, st.integers(1, 6), st.integers(0, 1 << 62))
def test_initial_values_do_not_depend_on_the_number_of_shards(
    init: scar.Init, sizes: list[int], shards: int, seed: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    table = scar.Table("w", (int(offsets[-1]), 2), init=init, blocks=scar.ragged(offsets))
    whole = table.initial(seed, np.arange(table.blocks, dtype=np.uint32))
    owners = spread_blocks(scar.Job("j", [table], seed=seed), shards)["w"]
    for shard in range(shards):
        ids = np.flatnonzero(owners == shard).astype(np.uint32)
        np.testing.assert_array_equal(
            table.initial(seed, ids), table.layout.gather(whole, ids.astype(np.int64))
        )


def test_initial_values_of_many_pages() -> None:
    """More elements than a page: single blocks are made without the pages of others, and equal the whole."""
    table = scar.Table("w", (50_000, 4), init=scar.uniform(), blocks=scar.rows(3))
    whole = table.initial(3, np.arange(table.blocks, dtype=np.uint32))
    ids = np.array([0, 5461, 5462, table.blocks - 1], np.uint32)
    np.testing.assert_array_equal(table.initial(3, ids), table.layout.gather(whole, ids.astype(np.int64)))
    assert len(np.unique(whole)) > 0.99 * whole.size
    assert not np.array_equal(whole, table.initial(4, np.arange(table.blocks, dtype=np.uint32)))


@pytest.mark.parametrize("init", [scar.uniform(-1, 1), scar.normal(0, 3)], ids=lambda init: init.kind)
@pytest.mark.parametrize(
    "cut", [scar.rows(1001), scar.ragged([0, *range(1, 50_000, 1303), 50_000])], ids=["even", "ragged"]
)
def test_large_blocks_drawn_alone_are_what_their_whole_page_has(init: scar.Init, cut: scar.Blocks) -> None:
    table = scar.Table("w", (50_000, 7), dtype="float64", init=init, blocks=cut)
    per_page = max(1, PAGE_ELEMENTS * table.blocks // table.elements)
    for block in range(table.blocks):
        page, within = divmod(block, per_page)
        drawn = np.random.Generator(np.random.Philox(key=[3, zlib.crc32(b"w")], counter=[0, 0, 0, page]))
        starts = table.layout.starts
        start = starts[block - within]
        end = starts[block + 1]
        draw = drawn.uniform if init.kind == "uniform" else drawn.normal
        expected = draw(init.low, init.high, end - start)[starts[block] - start :]
        np.testing.assert_array_equal(table.initial(3, np.array([block], np.uint32)), expected)


def test_tables_draw_different_values() -> None:
    ids = np.arange(4, dtype=np.uint32)
    a, b = (scar.Table(name, (4, 4), init=scar.normal()).initial(0, ids) for name in "ab")
    assert not np.array_equal(a, b)


def test_given_values() -> None:
    table = scar.Table("w", (3, 2), init=scar.given(np.arange(6).reshape(3, 2)))
    given_array = np.arange(6, dtype=np.float32)
    assert table.initial(0, np.array([0, 2], np.uint32), given_array).tolist() == [0, 1, 4, 5]
    with pytest.raises(ShapeMismatch):
        table.initial(0, np.array([0], np.uint32))
    with pytest.raises(ConfigError, match="given array"):
        scar.Table("w", (2, 2), init=scar.given([1, 2]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: scar.Table("a b", 3),
        lambda: scar.Table("w", 0),
        lambda: scar.Table("w", (2, -1)),
        lambda: scar.Table("w", 3, dtype="float16"),
        lambda: scar.Table("w", 3, dtype="nothing"),
        lambda: scar.Table("w", 3, norm="l7"),
        lambda: scar.Table("w", 3, weights=[1, 2]),
        lambda: scar.Table("w", 3, weights=[1, 0, 1]),
        lambda: scar.Table("w", 3, weights=[1, float("nan"), 1]),
        lambda: scar.Table("w", 4, blocks=scar.rows(2), weights=[1, 1, 1, 1]),
        lambda: scar.Table("w", 3, dtype="int32", rule=scar.sgd(0.1)),
        lambda: scar.Table("w", 3, blocks=scar.rows(0)),
        lambda: scar.Table("w", 3, blocks=scar.ragged([0, 2])),
        lambda: scar.Table("w", 3, blocks=scar.ragged([0, 2, 2, 3])),
        lambda: scar.Table("w", 1 << 50),
        lambda: scar.Rule("sgd"),
        lambda: scar.Rule("unknown"),
        lambda: scar.Rule("sgd", {"lr": 0.1, "decay": 0.1}),
        lambda: scar.Init("unknown"),
        lambda: scar.Checkpoint(fraction=0),
        lambda: scar.Checkpoint(selection="best"),
        lambda: scar.Checkpoint(period=0),
        lambda: scar.Job("J", [scar.Table("w", 3)]),
        lambda: scar.Job("j", []),
        lambda: scar.Job("j", [scar.Table("w", 3), scar.Table("w", 4)]),
        lambda: scar.Job("j", [scar.Table("w", 3)], consistency="eventual"),
        lambda: scar.Job("j", [scar.Table("w", 3)], shards=0),
        lambda: scar.Job("j", [scar.Table("w", 3)], recovery="full"),
    ],
)
def test_what_cannot_be_is_refused_with_advice(make: object) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.message


def test_job_numbers() -> None:
    job = scar.Job(
        "j",
        [scar.Table("a", 3), scar.Table("b", (4, 2), blocks=scar.rows(2))],
        consistency="ssp",
        staleness=3,
    )
    assert (job.blocks, job.bases, job.slack) == (5, {"a": 0, "b": 3}, 3)
    assert job.table("b").bytes == 32
    with pytest.raises(UnknownTable, match="'c'"):
        job.table("c")


@pytest.mark.parametrize(
    ("fraction", "period", "every"), [(0.125, 8, 1), (0.5, 8, 4), (1.0, 8, 8), (0.01, 4, 1)]
)
def test_rounds_are_as_frequent_as_they_are_small(fraction: float, period: int, every: int) -> None:
    assert scar.Checkpoint("priority", fraction, period).every == every
    assert scar.Checkpoint("full", fraction, period).every == period


def test_offsets_whose_differences_wrap_are_refused() -> None:
    with pytest.raises(ConfigError, match="must grow"):
        scar.Table("w", (10,), blocks=scar.ragged([0, 2**63 - 1, -2, 10]))


def test_too_many_blocks_are_refused_before_any_memory_is_taken() -> None:
    most = tables.MAX_BLOCKS
    tracemalloc.start()
    with pytest.raises(ConfigError, match="blocks"):
        scar.Table("w", (most + 1,))
    whole = [scar.Table(f"w{number}", (most // 2 + 1,)) for number in range(2)]
    with pytest.raises(ConfigError, match="blocks"):
        scar.Job("j", whole)
    scar.Job("j", whole[:1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "blocks", [scar.rows(1), scar.rows(3), scar.rows(20), scar.layer(), scar.layer_shards(4)]
)
def test_blocks_are_counted_as_they_are_cut(blocks: tables.Blocks) -> None:
    table = scar.Table("w", (10, 2), blocks=blocks)
    assert table.blocks == len(table.row_offsets) - 1
