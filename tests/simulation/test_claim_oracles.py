"""Oracles of what members claim to have, and of how long a repair takes: right worlds and wrong ones."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scar.blocks import BlockState
from scar_ps.core.block_store import BlockStore
from scar_ps.core.core_state import CoreState
from scar_ps.core.pull_marks import PullMarks
from scar_ps.core.replica_store import OwnerReplica
from tests.simulation.oracles import repair_time
from tests.simulation.oracles.owed_pushes import OwedPush, check_saved, check_settled
from tests.simulation.oracles.repair_time import DETECTED, REPAIRED, STALLED, RepairWatch
from tests.simulation.oracles.replica_copies import check_replicas
from tests.simulation.test_oracles import IDS, JOB, SHARDS, epoch
from tests.simulation.world import CALL_FAILED, TraceHandler

OWNER, COPY = (shard.key for shard in SHARDS)
WORKER = "worker-0@aaaaaaaaaaaa"
OWED = OwedPush(WORKER, 5, OWNER, "w", IDS[:1])


def shard(number: int) -> CoreState:
    """In epoch 1, with all blocks."""
    state = CoreState(SHARDS[number])
    state.epoch = epoch(1)
    state.ownership.tables = {"w": BlockStore(JOB.table("w"), IDS)}
    return state


def test_a_settled_block_counts_no_push_that_is_still_owed() -> None:
    state = shard(0)
    state.sequences.watermark = {WORKER: 4}
    assert check_settled([OWED], {OWNER: state}) == []
    state.sequences.watermark = {WORKER: 5}
    assert "without push 5" in check_settled([OWED], {OWNER: state})[0]
    state.ownership.tables["w"].unsettled[0] = True
    assert check_settled([OWED], {OWNER: state}) == []


@pytest.mark.parametrize(("watermark", "ids", "wrong"), [(4, IDS, 0), (5, IDS[1:], 0), (5, IDS, 1)])
def test_a_checkpoint_counts_no_push_that_is_still_owed(watermark: int, ids: np.ndarray, wrong: int) -> None:
    saved = BlockState("w", ids, watermark={WORKER: watermark})
    assert len(check_saved([OWED], [saved], "manifest 1")) == wrong


def test_a_replica_has_what_its_owner_believes() -> None:
    owner = shard(0)
    copy = shard(1)
    owner.chain._members = SHARDS[1:]
    owner.chain.updates = owner.chain.replicated = 1
    replica = BlockStore(JOB.table("w"), IDS)
    copy.replicas.by_owner[OWNER] = OwnerReplica(OWNER, stores={"w": replica})
    assert check_replicas({OWNER: owner, COPY: copy}) == []
    owner.ownership.tables["w"].values[0] = 1.0
    assert "has not all of table w" in check_replicas({OWNER: owner, COPY: copy})[0]
    owner.chain.updates = 2
    assert check_replicas({OWNER: owner, COPY: copy}) == []  # it knows, and sends it


def test_a_replica_of_what_workers_lack_has_what_its_owner_has_copied() -> None:
    owner = shard(0)
    copy = shard(1)
    owner.chain._members = SHARDS[1:]
    owner.chain.updates = owner.chain.replicated = 1
    store = owner.ownership.tables["w"]
    store.marks = PullMarks(len(store), holdable=True)
    store.values[0] = 1.0
    assert check_replicas({OWNER: owner, COPY: copy}) == []  # workers have it
    store.marks.copied[0] = True
    store.changed[0] = False
    assert check_replicas({OWNER: owner, COPY: copy}) == []  # of a former neighbour: this one has nothing
    owner.chain._acked[OWNER] = 1
    assert "has not all of table w" in check_replicas({OWNER: owner, COPY: copy})[0]
    replica = BlockStore(JOB.table("w"), IDS)
    copy.replicas.by_owner[OWNER] = OwnerReplica(OWNER, stores={"w": replica})
    assert "has not all of table w" in check_replicas({OWNER: owner, COPY: copy})[0]
    replica.values[:] = store.values
    assert check_replicas({OWNER: owner, COPY: copy}) == []
    store.values[0] = 2.0
    store.changed[0] = True
    assert check_replicas({OWNER: owner, COPY: copy}) == []  # the copy is out of date, and it knows


def test_a_repair_takes_no_longer_than_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = SimpleNamespace(now=0.0)
    cluster: Any = SimpleNamespace(world=SimpleNamespace(scheduler=scheduler), hosts={}, _held=set())
    monkeypatch.setattr(repair_time, "living", lambda _cluster: [])
    monkeypatch.setattr(repair_time, "living_shards", lambda _cluster: [])
    monkeypatch.setattr(RepairWatch, "_is_led", lambda _watch: True)
    hindered = [True]
    monkeypatch.setattr(repair_time, "is_hindered", lambda _cluster: hindered[0])
    watch = RepairWatch(cluster)

    def look(at: float) -> list[str]:
        scheduler.now = at
        return watch.look(epoch(1), {OWNER: 0.0})

    assert look(1000.0) == []
    hindered[0] = False
    assert look(999.0 + DETECTED) == []
    assert look(1001.0 + DETECTED) == [f"{OWNER} is dead, and in the newest epoch"]
    assert "not well again" in look(1001.0 + REPAIRED)[1]
    assert "stands still" in look(1001.0 + REPAIRED + STALLED)[2]


def test_a_call_that_ends_by_an_unforeseen_error_is_wrong() -> None:
    told: list[str] = []
    scheduler = SimpleNamespace(current=None, record=lambda what: None)
    world: Any = SimpleNamespace(scheduler=scheduler, tell=told.extend)
    error = (KeyError, KeyError("w"), None)
    for name, found in ((CALL_FAILED, error), ("worker.left", error), (CALL_FAILED, None)):
        TraceHandler(world).emit(logging.LogRecord("scar", logging.ERROR, "", 0, name, None, found))
    assert told == ["a call met an error that nobody foresaw: KeyError: 'w'"]
