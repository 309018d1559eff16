"""How many bytes workers and readers move to and from this shard, in all and for each block. Pure.

The sum is exact. Which blocks a message touches is noted of one message in eight, and of at most 512 of its
blocks or rows, as it costs about as much as to find them: drawn at random, or a rhythm of pulls and pushes
could hide a table.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids, Positions
from scar_ps.core.block_arrays import StoreRows
from scar_ps.core.block_store import BlockStore, StoreSlice

SAMPLED = 1 / 8  # of the messages
MOST_SAMPLED = 512  # blocks or rows of one message
HALVED_AFTER = 30.0  # seconds; what was counted until then counts half

Amounts = NDArray[np.float64]
Touched = TypeVar("Touched", Positions, StoreRows)


@dataclass(frozen=True, eq=False, slots=True)
class TrafficSummary:
    """``bytes`` in ``seconds``. ``blocks``: of some blocks of each table, ids ascending, and the bytes of
    each.
    """

    seconds: float
    bytes: float
    blocks: Mapping[str, tuple[Ids, Amounts]]


class TrafficCounter:
    """Of one shard, from one epoch to the next: then it may have other blocks."""

    def __init__(self) -> None:
        self._draw = random.Random(0)
        self.begin({}, 0.0)

    def begin(self, tables: Mapping[str, BlockStore], now: float) -> None:
        """An epoch came."""
        self._tables = dict(tables)
        self._since = now
        self._bytes = 0.0
        self._sampled: dict[str, Amounts] = {}  # of each block, without what went to all of them at once
        self._whole = dict.fromkeys(tables, 0.0)  # messages with all blocks

    def count(self, parts: Iterable[StoreSlice]) -> None:
        """What one message pulls or pushes."""
        sampled = self._draw.random() < SAMPLED
        for part in parts:
            self._bytes += _count_bytes(part)
            if sampled:
                self._sample(part)

    def _sample(self, part: StoreSlice) -> None:
        table = part.store.table
        if part.positions is None and part.rows is None:
            self._whole[table.name] += 1
            return
        found = self._sampled.get(table.name)
        if found is None:
            found = self._sampled[table.name] = np.zeros(len(part.store))
        if part.rows is not None:
            rows, weight = self._draw_some(part.rows)
            row_bytes = table.row_elements * table.dtype.itemsize
            np.add.at(found, part.store.find_row_blocks(rows), weight * row_bytes)
        elif part.positions is not None:
            at, weight = self._draw_some(part.positions)
            found[at] += part.store.packed_layout(at).sizes * (weight * table.dtype.itemsize)

    def _draw_some(self, touched: Touched) -> tuple[Touched, int]:
        """Some of them, as many in each part of the table, and of how many each is one."""
        stride = -(-len(touched) // MOST_SAMPLED) or 1
        return touched[self._draw.randrange(stride) :: stride], stride

    def read(self, now: float, busiest: int) -> TrafficSummary:
        """So far, with so many blocks that have the most of it, and as many that have the least."""
        seconds = now - self._since
        blocks = self._find_extremes(busiest) if busiest else {}
        summary = TrafficSummary(seconds, self._bytes, blocks)
        if seconds > HALVED_AFTER:
            self._since = now - seconds / 2
            self._bytes /= 2
            self._whole = {name: count / 2 for name, count in self._whole.items()}
            for amounts in self._sampled.values():
                amounts /= 2
        return summary

    def _find_extremes(self, most: int) -> dict[str, tuple[Ids, Amounts]]:
        found = {name: self._amounts(store) for name, store in self._tables.items() if len(store)}
        total = sum(float(amounts.sum()) for amounts in found.values())
        if not total:
            return {}
        extremes = {}
        for name, amounts in found.items():
            chosen = _extreme_positions(amounts, most)
            ids = self._tables[name].ids[chosen]
            extremes[name] = ids, amounts[chosen] * (self._bytes / total)
        return extremes

    def _amounts(self, store: BlockStore) -> Amounts:
        """Of each block, in the messages that were looked at."""
        table = store.table
        whole = self._whole[table.name] * table.dtype.itemsize
        amounts = np.multiply(store.layout.sizes, whole) if whole else np.zeros(len(store))
        if table.name in self._sampled:
            amounts += self._sampled[table.name]
        return amounts


def _count_bytes(part: StoreSlice) -> int:
    table = part.store.table
    if part.rows is not None:
        return len(part.rows) * table.row_elements * table.dtype.itemsize
    return part.store.count_elements(part.positions) * table.dtype.itemsize


def _extreme_positions(amounts: Amounts, most: int) -> NDArray[np.int64]:
    """Ascending positions of the ``most`` largest, and of ``most`` small ones: of many blocks those are
    looked for among some of what is below the mean.
    """
    if len(amounts) <= 2 * most:
        return np.arange(len(amounts))
    below = amounts <= amounts.mean()
    large = np.flatnonzero(~below)
    small = np.flatnonzero(below)[:: 1 + len(amounts) // (16 * most)]
    if len(large) > most:
        large = large[np.argpartition(amounts[large], -most)[-most:]]
    if len(small) > most:
        small = small[np.argpartition(amounts[small], most)[:most]]
    return np.sort(np.concatenate([large, small]))
