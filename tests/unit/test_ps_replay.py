"""Blocks that were put back stand at their clock until all have settled; then their clocks are done again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import scar.tables as tables
from scar.placement import BlockGroup, BlockSource, Epoch
from scar.tables import Job, Table
from scar_ps.core.block_data import BlockContents, BlockLoad, IncomingBlocks
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.bsp_buffer import sum_parts
from scar_ps.core.events import CopyReceived, PullRequested, ShardTick
from scar_ps.core.loads import SENDER_SECONDS
from scar_ps.core.requests import MustWait
from tests.unit.ps_support import (
    OTHER,
    DrivenShard,
    group,
    ids,
    job,
    next_epoch,
    push,
    sender,
    started,
    worker,
)

RULES = {"sgd": tables.sgd(0.1, 0.01), "add": tables.add(), "assign": tables.assign()}
MINE, LOST = ids(0, 2, 4), ids(1, 3, 5)
WORKERS = 3


def table(rule: str) -> Table:
    return Table("w", (6, 2), rule=RULES[rule], init=tables.uniform(-1, 1))


def amounts(rank: int, clock: int, blocks: np.ndarray) -> np.ndarray:
    """What a worker pushes to these blocks in a clock."""
    whole = np.random.default_rng([rank, clock]).normal(size=(6, 2)).astype(np.float32)
    return whole[blocks]


class PushingWorker:
    """One worker's side: numbers its pushes."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.seq = 0

    def push(self, shard: DrivenShard, clock: int, blocks: np.ndarray) -> None:
        self.seq += 1
        push(
            shard,
            self.rank,
            self.seq,
            blocks,
            amounts(self.rank, clock, blocks),
            clock=clock,
            push_id=clock + 1,
        )


def close(shard: DrivenShard, members: list[PushingWorker], clock: int, blocks: np.ndarray) -> None:
    for member in members:
        member.push(shard, clock, blocks)
    for member in members:
        shard.mark(sender(member.rank), shard.number, clock + 1)


def undisturbed(rule: str, clocks: int) -> list[np.ndarray]:
    """Values of all blocks when each of the first clocks was open."""
    shard, _ = started(job(table(rule), workers=WORKERS), workers=WORKERS)
    members = [PushingWorker(rank) for rank in range(WORKERS)]
    seen = [shard.ownership.tables["w"].values.copy()]
    for clock in range(clocks):
        close(shard, members, clock, np.arange(6, dtype=np.uint32))
        seen.append(shard.ownership.tables["w"].values.copy())
    return seen


def survivor(
    rule: str, open_clock: int, **options: Any
) -> tuple[DrivenShard, Epoch, Job, list[PushingWorker]]:
    """A shard with half of the blocks that has closed the clocks below this one."""
    spec = job(table(rule), workers=WORKERS, **(options or {"sources": "workers"}))
    shard, epoch = started(spec, {"w": MINE}, workers=WORKERS)
    members = [PushingWorker(rank) for rank in range(WORKERS)]
    for clock in range(open_clock):
        close(shard, members, clock, MINE)
    return shard, epoch, spec, members


def put_back(source: BlockSource, clock: int, number: int = 0) -> BlockGroup:
    """The other shard's blocks, as they were when this clock was open."""
    watermark = {f"w{rank}": clock for rank in range(WORKERS)}
    lost = group("w", LOST, OTHER, source, **watermark)
    return replace(lost, clock=clock, sender=worker(number).key if source is BlockSource.WORKER else "")


def gain(shard: DrivenShard, epoch: Epoch, spec: Job, restored: BlockGroup, **changes: Any) -> Epoch:
    after = next_epoch(epoch, gained={"w": LOST}, moved=[restored], failure=1, **changes)
    shard.adopt(after, spec)
    return after


def come_back(shard: DrivenShard, epoch: Epoch, spec: Job, restored: BlockGroup, values: np.ndarray) -> Epoch:
    """From wherever ``restored`` says."""
    copy = BlockContents(values)
    if restored.source is BlockSource.REPLICA:
        shard.ownership.keep_incoming([IncomingBlocks(epoch.number, OTHER.key, "w", LOST, copy)])
    after = gain(shard, epoch, spec, restored)
    for load in shard.ownership.loads:
        if restored.source is BlockSource.WORKER:
            assert bring(shard, load, values) == ""
        else:
            shard.install(load, copy)
    return after


def blocks_of(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    return values.reshape(6, 2)[blocks].reshape(-1)


def bring(shard: DrivenShard, load: BlockLoad, values: np.ndarray, **changes: Any) -> str:
    sent = CopyReceived(
        sender(0), load.epoch, "w", load.ids, load.clock, BlockContents(values.astype(np.float32))
    )
    return str(shard.handle(replace(sent, **changes)))


def pulled(shard: DrivenShard, blocks: np.ndarray | None, **options: Any) -> Any:
    return shard.handle(PullRequested(sender(0), shard.number, 0, [("w", blocks)], **options))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("stood", "open_clock"), [(3, 3), (3, 4), (2, 4), (4, 3), (2, 5)])
@pytest.mark.parametrize("source", [BlockSource.WORKER, BlockSource.OBJECT, BlockSource.REPLICA])
def test_a_block_that_comes_back_is_what_it_would_have_been(
    rule: str, stood: int, open_clock: int, source: BlockSource
) -> None:
    """``stood``: clock of the copy; ``open_clock``: of its new owner, which may be ahead or behind."""
    twin = undisturbed(rule, 7)
    chain = {"recovery": "sync-chain", "shards": 2} if source is BlockSource.REPLICA else {}
    shard, epoch, spec, members = survivor(rule, open_clock, **chain)
    after = come_back(shard, epoch, spec, put_back(source, stood), blocks_of(twin[stood], LOST))
    reached = max(open_clock, stood)
    for member in reversed(members):  # what is owed, in any order
        for clock in range(stood, reached + 1):
            member.push(shard, clock, LOST if clock < open_clock else np.arange(6, dtype=np.uint32))
    for clock in range(open_clock, stood):  # contained in the copy, but not in what the owner had
        for member in members:
            member.push(shard, clock, MINE)
    for member in members:
        with pytest.raises(MustWait, match="what workers owe"):
            pulled(shard, LOST)
        shard.settle(sender(member.rank), after.number)
    kept = shard.ownership.tables["w"]
    assert kept.values.reshape(6, 2)[LOST].tobytes() == blocks_of(twin[reached], LOST).tobytes()
    for clock in range(open_clock, reached + 1):
        for member in members:
            shard.mark(sender(member.rank), after.number, clock + 1)
    assert shard.ownership.tables["w"].values.tobytes() == twin[reached + 1].tobytes()
    assert not kept.unsettled.any()


def test_what_was_put_back_is_compared_before_it_is_settled() -> None:
    """Else the worker that compares waits for itself: it settles only after that."""
    twin = undisturbed("sgd", 4)
    shard, epoch, spec, _ = survivor("sgd", 4)
    gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    (load,) = shard.ownership.loads
    with pytest.raises(MustWait, match="loading"):
        pulled(shard, LOST, unsettled=True)
    bring(shard, load, blocks_of(twin[3], LOST))
    (seen,) = pulled(shard, LOST, unsettled=True).parts
    assert (
        seen.store.layout.gather(seen.store.values, seen.positions).tobytes()
        == blocks_of(twin[3], LOST).tobytes()
    )


def test_a_pull_says_what_it_contains_only_when_all_is_settled() -> None:
    twin = undisturbed("sgd", 3)
    shard, epoch, spec, members = survivor("sgd", 3)
    assert pulled(shard, None).contents == [None], "nobody asked"
    watermark = {worker(rank).key: 3 for rank in range(WORKERS)}
    assert pulled(shard, None, contents=True).contents == [watermark]
    members[0].push(shard, 3, MINE)
    assert pulled(shard, None, contents=True).contents == [watermark], "it waits for its clock"
    after = gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    (load,) = shard.ownership.loads
    bring(shard, load, blocks_of(twin[3], LOST))
    for member in members:
        assert pulled(shard, MINE, contents=True).contents == [None]
        shard.settle(sender(member.rank), after.number)
    assert pulled(shard, None, contents=True).contents == [watermark]


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        ({"clock": 2}, "they are of clock 2, not 3"),
        ({"flaw": "their checksum is wrong"}, "their checksum is wrong"),
        ({"ids": ids(1, 3), "contents": BlockContents(np.zeros(4, np.float32))}, "some of them are missing"),
    ],
)
def test_what_is_not_what_the_epoch_said_counts_as_damaged(changes: dict[str, Any], flaw: str) -> None:
    shard, epoch, spec, _ = survivor("sgd", 3)
    gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    (load,) = shard.ownership.loads
    assert bring(shard, load, np.zeros(6), **changes) == flaw
    assert shard.ownership.loading_blocks == 3
    (unreadable,) = shard.core._loads.unreadable
    assert unreadable.ids.tolist() == LOST.tolist()
    assert flaw in unreadable.reason


@pytest.mark.parametrize("changes", [{"sender": sender(1)}, {"epoch": 1}, {"ids": ids(0), "table": "w"}])
def test_what_nobody_waits_for_changes_nothing(changes: dict[str, Any]) -> None:
    shard, epoch, spec, _ = survivor("sgd", 3)
    gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    (load,) = shard.ownership.loads
    assert bring(shard, load, np.zeros(6), **changes) == ""
    assert shard.ownership.loading_blocks == 3
    assert not shard.core._loads.unreadable


def test_a_source_that_stays_silent_or_leaves_counts_as_damaged() -> None:
    for leaves in (False, True):
        shard, epoch, spec, _ = survivor("sgd", 3)
        staying = tuple(worker(rank) for rank in range(int(leaves), WORKERS))
        gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3), workers=staying)
        (load,) = shard.ownership.loads
        shard.now += 0.0 if leaves else SENDER_SECONDS - 0.1
        shard.handle(ShardTick(leased=True))
        assert bool(shard.core._loads.unreadable) == leaves
        shard.now += 0.2
        shard.handle(ShardTick(leased=True))
        (unreadable,) = shard.core._loads.unreadable
        assert unreadable.load is load


def test_a_second_failure_before_all_have_settled_keeps_what_is_owed() -> None:
    twin = undisturbed("sgd", 5)
    shard, epoch, spec, members = survivor("sgd", 4)
    after = gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    (load,) = shard.ownership.loads
    bring(shard, load, blocks_of(twin[3], LOST))
    for member in members:
        member.push(shard, 3, LOST)
    last = next_epoch(after)
    shard.adopt(last, spec)
    for member in members:
        shard.settle(sender(member.rank), last.number)
    assert shard.ownership.tables["w"].values.tobytes() == twin[4].tobytes()


def test_blocks_given_once_more_forget_what_was_owed_to_what_they_were() -> None:
    twin = undisturbed("sgd", 5)
    shard, epoch, spec, members = survivor("sgd", 4)
    after = gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    last = gain(shard, after, spec, replace(put_back(BlockSource.OBJECT, 2), former_owner=""))
    (load,) = shard.ownership.loads
    shard.install(load, BlockContents(blocks_of(twin[2], LOST)))
    for member in members:
        for clock in (2, 3):
            member.push(shard, clock, LOST)
        shard.settle(sender(member.rank), last.number)
    assert shard.ownership.tables["w"].values.tobytes() == twin[4].tobytes()


def test_a_push_to_both_kinds_of_blocks_is_kept_apart() -> None:
    """A push of the open clock that touches blocks that stood all along, and blocks that were put back."""
    twin = undisturbed("assign", 5)
    shard, epoch, spec, members = survivor("assign", 3)
    after = gain(shard, epoch, spec, put_back(BlockSource.WORKER, 3))
    (load,) = shard.ownership.loads
    bring(shard, load, blocks_of(twin[3], LOST))
    for member in members:
        member.push(shard, 3, np.arange(6, dtype=np.uint32))
        shard.settle(sender(member.rank), after.number)
    for member in members:
        shard.mark(sender(member.rank), after.number, 4)
    assert shard.ownership.tables["w"].values.tobytes() == twin[4].tobytes()


def test_a_sum_has_the_bits_of_its_parts() -> None:
    """Also of zeros: a block has the same sum whatever other blocks a push touches."""
    store = BlockStore(Table("w", 4), np.arange(4, dtype=np.uint32))
    minus = np.array([-0.0, -0.0], np.float32)
    parts = [StoreSlice(store, np.array(at), minus) for at in ([0, 1], [1, 2])]
    assert np.signbit(np.asarray(sum_parts(parts).values)).all()


def test_a_block_ahead_of_its_owner_moves_on_only_when_that_has_caught_up() -> None:
    """A freeze says what blocks contain by the shard's own watermark: workers would push to them twice."""
    twin = undisturbed("sgd", 4)
    shard, epoch, spec, members = survivor("sgd", 3)
    after = gain(shard, epoch, spec, put_back(BlockSource.WORKER, 4))
    (load,) = shard.ownership.loads
    bring(shard, load, blocks_of(twin[4], LOST))
    for member in members:
        shard.settle(sender(member.rank), after.number)
    with pytest.raises(MustWait, match="ahead of this shard"):
        shard.freeze(after.number, [("w", LOST)])
    close(shard, members, 3, MINE)
    contained = {worker(rank).key: 4 for rank in range(WORKERS)}
    assert dict(shard.freeze(after.number, [("w", LOST)])) == contained
