"""The pass that finds the blocks which changed most since they were saved."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, rate_row, time_pairs
from scar_ps.core.block_store import BlockStore
from scar_ps.core.distances import block_distances

SIZE = 64 << 20


def measure_rows(repeat: int) -> list[BenchRow]:
    return [_measure_row(width, repeat) for width in (16, 64, 4096)]


def _measure_row(width: int, repeat: int) -> BenchRow:
    table = scar.Table("w", (SIZE // 4 // width, width))
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    draw = np.random.default_rng(1)
    store.values[...] = draw.random(table.elements, dtype=np.float32)
    store.saved[...] = draw.random(table.elements, dtype=np.float32)
    times = time_pairs(lambda: block_distances(store), yardsticks.one_pass(store.values, store.saved), repeat)
    name = f"distances of {table.blocks:,} blocks of {width}"
    return rate_row(name, 2 * SIZE / 1e9, times, "GB/s", "sum of both arrays")
