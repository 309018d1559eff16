"""Which blocks change places because one shard has much more traffic than the others. Pure.

Placement is random, and blocks are about as many at each shard: it levels what they hold, and traffic only
where no blocks have much more of it than others. Where some do, hot blocks of a busy shard change places with
cold ones of a quiet shard, in pairs of one table and of about the same size, so what shards hold stays level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import NamedTuple

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


def is_uneven(rates: Sequence[float], least: float) -> bool:
    """Whether these shards' traffic is worth a look at their blocks: the busiest has more than ``least``, and
    much more than the others.
    """
    return len(rates) > 1 and max(rates) > max(least, UNEVEN * sum(rates) / len(rates))


def plan_exchanges(
    job: Job, epoch: Epoch, traffic: Sequence[ShardTraffic], least: float, most_bytes: int
) -> tuple[Transfer, ...]:
    """Blocks that change places between busy shards and quiet ones; (): nothing is worth it.

    ``traffic``: of each shard of the epoch; ``least``: as :func:`is_uneven` has it. All blocks together have
    at most ``most_bytes`` of values and slots.
    """
    seats = sorted(traffic, key=lambda one: epoch.shard_index(one.shard))
    rates = np.array([one.rate for one in seats])
    if [one.shard for one in seats] != [one.key for one in epoch.shards] or not is_uneven(
        rates.tolist(), least
    ):
        return ()
    mean = float(rates.mean())
    busy = [seat for seat in np.argsort(-rates).tolist() if rates[seat] > UNEVEN * mean]
    quiet = [seat for seat in np.argsort(rates).tolist() if rates[seat] < mean]
    after = rates.copy()
    transfers: list[Transfer] = []
    for hot, cool in _couples(busy, quiet):
        excess = min(after[hot] - mean, mean - after[cool])
        pairs = _find_pairs(job, epoch, seats[hot], seats[cool], excess)
        fit = (np.cumsum(pairs.gains) <= excess) & (np.cumsum(pairs.bytes) <= most_bytes)
        chosen = _Pairs(*(column[fit] for column in pairs))
        if not len(chosen.gains):
            continue
        most_bytes -= int(chosen.bytes.sum())
        after[hot] -= chosen.gains.sum()
        after[cool] += chosen.gains.sum()
        there, back = _by_table(job, chosen.table, chosen.hot), _by_table(job, chosen.table, chosen.cold)
        seats[hot] = _without_blocks(seats[hot], there)
        transfers += [
            Transfer(epoch.shards[hot], epoch.shards[cool], there),
            Transfer(epoch.shards[cool], epoch.shards[hot], back),
        ]
    return tuple(transfers) if after.max() <= (1 - GAIN) * rates.max() else ()


def _couples(busy: Sequence[int], quiet: Sequence[int]) -> list[tuple[int, int]]:
    """Which shards exchange blocks: each quiet one with one busy one, in turns."""
    return list(zip(cycle(busy), quiet[:MOST_COUPLES], strict=False))


def _find_pairs(job: Job, epoch: Epoch, hot: ShardTraffic, cool: ShardTraffic, excess: float) -> _Pairs:
    """Those with the largest gains first; none takes more than ``excess`` from the hot shard."""
    found = []
    for number, table in enumerate(job.tables):
        given = _owned_rates(epoch, table, hot)
        taken = _owned_rates(epoch, table, cool)
        found.append(_pair_blocks(number, table, given, taken, excess))
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    order = np.argsort(-columns[3], kind="stable")
    return _Pairs(*(column[order] for column in columns))


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
    fit = (gains > 0) & (sizes.max(axis=0) <= ALIKE * sizes.min(axis=0))
    together = sizes.sum(axis=0)[fit]
    return _Pairs(np.full(len(together), number), ours[fit], theirs[fit], gains[fit], together)


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
