"""Copies of keyed tables for rounds, made while keys come and go: each block is as it was when they began."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
import scar_ps.core.block_snapshot as block_snapshot
from scar.blocks import RowNames
from scar.keyed_rows import SIGHTINGS_SLOT, mix_keys
from scar_ps.core.block_snapshot import BlockSnapshot, StallTimer, split_pieces
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.keyed_store import KeyedBlockStore
from scar_ps.core.push_steps import apply_part
from tests.unit.keyed_support import WIDTH, keyed_job

POLICIES = [
    scar.keys(),
    scar.keys(evict="lru"),
    scar.keys(evict="lru", max_age=8),
    scar.keys(admit_after=2, evict="lru"),
]
CAPACITY = 256
MISSING = 1  # this block of the table lies at another shard


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_snapshot, "split_pieces", partial(split_pieces, elements=2 * WIDTH))


def push_some(store: KeyedBlockStore, clock: int, draw: np.random.Generator) -> None:
    """Keys that have rows, new ones, and ones for which others have to go."""
    keys = draw.choice(800, size=draw.integers(1, 80), replace=False)
    images: RowNames = np.sort(mix_keys(keys))
    mine = np.isin(store.table.find_blocks(images), store.ids)
    if not mine.any():
        return
    positions, rows = store.locate_rows(images[mine])
    values = draw.normal(size=WIDTH * len(rows)).astype(np.float32)
    apply_part(StoreSlice(store, positions, values, rows), store.table.rule, clock, lambda: None)


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    rule=st.sampled_from([scar.sgd(0.5), scar.adagrad(0.5)]),
    share=st.sampled_from([0.5, 1]),
    seed=st.integers(0, 2**32),
)
def test_a_copy_is_of_the_moment_at_which_it_was_begun(
    policy: scar.KeyPolicy, rule: scar.Rule, share: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    table = keyed_job(rule, policy, CAPACITY).table("w")
    store = KeyedBlockStore(table, np.delete(np.arange(table.blocks, dtype=np.uint32), MISSING))
    for clock in range(draw.integers(6)):
        push_some(store, clock, draw)
    chosen = np.flatnonzero(draw.random(len(store)) < share)
    expected = store.copy_blocks(chosen)
    snapshot = BlockSnapshot(store, chosen)
    snapshot.begin(StallTimer())
    clock = 6
    push_some(store, clock, draw)
    while piece := snapshot.next_piece():
        for copied in (False, True):
            for _ in range(draw.integers(3)):
                clock += 1
                push_some(store, clock, draw)
            if not copied:
                piece.copy()
    assert snapshot.contents.values.tobytes() == expected.values.tobytes()
    for name in expected.slots.keys() - {SIGHTINGS_SLOT}:  # a sketch, which may know of later ones
        assert snapshot.contents.slots[name].tobytes() == expected.slots[name].tobytes(), name
