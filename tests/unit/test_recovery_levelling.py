"""Which blocks move when shards come, go and come back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scar.placement import Epoch, Member, Role, concatenated, owned_counts
from scar_recovery.levelling import transfers
from scar_recovery.plans import Intent, NothingSaved, draft, rank_order
from tests.framework.recovery import make_job

JOB = make_job(4)
PLENTY = 1 << 40  # bytes of one move


def shards(*lives: int) -> tuple[Member, ...]:
    """One of each life; 0: it is not there."""
    return tuple(Member(Role.SHARD, f"ps-{number}", f"{number}-{life}", "host:1") for number, life in enumerate(lives) if life)


def following(previous: Epoch | None, members: Sequence[Member]) -> Epoch:
    """Those of the former epoch who are not among ``members`` have died."""
    number = previous.number + 1 if previous else 1
    dead = tuple(member.key for member in previous.shards if member not in members) if previous else ()
    intent = Intent(number, "me", JOB, previous, rank_order(members), (), "test", dead)
    return draft(intent, NothingSaved())


def levelled(epoch: Epoch) -> Epoch:
    """All moves are done."""
    while plan := transfers(JOB, epoch, frozenset(), level=True, slice_bytes=PLENTY):
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
        assert (concatenated(JOB, epoch.owners) == concatenated(JOB, first.owners)).all()


def test_whoever_joins_takes_what_it_would_have_had_from_the_beginning() -> None:
    epoch = levelled(following(following(None, shards(1, 1, 1)), shards(1, 1, 1, 1)))
    ours = concatenated(JOB, epoch.owners) == 3
    home = concatenated(JOB, following(None, shards(1, 1, 1, 1)).owners) == 3
    assert np.count_nonzero(ours & home) >= 0.8 * np.count_nonzero(home)
    counts = owned_counts(epoch.owners, 4)
    assert int(counts.max() - counts.min()) <= 1


def test_each_survivor_takes_neighbours_of_what_was_lost() -> None:
    before = following(None, shards(1, 1, 1, 1))
    lost = concatenated(JOB, before.owners) == 3
    takers = concatenated(JOB, following(before, shards(1, 1, 1, 0)).owners)[lost]
    assert np.count_nonzero(np.diff(takers)) == 2
