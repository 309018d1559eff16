"""Distances against the definition, one block after the other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar.tables import Table
from scar_ps.core import distances as module
from scar_ps.core.block_store import BlockStore
from scar_ps.core.distances import block_distances

NORMS = {
    "l2": lambda d: np.sqrt((d**2).sum()),
    "l1": lambda d: np.abs(d).sum(),
    "tv": lambda d: np.abs(d).sum() / 2,
}


@settings(max_examples=150)
@given(
    norm=st.sampled_from(sorted(NORMS)),
    dtype=st.sampled_from(["float32", "float64", "int32", "int64"]),
    cut=st.sampled_from([tables.rows(1), tables.rows(4), tables.layer(), tables.ragged([0, 2, 3, 13])]),
    run=st.sampled_from([1, 5, 1000]),
    seed=st.integers(0, 2**16),
)
def test_every_norm_equals_its_definition(norm, dtype, cut, run, seed):
    table = Table("w", (13, 3), dtype=dtype, norm=norm, blocks=cut)
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    draw = np.random.default_rng(seed)
    store.values[:] = (draw.normal(size=39) * 100).astype(dtype)
    store.saved[:] = (draw.normal(size=39) * 100).astype(dtype)
    whole, module.RUN_ELEMENTS = module.RUN_ELEMENTS, run
    try:
        found = block_distances(store)
    finally:
        module.RUN_ELEMENTS = whole
    difference = store.values.astype(np.float64) - store.saved.astype(np.float64)
    starts = store.layout.starts
    expected = [NORMS[norm](difference[starts[i] : starts[i + 1]]) for i in range(len(store))]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@settings(max_examples=100)
@given(
    spread=st.sampled_from([1, 3, 2**30]),
    cut=st.sampled_from([tables.rows(1), tables.rows(4), tables.layer(), tables.ragged([0, 2, 3, 13])]),
    run=st.sampled_from([1, 5, 1000]),
    seed=st.integers(0, 2**16),
)
def test_histogram_compares_how_often_each_category_occurs(spread, cut, run, seed):
    table = Table("z", (13,), dtype="int32", norm="histogram", blocks=cut)
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    draw = np.random.default_rng(seed)
    store.values[:], store.saved[:] = draw.integers(-2, 3, (2, 13)) * spread
    whole, module.RUN_ELEMENTS = module.RUN_ELEMENTS, run
    try:
        found = block_distances(store)
    finally:
        module.RUN_ELEMENTS = whole
    starts = store.layout.starts
    pairs = [(store.values[a:b].tolist(), store.saved[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    expected = [sum(abs(now.count(v) - then.count(v)) for v in {*now, *then}) / 2 for now, then in pairs]
    assert found.tolist() == expected


def test_unchanged_blocks_are_at_zero_and_what_is_no_number_stays_none():
    store = BlockStore(Table("w", (3, 2), allow_nonfinite=True), np.arange(3, dtype=np.uint32))
    store.values[:] = [1, 1, np.nan, 0, np.inf, 0]
    store.saved[:] = [1, 1, 0, 0, 0, 0]
    found = block_distances(store)
    assert found[0] == 0
    assert np.isnan(found[1])
    assert np.isinf(found[2])


def test_weights_belong_to_the_blocks_of_the_table_whatever_a_shard_holds():
    store = BlockStore(Table("w", (4, 2), weights=[1, 2, 3, 0.5]), np.array([1, 3], np.uint32))
    store.values[:] = [3, 4, 6, 8]
    assert block_distances(store).tolist() == [10, 5]


def test_integers_do_not_overflow():
    store = BlockStore(Table("w", (1,), dtype="int32", norm="l1"), np.arange(1, dtype=np.uint32))
    store.values[:], store.saved[:] = 2**31 - 1, -(2**31)
    assert block_distances(store)[0] == np.float32(2.0**32 - 1)


@pytest.mark.parametrize("blocks", [1, 1000])
def test_large_blocks_are_measured_accurately(blocks):
    table = Table("w", (2_000_000,), blocks=tables.layer_shards(blocks))
    store = BlockStore(table, np.arange(blocks, dtype=np.uint32))
    store.values[:] = np.random.default_rng(0).normal(size=2_000_000)
    expected = np.sqrt((store.values.astype(np.float64).reshape(blocks, -1) ** 2).sum(axis=1))
    np.testing.assert_allclose(block_distances(store), expected, rtol=1e-4)
