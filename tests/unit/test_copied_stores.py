"""A store for other blocks: what stays has its values, what was gained is zero, in whatever memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar.blocks import Layout
from scar.tables import Table
from scar_ps.core.block_store import BlockStore


def draw_blocks(seed: int, table: Table) -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(seed).random(table.blocks) < 0.6).astype(np.uint32)


CUTS = st.one_of(
    st.integers(1, 6).map(tables.rows),
    st.lists(st.integers(1, 39), unique=True).map(lambda edges: tables.ragged([0, *sorted(edges), 40])),
)


@settings(max_examples=300)
@given(cut=CUTS, before=st.integers(0, 500), after=st.integers(0, 500))
def test_every_block_is_what_it_was_or_zero(cut: tables.Blocks, before: int, after: int) -> None:
    table = Table("w", (40, 2), blocks=cut)
    held, wanted = draw_blocks(before, table), draw_blocks(after, table)
    old = BlockStore(table, held)
    old.values[:] = 1 + np.arange(len(old.values))
    old.saved[:] = -old.values
    gained = ~np.isin(wanted, held) | (np.random.default_rng(before + after).random(len(wanted)) < 0.2)
    new = old.copy_for(wanted, gained, lambda: None)
    values = np.zeros(table.elements, np.float32)
    values[table.layout.indices(held.astype(np.int64))] = old.values
    values[table.layout.indices(wanted[gained].astype(np.int64))] = 0
    expected = values[table.layout.indices(wanted.astype(np.int64))]
    np.testing.assert_array_equal(new.values, expected)
    np.testing.assert_array_equal(new.saved, -expected)


def test_the_last_block_may_be_of_another_size() -> None:
    assert Layout(np.array([4, 4, 3])).body == (2, 4)
    assert Layout(np.array([4, 4, 4])).body == (3, 4)
    assert Layout(np.array([4, 3, 4])).body == (0, 0)
    assert Layout(np.array([], np.int64)).body == (0, 0)
