"""Pushes of one clock, added up: in their order, to the last bit, whoever pushed to which blocks or rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.block_cuts import ragged, rows
from scar.blocks import unite_ascending
from scar.tables import Table
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.bsp_buffer import sum_parts

TABLES = {
    "rows": Table("w", (12, 2)),
    "one size": Table("w", (12, 2), blocks=rows(3)),
    "ragged": Table("w", (12, 2), blocks=ragged([0, 1, 5, 6, 12])),
}
PICKS = st.lists(st.sets(st.integers(0, 11), min_size=1) | st.none(), min_size=2, max_size=4)


def draw_values(draw: np.random.Generator, count: int) -> np.ndarray:
    """Of all sizes, so that the order of a sum shows, with zeros of both signs."""
    values = draw.normal(size=count) * 10.0 ** draw.integers(-6, 6, count)
    return np.where(draw.random(count) < 0.2, draw.choice([0.0, -0.0], count), values).astype(np.float32)


def expect(store: BlockStore, parts: list[StoreSlice]) -> dict[int, bytes]:
    """Element by element: what was pushed first, plus what came after."""
    found: dict[int, np.float32] = {}
    for part in parts:
        if part.rows is None:
            at = store.layout.indices(part.store_positions)
        else:
            at = store.row_layout.indices(np.asarray(part.rows, np.int64))
        for element, value in zip(at.tolist(), np.asarray(part.values), strict=True):
            found[element] = found[element] + value if element in found else value
    return {element: value.tobytes() for element, value in found.items()}


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=60, deadline=None)
@given(picks=PICKS, by_rows=st.booleans(), seed=st.integers(0, 99))
def test_a_sum_is_made_in_the_order_of_pushes(
    kind: str, picks: list[set[int] | None], by_rows: bool, seed: int
) -> None:
    table = TABLES[kind]
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    draw = np.random.default_rng(seed)
    parts = []
    for number, pick in enumerate(picks):
        own = None
        at = None if pick is None else np.array(sorted({one % table.blocks for one in pick}), np.int64)
        if by_rows and pick is not None and number:
            at, own = store.locate_rows(np.array(sorted(pick), np.uint32))
        part = StoreSlice(store, at, np.empty(0, np.float32), own)
        parts.append(StoreSlice(store, at, draw_values(draw, part.layout.elements), own))
    total = sum_parts(parts)
    values = np.asarray(total.values)
    assert expect(store, [total]) == expect(store, parts)
    assert len(values) == len(expect(store, parts))
    assert total.positions is None or (np.diff(total.positions) > 0).all()


@settings(max_examples=50)
@given(several=st.lists(st.lists(st.integers(0, 40), unique=True).map(sorted), min_size=1, max_size=4))
def test_ascending_ids_of_several_are_merged(several: list[list[int]]) -> None:
    united = unite_ascending([np.array(one, np.uint64) for one in several])
    assert united.tolist() == sorted({number for one in several for number in one})
    assert united.dtype == np.uint64
