"""Which blocks move when shards come, go and come back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scar.placement import Epoch, Member, Role, concatenate_owners, global_ids
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import EpochIntent, rank_order
from scar_recovery.core.rebalance import _surplus_counts, block_bytes, plan_transfers
from tests.framework.recovery import make_job, owned_counts

JOB = make_job(4)
PLENTY = 1 << 40  # bytes of one move


def shards(*lives: int) -> tuple[Member, ...]:
    """One of each life; 0: it is not there."""
    return tuple(
        Member(Role.SHARD, f"ps-{number}", f"{number}-{life}", "host:1")
        for number, life in enumerate(lives)
        if life
    )


def following(previous: Epoch | None, members: Sequence[Member]) -> Epoch:
    """Those of the former epoch who are not among ``members`` have died."""
    number = previous.number + 1 if previous else 1
    dead = tuple(member.key for member in previous.shards if member not in members) if previous else ()
    intent = EpochIntent(number, "me", JOB, previous, rank_order(members), (), "test", dead)
    return draft_epoch(intent, NothingSaved())


def levelled(epoch: Epoch) -> Epoch:
    """All moves are done."""
    while plan := plan_transfers(JOB, epoch, frozenset(), level=True, slice_bytes=PLENTY):
        owners = {table: ids.copy() for table, ids in epoch.owners.items()}
        for move in plan:
            for table, ids in move.blocks.items():
                assert (owners[table][ids] == epoch.shard_index(move.donor.key)).all()
                owners[table][ids] = epoch.shard_index(move.target.key)
        epoch = replace(epoch, number=epoch.number + 1, owners=owners)
    return epoch


def test_a_shard_that_comes_back_gets_its_old_blocks_again() -> None:
    first = epoch = following(None, shards(1, 1, 1, 1))
    for absent, present in (
        (shards(1, 0, 1, 1), shards(1, 2, 1, 1)),
        (shards(1, 2, 1, 0), shards(1, 2, 1, 2)),
        (shards(0, 2, 0, 2), shards(2, 2, 2, 2)),
    ):
        epoch = levelled(following(following(epoch, absent), present))
        assert (concatenate_owners(JOB, epoch.owners) == concatenate_owners(JOB, first.owners)).all()


def test_whoever_joins_takes_what_it_would_have_had_from_the_beginning() -> None:
    epoch = levelled(following(following(None, shards(1, 1, 1)), shards(1, 1, 1, 1)))
    ours = concatenate_owners(JOB, epoch.owners) == 3
    home = concatenate_owners(JOB, following(None, shards(1, 1, 1, 1)).owners) == 3
    assert np.count_nonzero(ours & home) >= 0.8 * np.count_nonzero(home)
    counts = owned_counts(epoch.owners, 4)
    assert int(counts.max() - counts.min()) <= 1


def test_a_slice_is_of_so_many_bytes_in_all_unless_somebody_leaves() -> None:
    epoch = following(following(None, shards(1, 1)), shards(1, 1, 1, 1))
    sizes = block_bytes(JOB)

    def moved(leaving: frozenset[str], slice_bytes: int) -> list[int]:
        """Bytes of each transfer."""
        plan = plan_transfers(JOB, epoch, leaving, level=True, slice_bytes=slice_bytes)
        blocks = [np.concatenate([global_ids(JOB, *part) for part in one.blocks.items()]) for one in plan]
        return [int(sizes[ids].sum()) for ids in blocks]

    together = moved(frozenset(), 300)
    assert len(together) == 2
    assert 200 < sum(together) <= 300
    assert sizes.sum() / 8 - 96 < sum(moved(frozenset(), 1)) <= sizes.sum() / 8
    hurried = moved(frozenset({epoch.shards[0].key}), 300)
    assert max(hurried) <= 300
    assert sum(hurried) > 300


def test_each_survivor_takes_neighbours_of_what_was_lost() -> None:
    before = following(None, shards(1, 1, 1, 1))
    lost = concatenate_owners(JOB, before.owners) == 3
    takers = concatenate_owners(JOB, following(before, shards(1, 1, 1, 0)).owners)[lost]
    assert np.count_nonzero(np.diff(takers)) == 2


def test_the_odd_blocks_stay_with_those_who_have_most() -> None:
    """Else more blocks move than have to; one that leaves keeps none."""
    everybody = np.array([True, True, True])
    assert _surplus_counts(np.array([1, 6, 4]), everybody, level=True).tolist() == [-2, 2, 0]
    assert _surplus_counts(np.array([9, 1, 1]), np.array([False, True, True]), level=True).tolist() == [
        9,
        -5,
        -4,
    ]
