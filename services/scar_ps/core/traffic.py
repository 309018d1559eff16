"""How many bytes workers and readers move to and from this shard, in all and for each block. Pure.

The sum is exact. Which blocks a message touches is noted of one message in eight, as it costs about as much
as to find its rows: drawn at random, or a rhythm of pulls and pushes could hide a table.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids
from scar_ps.core.block_store import BlockStore, StoreSlice

SAMPLED = 1 / 8  # of the messages
HALVED_AFTER = 30.0  # seconds; what was counted until then counts half

Amounts = NDArray[np.float64]


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
        if part.rows is None:
            found[part.positions] += part.layout.sizes * table.dtype.itemsize
        else:
            row_bytes = table.row_elements * table.dtype.itemsize
            np.add.at(found, part.store.find_row_blocks(part.rows), row_bytes)

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
        amounts = store.layout.sizes.astype(np.float64)
        amounts *= self._whole[table.name] * table.dtype.itemsize
        if table.name in self._sampled:
            amounts += self._sampled[table.name]
        return amounts


def _count_bytes(part: StoreSlice) -> int:
    table = part.store.table
    if part.rows is not None:
        return len(part.rows) * table.row_elements * table.dtype.itemsize
    return part.store.count_elements(part.positions) * table.dtype.itemsize


def _extreme_positions(amounts: Amounts, most: int) -> NDArray[np.int64]:
    """Ascending positions of the ``most`` largest and the ``most`` smallest."""
    if len(amounts) <= 2 * most:
        return np.arange(len(amounts))
    order = np.argpartition(amounts, (most, len(amounts) - most))
    return np.sort(np.concatenate([order[:most], order[-most:]]))
