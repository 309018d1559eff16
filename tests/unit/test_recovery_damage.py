"""Blocks that their owners cannot load, and manifests from which some still load. Time is made up."""

from dataclasses import replace

import numpy as np

from scar.placement import concatenate_owners, global_ids
from scar_recovery.core.actions import CommitEpoch
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.events import DamageFound, EpochCommitted, EpochLoaded, MemberArrived
from tests.framework.recovery import due
from tests.unit.planner_steps import commit, failed, shard, started, worker


def test_blocks_that_cannot_be_loaded_stay_and_come_from_elsewhere() -> None:
    planner = started()
    failed(planner, shard("ps-0"), 10.0)
    before = commit(planner, 10.1, "failure")
    blocks = np.flatnonzero(concatenate_owners(planner.job, before.owners) == 0)[:3]
    planner.handle(DamageFound(planner.epoch_number, blocks, "3 blocks at ps-1: objects/x is damaged"), 10.2)
    planner.handle(
        DamageFound(planner.epoch_number, blocks[:2], "2 blocks at ps-1: objects/y is gone"), 10.21
    )
    assert due(planner, 10.2) is None, "another shard may find damage, too"
    action = due(planner, 10.24)
    assert isinstance(action, CommitEpoch)
    assert action.intent.damage == (
        "3 blocks at ps-1: objects/x is damaged",
        "2 blocks at ps-1: objects/y is gone",
    )
    after = draft_epoch(action.intent, NothingSaved())
    planner.handle(EpochCommitted(after), 10.3)
    assert (after.cause, after.failure, after.shards) == ("failure", before.failure + 1, before.shards)
    assert (
        concatenate_owners(planner.job, after.owners).tolist()
        == concatenate_owners(planner.job, before.owners).tolist()
    )
    moved = np.concatenate([global_ids(planner.job, group.table, group.ids) for group in after.moved])
    assert sorted(moved.tolist()) == blocks.tolist()
    assert {group.former_owner for group in after.moved} == {""}
    assert due(planner, 10.4) is None


def test_damage_at_a_shard_that_died_is_its_successors() -> None:
    planner = started()
    owner = planner.epoch.shards[0]
    blocks = np.flatnonzero(concatenate_owners(planner.job, planner.epoch.owners) == 0)
    planner.handle(
        DamageFound(planner.epoch_number, blocks[:3], "3 blocks at ps-0: objects/x is damaged"), 10.0
    )
    failed(planner, owner, 10.0)
    action = due(planner, 10.1)
    assert isinstance(action, CommitEpoch)
    assert (dict(action.intent.damaged), action.intent.damage) == ({}, ())
    assert action.intent.lost_blocks()[owner.key].tolist() == blocks.tolist()


def test_a_manifest_is_named_until_everything_is_loaded_from_it() -> None:
    planner = started()
    failed(planner, shard("ps-0"), 10.0)
    action = due(planner, 10.1)
    assert isinstance(action, CommitEpoch)
    planner.handle(EpochCommitted(replace(draft_epoch(action.intent, NothingSaved()), manifest=16)), 10.1)
    planner.handle(MemberArrived(shard("ps-0", "2")), 11.0)
    assert commit(planner, 11.1, "join").restoring == (16,)
    planner.handle(MemberArrived(worker("worker-0")), 12.0)
    assert commit(planner, 12.1, "workers").restoring == (16,), "the load goes on"
    planner.handle(EpochLoaded(4), 0.0)
    planner.handle(MemberArrived(worker("worker-1")), 13.0)
    assert commit(planner, 13.1, "workers").restoring == ()


def test_shards_save_again_what_a_manifest_held_that_could_not_be_read() -> None:
    class PassedOver(NothingSaved):
        passed_over = True

    planner = started()
    failed(planner, shard("ps-0"), 10.0)
    action = due(planner, 10.1)
    assert isinstance(action, CommitEpoch)
    assert not draft_epoch(action.intent, NothingSaved()).resave
    assert draft_epoch(action.intent, PassedOver()).resave
    planner.handle(EpochCommitted(draft_epoch(action.intent, PassedOver())), 10.1)
    planner.handle(MemberArrived(worker("worker-0")), 12.0)
    action = due(planner, 12.1)
    assert isinstance(action, CommitEpoch)
    assert not draft_epoch(action.intent, PassedOver()).resave, "nothing came back from the store"
