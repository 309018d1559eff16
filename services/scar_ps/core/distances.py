"""How far blocks have moved from their saved values: one pass, in pieces that stay in the cache.

Reads beside the apply thread without a lock: a distance that is slightly old or torn only changes an order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Layout, Positions
from scar.tables import Table
from scar_ps.core.block_arrays import RUN_ELEMENTS, split_runs
from scar_ps.core.block_store import BlockStore

BlockDistances = NDArray[np.float32]

# times RUN_ELEMENTS: with more counters than that, only those of categories that occur are kept
DENSE_RUNS = 16


def block_distances(store: BlockStore, positions: Positions | None = None) -> BlockDistances:
    """||value - saved|| of these blocks (None: all) by the table's norm, times the block's weight.

    Norms: "l2", "l1", "tv" (half of l1), and "histogram" for blocks of categories: how often each occurs in
    the block is compared, by "tv". So it is the total variation of two distributions, scaled by the size of
    the block; the order of its elements does not matter (a document's topics in LDA).
    """
    if positions is not None and len(positions) == len(store):
        positions = None
    layout = store.packed_layout(positions)
    sums = np.empty(len(layout), np.float64)
    with np.errstate(all="ignore"):
        for first, last in split_runs(layout, RUN_ELEMENTS):
            if positions is None and store.places is None:
                run = slice(layout.find_start(first), layout.find_start(last))
                values = store.values[run]
                saved = store.saved[run]
            else:
                at = np.arange(first, last) if positions is None else positions[first:last]
                values = store.gather(store.values, store.layout, at)
                saved = store.gather(store.saved, store.layout, at)
            sums[first:last] = _sum_run(values, saved, store.table.norm, layout, (first, last))
        return _scale_sums(sums, store.table, store.ids if positions is None else store.ids[positions])


def _sum_run(values: Array, saved: Array, norm: str, layout: Layout, run: tuple[int, int]) -> Any:
    """Of the blocks ``run`` (first, last) of ``layout``, whose values these are."""
    first, last = run
    if norm == "histogram":
        return _sum_histograms(values, saved, layout.sizes[first:last])
    if last - first == 1:
        return _sum_single(values, saved, norm)
    if layout.width:
        return _sum_uniform(values, saved, norm, layout.width)
    return _sum_ragged(values, saved, norm, layout.starts[first:last] - layout.find_start(first))


def _scale_sums(sums: NDArray[np.float64], table: Table, ids: Ids) -> BlockDistances:
    if table.norm == "l2":
        np.sqrt(sums, out=sums)
    elif table.norm in ("tv", "histogram"):
        sums *= 0.5
    if table.weights is not None:
        sums *= table.weights[ids]
    return sums.astype(np.float32)


def _subtract(values: Array, saved: Array, wide: bool = False) -> Any:
    """Integers are compared as float64: their difference could overflow."""
    dtype = np.float64 if wide or values.dtype.kind != "f" else values.dtype
    return np.subtract(values, saved, dtype=dtype)


def _sum_uniform(values: Array, saved: Array, norm: str, width: int) -> Any:
    difference = _subtract(values, saved).reshape(-1, width)
    if norm == "l2":
        return np.einsum("ij,ij->i", difference, difference)
    return np.einsum("ij->i", np.abs(difference, out=difference))


def _sum_ragged(values: Array, saved: Array, norm: str, starts: NDArray[np.int64]) -> Any:
    difference = _subtract(values, saved, wide=True)  # reduceat adds one by one: float32 would lose digits
    np.multiply(difference, difference, out=difference) if norm == "l2" else np.abs(
        difference, out=difference
    )
    return np.add.reduceat(difference, starts)


def _sum_single(values: Array, saved: Array, norm: str) -> float:
    """One large block, piece by piece."""
    total = 0.0
    for start in range(0, len(values), RUN_ELEMENTS):
        difference = _subtract(values[start : start + RUN_ELEMENTS], saved[start : start + RUN_ELEMENTS])
        total += float(np.dot(difference, difference) if norm == "l2" else np.abs(difference).sum())
    return total


def _sum_histograms(values: Array, saved: Array, sizes: NDArray[np.int64]) -> Any:
    """Sum over categories of |count in values - count in saved|, for every block.

    Only elements that differ are looked at.
    """
    differ = np.flatnonzero(values != saved)
    if not len(differ):
        return np.zeros(len(sizes))
    block = np.repeat(np.arange(len(sizes)), sizes)[differ]
    now = values[differ].astype(np.int64)
    then = saved[differ].astype(np.int64)
    lowest = min(now.min(), then.min())
    width = int(max(now.max(), then.max()) - lowest) + 1
    shift = block * width - lowest
    now, then = now + shift, then + shift
    if len(sizes) * width > DENSE_RUNS * RUN_ELEMENTS:
        return _count_sparse(now, then, width, len(sizes))
    each = max(1, RUN_ELEMENTS // width)  # blocks whose counters stay in the cache
    firsts = np.arange(0, len(sizes), each)
    bounds = [*np.searchsorted(block, firsts), len(differ)]
    found = [
        _count_dense(
            now[low:high] - first * width,
            then[low:high] - first * width,
            width,
            min(each, len(sizes) - first),
        )
        for first, low, high in zip(firsts.tolist(), bounds[:-1], bounds[1:], strict=True)
    ]
    return np.concatenate(found)


def _count_dense(now: NDArray[np.int64], then: NDArray[np.int64], width: int, blocks: int) -> Any:
    """``now``, ``then``: block * width + category of each element."""
    surplus = np.bincount(now, minlength=blocks * width)
    surplus -= np.bincount(then, minlength=blocks * width)
    return np.abs(surplus, out=surplus).reshape(blocks, width).sum(axis=1)


def _count_sparse(now: NDArray[np.int64], then: NDArray[np.int64], width: int, blocks: int) -> Any:
    """The same where categories are far apart: only those that occur have a counter."""
    occurring, keys = np.unique(np.concatenate((now, then)), return_inverse=True)
    surplus = np.bincount(keys[: len(now)], minlength=len(occurring))
    surplus -= np.bincount(keys[len(now) :], minlength=len(occurring))
    return np.bincount(occurring // width, weights=np.abs(surplus), minlength=blocks)
