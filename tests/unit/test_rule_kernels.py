"""SGD and AdaGrad in C give what numpy gives, bit for bit, and nothing is lost where there is no C."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from scar import tables
from scar.tables import Table
from scar_ps.core import rule_kernels, update_rules
from scar_ps.core.block_store import BlockStore
from scar_ps.core.rule_kernels import find_kernel
from scar_ps.core.segments import PushedRows, Segments
from scar_ps.core.update_rules import apply_push

RULES = {
    "sgd": tables.sgd(0.1),
    "adagrad": tables.adagrad(0.1),
    "rowwise": tables.adagrad(0.03, rowwise=True),
    "decay": tables.adagrad(0.1, weight_decay=0.01),
    "momentum": tables.momentum(0.1),
}
COMPILED = ("sgd", "adagrad", "rowwise")
ODD = (0.0, -0.0, 1e-40, -1e-30, 3e38, -3e38, float("inf"), float("nan"))


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Where it could be, it is."""
    if rule_kernels._library is None:
        assert shutil.which("cc") is None, "there is a compiler: run pip install -e ."
        pytest.skip("no C compiler on this machine: numpy does everything")


def stores_after(rule, dtype, block_rows, pushes, monkeypatch):
    """A store that C changed, and one that numpy changed."""
    found = []
    for library in (rule_kernels._library, None):
        monkeypatch.setattr(rule_kernels, "_library", library)
        table = Table("w", (600, 37), dtype=dtype, rule=rule, blocks=tables.rows(block_rows))
        store = BlockStore(table, np.arange(0, table.blocks, dtype=np.uint32))
        store.values[:] = np.random.default_rng(1).normal(size=len(store.values))
        for positions, rows, pushed in pushes:
            apply_push(store, positions, pushed.astype(dtype), lambda: None, rows=rows)
        found.append(store)
    return found


def draw_pushes(block_rows, odd):
    draw = np.random.default_rng(block_rows)
    pushes = []
    for kind in ("all", "scattered", "neighbours", "rows"):
        positions, rows = None, None
        count = 600 // block_rows
        if kind == "scattered":
            positions = np.sort(draw.choice(count, count // 3, replace=False))
        elif kind == "neighbours":
            positions = np.arange(count // 4, count // 2)
        elif kind == "rows":
            rows = np.sort(draw.choice(600, 200, replace=False)).astype(np.uint32)
            positions = np.unique(rows // block_rows).astype(np.int64)
        length = (
            200 if rows is not None else (count if positions is None else len(positions)) * block_rows
        ) * 37
        pushed = draw.normal(size=length)
        if odd:
            pushed[draw.integers(0, length, 50)] = draw.choice(ODD, 50)
        pushes.append((positions, rows, pushed))
    return pushes


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
@pytest.mark.parametrize("block_rows", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(RULES))
def test_c_and_numpy_agree_to_the_last_bit(name, dtype, block_rows, odd, monkeypatch):
    ours, numpys = stores_after(RULES[name], dtype, block_rows, draw_pushes(block_rows, odd), monkeypatch)
    np.testing.assert_array_equal(ours.values, numpys.values)
    for slot in ours.slots:
        np.testing.assert_array_equal(ours.slots[slot], numpys.slots[slot])


@pytest.mark.parametrize("name", list(RULES))
def test_only_what_is_compiled_goes_to_c(name):
    table = Table("w", (8, 4), rule=RULES[name])
    store = BlockStore(table, np.arange(8, dtype=np.uint32))
    assert (find_kernel(store, table.rule, store.layout) is not None) == (name in COMPILED)
    ragged = Table("w", (8,), rule=RULES["sgd"], blocks=tables.ragged([0, 3, 8]))
    store = BlockStore(ragged, np.arange(2, dtype=np.uint32))
    assert find_kernel(store, ragged.rule, store.layout) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", COMPILED)
def test_so_do_several_processors(name, dtype, monkeypatch):
    monkeypatch.setattr(rule_kernels, "count_parts", lambda _: 3)
    ours, numpys = stores_after(RULES[name], dtype, 4, draw_pushes(4, odd=True), monkeypatch)
    np.testing.assert_array_equal(ours.values, numpys.values)
    for slot in ours.slots:
        np.testing.assert_array_equal(ours.slots[slot], numpys.slots[slot])


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("row", [-1, 8, 2**62])
def test_a_row_outside_of_the_store_changes_nothing(name, row):
    table = Table("w", (8, 4), rule=RULES[name])
    store = BlockStore(table, np.arange(8, dtype=np.uint32))
    kernel = find_kernel(store, table.rule, store.row_layout)
    with pytest.raises(IndexError):
        kernel.apply(np.array([0, row]), PushedRows([np.ones(8, np.float32)], 2, 2))
    with pytest.raises(IndexError):
        kernel.apply(slice(7, 9), PushedRows([np.ones(8, np.float32)], 2, 2))
    assert not store.values.any()
    assert not any(slot.any() for slot in store.slots.values())


@pytest.mark.parametrize("piece", [37, 5 * 37, 40, 600 * 37])
@pytest.mark.parametrize("name", COMPILED)
def test_so_they_do_on_what_came_in_pieces(name, piece, monkeypatch):
    """Of whole rows, which are not put together, and of others."""
    monkeypatch.setattr(update_rules, "COMPILED_ELEMENTS", 7 * 37)  # steps begin and end within pieces
    draw = np.random.default_rng(piece)
    rows = np.sort(draw.choice(600, 200, replace=False)).astype(np.uint32)
    stores = []
    for pieces in (True, False):
        store = BlockStore(Table("w", (600, 37), rule=RULES[name]), np.arange(600, dtype=np.uint32))
        for at, count in ((None, 600), (rows.astype(np.int64), 200)):
            pushed = np.random.default_rng(count).normal(size=count * 37).astype(np.float32)
            given = Segments(np.split(pushed, range(piece, len(pushed), piece)), pushed.dtype)
            apply_push(store, at, given if pieces else pushed, lambda: None)
        stores.append(store)
    np.testing.assert_array_equal(stores[0].values, stores[1].values)
    for slot in stores[0].slots:
        np.testing.assert_array_equal(stores[0].slots[slot], stores[1].slots[slot])


def test_what_was_pushed_may_lie_anywhere():
    table = Table("w", (8, 4), rule=RULES["sgd"])
    store = BlockStore(table, np.arange(8, dtype=np.uint32))
    odd = np.frombuffer(b"x" + np.ones(32, np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    apply_push(store, None, odd, lambda: None)
    np.testing.assert_array_equal(store.values, np.full(32, np.float32(-0.1)))
