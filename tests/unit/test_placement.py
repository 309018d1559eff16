"""Who owns what: splits and merges, spread, membership."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
from scar.placement import NOBODY, Epoch, Member, Role, by_table, concatenate_owners, spread_blocks
from tests.framework.recovery import owned_counts

SEEDED = settings(max_examples=60, derandomize=True)

SHARDS = tuple(Member(Role.SHARD, f"ps-{i}", f"{i:012x}", "h:1") for i in range(4))
WORKERS = tuple(Member(Role.WORKER, f"worker-{i}", f"{i:012x}") for i in (2, 0, 1))
OWNERS = st.lists(st.sampled_from([0, 1, 2, 3, NOBODY]), min_size=1, max_size=30).map(
    lambda owners: np.array(owners, np.uint16)
)


def epoch(owners: np.ndarray) -> Epoch:
    return Epoch(3, "a", "j", SHARDS, WORKERS, {"w": owners})


@SEEDED
@given(OWNERS, st.data())
def test_split_deals_every_id_to_its_owner_once(owners: np.ndarray, data: st.DataObject) -> None:
    ids = np.array(sorted(data.draw(st.sets(st.integers(0, len(owners) - 1)))), dtype=np.uint32)
    shares = epoch(owners).split("w", ids)
    assert [owner for owner, _ in shares] == sorted({int(owner) for owner in owners[ids]})
    merged = np.concatenate([positions for _, positions in shares] or [np.empty(0, np.int64)])
    assert sorted(merged.tolist()) == list(range(len(ids)))
    for owner, positions in shares:
        assert (np.diff(positions) > 0).all()
        assert (owners[ids[positions]] == owner).all()


@SEEDED
@given(OWNERS)
def test_split_of_everything_is_what_each_shard_owns(owners: np.ndarray) -> None:
    found = epoch(owners)
    shares = dict(found.split("w", np.arange(len(owners), dtype=np.uint32)))
    for index, shard in enumerate(SHARDS):
        owned = found.owned_by(shard.key)["w"]
        np.testing.assert_array_equal(owned, shares.get(index, np.empty(0)))
    assert owned_counts(found.owners, 4).tolist() == [len(found.owned("w", index)) for index in range(4)]


def test_members_of_an_epoch() -> None:
    found = epoch(np.zeros(3, np.uint16))
    assert (found.shard_index(SHARDS[2].key), found.shard_index("ps-2@other")) == (2, -1)
    assert found.owned_by("ps-9@0")["w"].tolist() == []
    assert [found.rank(name) for name in ("worker-2", "worker-0", "worker-1", "worker-9")] == [0, 1, 2, -1]


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_spread_is_even_seeded_and_random(shards: int) -> None:
    job = scar.Job("j", [scar.Table("a", 100), scar.Table("b", 61)], seed=5)
    owners = spread_blocks(job, shards)
    counts = owned_counts(owners, shards)
    assert counts.sum() == 161
    assert counts.max() - counts.min() <= 1
    np.testing.assert_array_equal(
        concatenate_owners(job, owners), concatenate_owners(job, spread_blocks(job, shards))
    )
    if shards > 1:
        other = spread_blocks(scar.Job("j", job.tables, seed=6), shards)
        assert not np.array_equal(concatenate_owners(job, owners), concatenate_owners(job, other))
        assert len(np.unique(owners["a"][:10])) > 1  # no runs


@SEEDED
@given(st.sets(st.integers(0, 8)))
def test_global_ids_split_by_table(ids: set[int]) -> None:
    job = scar.Job("j", [scar.Table("a", 3), scar.Table("b", 1), scar.Table("c", 5)])
    found = by_table(job, sorted(ids))
    assert sorted(
        job.bases[table] + int(block) for table, blocks in found.items() for block in blocks
    ) == sorted(ids)
    assert all(len(blocks) for blocks in found.values())
