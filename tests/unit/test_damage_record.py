"""A worker that did not send what an epoch had it send: the next one that holds the blocks is asked."""

from __future__ import annotations

import pytest

from scar.blocks import BlockState
from scar.placement import BlockSource, Epoch, global_ids
from scar.tables import Job, Table
from scar_recovery.core.actions import CollectOffers, CommitEpoch
from scar_recovery.core.block_sources import NothingSaved, WorkerOffer
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.events import DamageFound, EpochCommitted, EpochLoaded, MemberArrived, OffersCollected
from scar_recovery.core.planner import Planner
from tests.framework.recovery import due
from tests.unit.planner_steps import commit, failed, shard, started, worker

JOB = Job("test", [Table("w", 12)], shards=3, workers=3, sources="workers")
WORKERS = tuple(worker(f"worker-{number}") for number in range(3))
SILENT = "worker has not sent them for 5 s"


@pytest.fixture
def planner() -> Planner:
    """In an epoch with three workers, everything loaded."""
    planner = started(JOB)
    for one in WORKERS:
        planner.handle(MemberArrived(one), 1.0)
    planner.handle(EpochLoaded(commit(planner, 2.0, "workers").number), 2.0)
    return planner


def heal(planner: Planner, now: float) -> tuple[list[str], Epoch]:
    """Names of the workers that were asked, all of which offer all, and the epoch that follows."""
    action = due(planner, now)
    asked = []
    if isinstance(action, CollectOffers):
        asked = [one.name for one in action.workers]
        offers = tuple(
            WorkerOffer(one, BlockState("w", action.blocks["w"], 7, {}, one.key)) for one in action.workers
        )
        (action,) = planner.handle(OffersCollected(action.number, offers, ()), now)
    assert isinstance(action, CommitEpoch), action
    epoch = draft_epoch(action.intent, NothingSaved(), offers=action.offers)
    planner.handle(EpochCommitted(epoch), now)
    return asked, epoch


def report_silent(planner: Planner, epoch: Epoch, sender: str, now: float) -> None:
    """What this worker had to send is not there; another shard says it of its part, too."""
    for group in epoch.moved:
        if group.sender == sender:
            planner.handle(DamageFound(epoch.number, global_ids(JOB, "w", group.ids), SILENT), now)


def blocks_from(epoch: Epoch) -> dict[str, int]:
    """Sender, or kind of source -> how many blocks come from there."""
    found: dict[str, int] = {}
    for group in epoch.moved:
        kind = group.sender or group.source.name
        found[kind] = found.get(kind, 0) + len(group.ids)
    return found


def test_the_next_worker_is_asked_until_none_is_left(planner: Planner) -> None:
    failed(planner, shard("ps-0"), 10.0)
    asked, epoch = heal(planner, 11.0)
    assert asked == ["worker-0", "worker-1", "worker-2"]
    owners = epoch.owners["w"].tolist()
    missing = blocks_from(epoch)[WORKERS[0].key]
    report_silent(planner, epoch, WORKERS[0].key, 16.0)
    asked, epoch = heal(planner, 17.0)
    assert asked == ["worker-1", "worker-2"]
    assert sum(blocks_from(epoch).values()) == missing
    assert {group.source for group in epoch.moved} == {BlockSource.WORKER}
    assert epoch.owners["w"].tolist() == owners, "they stay where they are"
    for silent, left in ((WORKERS[1], ["worker-2"]), (WORKERS[2], [])):
        for sender in blocks_from(epoch).keys() & {silent.key}:
            report_silent(planner, epoch, sender, 20.0)
            asked, epoch = heal(planner, 21.0)
            assert asked == left
    assert {group.source for group in epoch.moved} == {BlockSource.INITIAL}, "then what is saved"
    assert due(planner, 30.0) is None


def test_a_worker_is_a_source_again_when_all_is_loaded(planner: Planner) -> None:
    failed(planner, shard("ps-0"), 10.0)
    _, epoch = heal(planner, 11.0)
    report_silent(planner, epoch, WORKERS[0].key, 16.0)
    _, epoch = heal(planner, 17.0)
    planner.handle(EpochLoaded(epoch.number - 1), 18.0)
    failed(planner, shard("ps-1"), 20.0)
    asked, epoch = heal(planner, 21.0)
    assert asked == ["worker-1", "worker-2"], "only an older epoch is loaded"
    planner.handle(EpochLoaded(epoch.number), 22.0)
    planner.handle(MemberArrived(shard("ps-0", "2")), 22.0)
    planner.handle(EpochLoaded(commit(planner, 23.0, "join").number), 24.0)
    failed(planner, shard("ps-2"), 30.0)
    assert heal(planner, 31.0)[0] == ["worker-0", "worker-1", "worker-2"]
