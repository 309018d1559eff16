"""Which blocks change places because one shard has much more traffic than the others. Pure.

Placement is random, and blocks are about as many at each shard: it levels what they hold, and traffic only
where no blocks have much more of it than others. Where some do, hot blocks of a busy shard change places with
cold ones of a quiet shard, in pairs of one table and of about the same size, so what shards hold stays level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids
from scar.placement import Epoch
from scar.tables import Job, Table
from scar_recovery.core.epoch_intent import Transfer

UNEVEN = 1.25  # times the mean is what the busiest shard may have
GAIN = 0.1  # of the busiest shard's traffic must go, or an exchange is not worth its epoch
MOST_COUPLES = 16  # of shards that exchange blocks at once
ALIKE = 2.0  # times as large as the other may one block of a pair be

Rates = NDArray[np.float64]


class BlockRates(NamedTuple):
    """Blocks of one table, ids ascending, and the bytes a second of each."""

    ids: Ids
    rates: Rates


@dataclass(frozen=True, eq=False)
class ShardTraffic:
    """Bytes a second that are pulled from the shard with this key and pushed to it. ``blocks``: of its
    busiest and its quietest, by table.
    """

    shard: str
    rate: float
    blocks: Mapping[str, BlockRates]


class _Pairs(NamedTuple):
    """Blocks of one table that may change places. ``gains``: bytes a second that the first has more."""

    table: NDArray[np.int64]  # index of the table
    hot: NDArray[np.int64]
    cold: NDArray[np.int64]
    gains: Rates
    bytes: NDArray[np.int64]  # of both

    def take(self, positions: NDArray[Any]) -> _Pairs:
        """Those at these positions, or of this mask."""
        return _Pairs(
            self.table[positions],
            self.hot[positions],
            self.cold[positions],
            self.gains[positions],
            self.bytes[positions],
        )


def is_uneven(rates: Sequence[float], least: float) -> bool:
    """Whether these shards' traffic is worth a look at their blocks: the busiest has more than ``least``, and
    much more than the others.
    """
    return len(rates) > 1 and max(rates) > least and busiest_share(rates) > UNEVEN


def busiest_share(rates: Sequence[float]) -> float:
    """Of the busiest of these shards, by the mean."""
    return max(rates) * len(rates) / sum(rates)


def plan_exchanges(
    job: Job, epoch: Epoch, traffic: Sequence[ShardTraffic], least: float, most_bytes: int
) -> tuple[Transfer, ...]:
    """Blocks that change places between busy shards and quiet ones; (): nothing is worth it.

    ``traffic``: of each shard of the epoch; ``least``: as :func:`is_uneven` has it. All blocks together have
    at most ``most_bytes`` of values and slots.
    """
    seats = sorted(traffic, key=lambda one: epoch.shard_index(one.shard))
    rates = np.array([one.rate for one in seats])
    complete = [one.shard for one in seats] == [one.key for one in epoch.shards]
    if not complete or not is_uneven(rates.tolist(), least):
        return ()
    mean = float(rates.mean())
    busy = [seat for seat in np.argsort(-rates).tolist() if rates[seat] > UNEVEN * mean]
    quiet = [seat for seat in np.argsort(rates).tolist() if rates[seat] < mean]
    after = rates.copy()
    transfers: list[Transfer] = []
    for hot, cool in zip(cycle(busy), quiet[:MOST_COUPLES], strict=False):
        excess = min(after[hot] - mean, mean - after[cool])
        pairs = _choose_pairs(job, epoch, (seats[hot], seats[cool]), excess, most_bytes)
        if not len(pairs.gains):
            continue
        most_bytes -= int(pairs.bytes.sum())
        after[hot] -= pairs.gains.sum()
        after[cool] += pairs.gains.sum()
        there = _by_table(job, pairs.table, pairs.hot)
        back = _by_table(job, pairs.table, pairs.cold)
        seats[hot] = _without_blocks(seats[hot], there)
        transfers.append(Transfer(epoch.shards[hot], epoch.shards[cool], there))
        transfers.append(Transfer(epoch.shards[cool], epoch.shards[hot], back))
    return tuple(transfers) if after.max() <= (1 - GAIN) * rates.max() else ()


def _choose_pairs(
    job: Job, epoch: Epoch, couple: tuple[ShardTraffic, ShardTraffic], excess: float, most_bytes: int
) -> _Pairs:
    """Of a busy and a quiet shard: those with the largest gains, which take no more than ``excess`` together
    from the busy one, and have no more than ``most_bytes``.
    """
    found = []
    for number, table in enumerate(job.tables):
        given, taken = (_owned_rates(epoch, table, shard) for shard in couple)
        found.append(_pair_blocks(number, table, given, taken, excess))
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    pairs = _Pairs(*columns)
    pairs = pairs.take(np.argsort(-pairs.gains, kind="stable"))
    return pairs.take((np.cumsum(pairs.gains) <= excess) & (np.cumsum(pairs.bytes) <= most_bytes))


def _pair_blocks(number: int, table: Table, given: BlockRates, taken: BlockRates, excess: float) -> _Pairs:
    """The hottest with the coldest, the second with the second, and so on."""
    coldest = np.argsort(taken.rates, kind="stable")
    hottest = np.argsort(-given.rates, kind="stable")
    hottest = hottest[given.rates[hottest] - taken.rates[coldest[:1]].sum() <= excess]
    count = min(len(hottest), len(coldest))
    ours = given.ids[hottest[:count]].astype(np.int64)
    theirs = taken.ids[coldest[:count]].astype(np.int64)
    gains = given.rates[hottest[:count]] - taken.rates[coldest[:count]]
    sizes = np.stack([table.block_bytes[ours], table.block_bytes[theirs]])
    pairs = _Pairs(np.full(count, number), ours, theirs, gains, sizes.sum(axis=0))
    return pairs.take((gains > 0) & (sizes.max(axis=0) <= ALIKE * sizes.min(axis=0)))


def _owned_rates(epoch: Epoch, table: Table, traffic: ShardTraffic) -> BlockRates:
    """Of blocks that the epoch gives to this shard."""
    found = traffic.blocks.get(table.name)
    if found is None:
        return BlockRates(np.empty(0, np.uint32), np.empty(0))
    known = found.ids < table.blocks
    known[known] = epoch.owners[table.name][found.ids[known]] == epoch.shard_index(traffic.shard)
    return BlockRates(found.ids[known], found.rates[known])


def _by_table(job: Job, tables: NDArray[np.int64], blocks: NDArray[np.int64]) -> dict[str, Ids]:
    """``tables``: index of the table of each block."""
    found = {table.name: blocks[tables == number] for number, table in enumerate(job.tables)}
    return {name: np.sort(ids).astype(np.uint32) for name, ids in found.items() if len(ids)}


def _without_blocks(traffic: ShardTraffic, gone: Mapping[str, Ids]) -> ShardTraffic:
    left = {name: np.isin(one.ids, gone.get(name, ()), invert=True) for name, one in traffic.blocks.items()}
    blocks = {
        name: BlockRates(one.ids[left[name]], one.rates[left[name]]) for name, one in traffic.blocks.items()
    }
    return replace(traffic, blocks=blocks)
