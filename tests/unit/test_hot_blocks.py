"""Blocks that change places because one shard has more traffic than the others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scar
from scar.placement import Epoch, concatenate_owners, global_ids
from scar.tables import Job, Table
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import EpochIntent, Transfer
from scar_recovery.core.hot_blocks import (
    ALIKE,
    GAIN,
    UNEVEN,
    BlockRates,
    ShardTraffic,
    is_uneven,
    plan_exchanges,
)
from scar_recovery.core.settings import PlannerSettings
from tests.framework.recovery import make_job, owned_counts
from tests.unit.planner_steps import shard

JOB = make_job(4)
PLENTY = 1 << 40  # bytes
QUIET = PlannerSettings().traffic_bytes
BUSY = 100.0 * QUIET


def first_epoch(job: Job = JOB, shards: int = 4) -> Epoch:
    members = tuple(shard(f"ps-{number}") for number in range(shards))
    return draft_epoch(EpochIntent(1, "me", job, None, members, (), "start"), NothingSaved())


def traffic_of(epoch: Epoch, rates: np.ndarray, job: Job = JOB) -> list[ShardTraffic]:
    """``rates``: of every block, by global id."""
    found = []
    for member in epoch.shards:
        blocks = {
            table: BlockRates(ids, rates[global_ids(job, table, ids)])
            for table, ids in epoch.owned_by(member.key).items()
        }
        found.append(ShardTraffic(member.key, sum(float(one.rates.sum()) for one in blocks.values()), blocks))
    return found


def applied(epoch: Epoch, moves: tuple[Transfer, ...]) -> Epoch:
    owners = {table: one.copy() for table, one in epoch.owners.items()}
    for move in moves:
        for table, ids in move.blocks.items():
            assert (epoch.owners[table][ids] == epoch.shard_index(move.donor.key)).all()
            owners[table][ids] = epoch.shard_index(move.target.key)
    return replace(epoch, number=epoch.number + 1, owners=owners)


def shard_rates(epoch: Epoch, rates: np.ndarray, job: Job = JOB) -> np.ndarray:
    return np.bincount(concatenate_owners(job, epoch.owners), rates, len(epoch.shards))


def skewed(epoch: Epoch, seat: int, blocks: int, job: Job = JOB) -> np.ndarray:
    """All have some traffic; so many of one shard's have ten times as much."""
    rates = np.full(job.blocks, BUSY)
    rates[np.flatnonzero(concatenate_owners(job, epoch.owners) == seat)[:blocks]] *= 10
    return rates


def test_hot_blocks_of_a_busy_shard_change_places_with_cold_ones() -> None:
    epoch = first_epoch()
    rates = skewed(epoch, 2, 8)
    moves = plan_exchanges(JOB, epoch, traffic_of(epoch, rates), QUIET, PLENTY)
    after = applied(epoch, moves)
    before = shard_rates(epoch, rates).max()
    assert shard_rates(after, rates).max() < 0.7 * before
    assert {move.donor.name for move in moves} > {"ps-2"}
    assert (owned_counts(after.owners, 4) == owned_counts(epoch.owners, 4)).all()
    sizes = {table.name: table.block_bytes for table in JOB.tables}
    there, back = (
        [sizes[table][ids].sum() for table, ids in sorted(move.blocks.items())] for move in moves[:2]
    )
    assert sum(there) <= ALIKE * sum(back)


@given(seed=st.integers(0, 10_000), shards=st.integers(2, 6), skew=st.floats(0.0, 3.0))
def test_traffic_becomes_level_or_stays_as_it_is_and_nothing_goes_there_and_back(
    seed: int, shards: int, skew: float
) -> None:
    draw = np.random.default_rng(seed)
    epoch = first_epoch(JOB, shards)
    rates = BUSY * np.exp(skew * draw.standard_normal(JOB.blocks))
    counts = owned_counts(epoch.owners, shards)
    highest = [shard_rates(epoch, rates).max()]
    while moves := plan_exchanges(JOB, epoch, traffic_of(epoch, rates), QUIET, PLENTY):
        epoch = applied(epoch, moves)
        highest.append(shard_rates(epoch, rates).max())
        assert highest[-1] <= (1 - GAIN) * highest[-2] * (1 + 1e-9)
    assert (owned_counts(epoch.owners, shards) == counts).all()


def test_level_or_little_traffic_moves_nothing() -> None:
    epoch = first_epoch()
    level = np.full(JOB.blocks, BUSY)
    assert plan_exchanges(JOB, epoch, traffic_of(epoch, level), QUIET, PLENTY) == ()
    idle = skewed(epoch, 0, 8) * (QUIET / BUSY / JOB.blocks / 10)
    assert plan_exchanges(JOB, epoch, traffic_of(epoch, idle), QUIET, PLENTY) == ()
    assert not is_uneven([BUSY], QUIET)
    assert not is_uneven([UNEVEN * BUSY, BUSY, BUSY, (2 - UNEVEN) * BUSY], QUIET)
    assert is_uneven([1.1 * UNEVEN * BUSY, BUSY, BUSY, (2 - 1.1 * UNEVEN) * BUSY], QUIET)


def test_one_block_that_has_all_the_traffic_stays_where_it_is() -> None:
    epoch = first_epoch()
    rates = np.zeros(JOB.blocks)
    rates[5] = BUSY
    assert plan_exchanges(JOB, epoch, traffic_of(epoch, rates), QUIET, PLENTY) == ()


def test_a_block_that_is_too_hot_stays_and_others_go() -> None:
    """The quiet shard would be the busy one."""
    epoch = first_epoch()
    rates = skewed(epoch, 2, 8)
    [giant, *_] = epoch.owned("b", 2)
    rates[global_ids(JOB, "b", np.array([giant]))] = 500 * BUSY
    moves = plan_exchanges(JOB, epoch, traffic_of(epoch, rates), QUIET, PLENTY)
    assert giant not in moves[0].blocks.get("b", [])
    after = shard_rates(applied(epoch, moves), rates)
    assert after.max() < shard_rates(epoch, rates).max()


def test_blocks_of_other_sizes_do_not_change_places() -> None:
    job = Job("layers", [Table("w", (20, 10)), Table("b", 20)], seed=1, shards=2)
    epoch = first_epoch(job, 2)
    rates = np.full(job.blocks, BUSY)
    rates[:20] *= np.where(epoch.owners["w"] == 0, 10.0, 0.1)
    moves = plan_exchanges(job, epoch, traffic_of(epoch, rates, job), QUIET, PLENTY)
    assert [set(move.blocks) for move in moves] == [{"w"}, {"w"}]


def test_ragged_blocks_change_places_with_some_of_their_size() -> None:
    ends = np.cumsum(np.tile([1, 10], 20))
    ragged = Table("layers", (int(ends[-1]), 2), blocks=scar.ragged([0, *ends]))
    job = Job("ragged", [ragged], seed=2, shards=2)
    epoch = first_epoch(job, 2)
    sizes = ragged.block_bytes
    rates = BUSY * np.where((epoch.owners["layers"] == 0) & (sizes > sizes.min()), 10.0, 1.0)
    rates[np.flatnonzero(epoch.owners["layers"] == 0)[:2]] *= 2
    moves = plan_exchanges(job, epoch, traffic_of(epoch, rates, job), QUIET, PLENTY)
    there, back = (move.blocks["layers"] for move in moves)
    assert sizes[there].sum() <= ALIKE * sizes[back].sum()
    assert sizes[back].sum() <= ALIKE * sizes[there].sum()


def test_an_exchange_carries_no_more_than_it_may() -> None:
    epoch = first_epoch()
    rates = skewed(epoch, 1, 12)
    sizes = np.concatenate([table.block_bytes for table in JOB.tables])

    def moved_bytes(most: int) -> int:
        moves = plan_exchanges(JOB, epoch, traffic_of(epoch, rates), QUIET, most)
        ids = [global_ids(JOB, *part) for move in moves for part in move.blocks.items()]
        return int(sizes[np.concatenate(ids)].sum()) if ids else 0

    everything = moved_bytes(PLENTY)
    assert 0 < moved_bytes(everything) <= everything
    assert moved_bytes(0) == 0


def test_what_a_shard_says_of_blocks_that_it_does_not_own_is_not_believed() -> None:
    epoch = first_epoch()
    told = traffic_of(epoch, skewed(epoch, 2, 8))
    foreign = epoch.owned("a", 1)
    lie = {"a": BlockRates(np.append(foreign, np.uint32(999)), np.full(len(foreign) + 1, 10 * BUSY))}
    told[2] = replace(told[2], blocks=lie)
    assert plan_exchanges(JOB, epoch, told, QUIET, PLENTY) == ()


def test_traffic_of_all_shards_is_needed() -> None:
    epoch = first_epoch()
    told = traffic_of(epoch, skewed(epoch, 2, 8))
    assert plan_exchanges(JOB, epoch, told[1:], QUIET, PLENTY) == ()
    assert plan_exchanges(JOB, epoch, told[::-1], QUIET, PLENTY)


@pytest.mark.parametrize("tables", [1, 3])
def test_a_large_job_is_planned_in_one_go(tables: int) -> None:
    """Ten thousand hot and cold blocks of each shard."""
    job = Job("big", [Table(f"w{number}", (60_000, 2)) for number in range(tables)], seed=3, shards=3)
    epoch = first_epoch(job, 3)
    rates = skewed(epoch, 0, 2_000 * tables, job)
    after = applied(epoch, plan_exchanges(job, epoch, traffic_of(epoch, rates, job), QUIET, PLENTY))
    assert shard_rates(after, rates, job).max() < 0.9 * shard_rates(epoch, rates, job).max()
