"""The thread that brings copies to the next replica: what it is told too late, refused, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import Busy, DeadlineExceeded, ScarError, Unreachable
from scar.tables import Job, Table, add
from scar.wire.direct_calls import DirectConnections
from scar.wire.shard_link import ShardLink
from scar.wire.transport import Deadline, retry
from scar_ps import replica_sender
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.replica_store import ReplicationBatch
from scar_ps.core.replication_chain import ReplicationChain
from scar_ps.wire.replication_stream import encode_batch
from tests.component.ps_scene import SECONDS, Running, after, first, run_pair

BLOCKS = 8


def job() -> Job:
    return Job("job", [Table("w", (BLOCKS, 2), rule=add())], consistency="asp", recovery="sync-chain")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Running]]:
    yield from run_pair(f"file://{tmp_path}")


@pytest.fixture
def shards(pair: list[Running]) -> list[Running]:
    begin_job(pair, job())
    return pair


def begin_job(pair: list[Running], spec: Job) -> None:
    """The first has all blocks, the second keeps the copies."""
    epoch = first(spec, pair)
    for shard in pair:
        shard.adopt(epoch, spec)
        shard.settle(1)


def push(owner: Running, block: int) -> None:
    """Until it is acknowledged, as a worker does it."""
    owner.seq += 1

    def attempt(_: float) -> None:
        owner.push({"w": ([block], np.ones(2, np.float32))}, seq=owner.seq)

    retry(attempt, Deadline(SECONDS), "a push to be acknowledged")


def copied(owner: Running, keeper: Running) -> bool:
    """Is the copy equal to the values?"""
    replica = keeper.service.state.replicas.by_owner[owner.member.key]
    return bool((replica.stores["w"].values == owner.service.state.ownership.tables["w"].values).all())


def newest_batch(owner: Running, keeper: Running) -> int:
    """Its number; 0: none has come."""
    replica = keeper.service.state.replicas.by_owner.get(owner.member.key)
    return 0 if replica is None else replica.number


def test_a_copy_that_takes_longer_than_the_sender_waits_is_sent(shards, monkeypatch):
    copy = ReplicationChain.next_outgoing

    def slow(self, *arguments):
        outgoing = copy(self, *arguments)
        time.sleep(0.05)  # as long as it takes to copy 100 MB
        return outgoing

    monkeypatch.setattr(ReplicationChain, "next_outgoing", slow)
    monkeypatch.setattr(replica_sender, "WAIT_SECONDS", 0.02)
    for block in range(BLOCKS):
        push(shards[0], block)
        assert copied(*shards)


@pytest.mark.parametrize("answer", ["arrived", "failed"])
@pytest.mark.parametrize("error", [DeadlineExceeded("waited for its turn"), Busy("too many are waiting")])
def test_an_apply_thread_that_does_not_hear_of_an_answer_gets_another(shards, monkeypatch, answer, error):
    owner = shards[0]
    call, silent = owner.service._sender._apply_thread.call, list[str]()

    def busy(event, timeout, **options):
        if timeout == replica_sender.STEP_SECONDS and len(silent) < 2:
            silent.append("busy")
            raise error
        return call(event, timeout, **options)

    def refused(self, target, batch):
        monkeypatch.setattr(replica_sender.ReplicaSender, "_transfer", transfer)
        raise Busy("try again")

    push(owner, 0)
    transfer = replica_sender.ReplicaSender._transfer
    monkeypatch.setattr(owner.service._sender._apply_thread, "call", busy)
    if answer == "failed":
        monkeypatch.setattr(replica_sender.ReplicaSender, "_transfer", refused)
    for block in range(BLOCKS):
        push(owner, block)
        assert copied(*shards)
    assert silent == ["busy", "busy"]
    assert owner.process.failures == []


def test_copies_go_over_direct_connections(shards, monkeypatch):
    methods = []
    send = DirectConnections.send_stream

    def noted(self, method, messages, timeout):
        answer = send(self, method, messages, timeout)
        methods.append((method, answer is not None))
        return answer

    monkeypatch.setattr(DirectConnections, "send_stream", noted)
    push(shards[0], 1)
    assert copied(*shards)
    assert set(methods) == {("ShardData/Ship", True)}


def test_a_new_epoch_ends_a_batch_to_a_shard_that_does_not_answer(shards, monkeypatch):
    owner = shards[0]
    begun, closed, ship = threading.Event(), threading.Event(), ShardLink.ship

    def frozen(link, chunks, timeout):
        monkeypatch.setattr(ShardLink, "ship", ship)
        monkeypatch.setattr(link, "close", closed.set)
        begun.set()
        assert closed.wait(SECONDS), "nobody waits for its answer"
        raise Unreachable("the connection was closed")

    monkeypatch.setattr(ShardLink, "ship", frozen)
    waiting = threading.Thread(target=push, args=(owner, 0))
    waiting.start()
    assert begun.wait(SECONDS)
    epoch = after(first(job(), shards))
    for shard in shards:
        shard.adopt(epoch, job())
    assert closed.wait(SECONDS)
    for shard in shards:
        shard.settle(2)
    owner.push({"w": ([0], np.ones(2, np.float32))}, seq=owner.seq, epoch=2)
    waiting.join(SECONDS)
    assert copied(*shards)


def test_workers_that_wait_do_not_stop_the_copies(shards, monkeypatch):
    monkeypatch.setattr("scar_ps.core.shard.MAX_PARKED", 2)
    owner, refused = shards[0], list[ScarError]()

    def wait() -> None:
        try:
            owner.pull("w", clock=1 << 30, timeout=SECONDS)
        except ScarError as error:
            refused.append(error)

    readers = [threading.Thread(target=wait) for _ in range(6)]
    for reader in readers:
        reader.start()
    while len(refused) < 4:
        owner.process.stopping.wait(0.01)
    assert {type(error) for error in refused} == {Busy}
    for block in range(BLOCKS):
        push(owner, block)
        assert copied(*shards)
        owner.process.stopping.wait(0.01)  # its sender waits for something to send, too
    assert owner.process.failures == []
    owner.stop()
    for reader in readers:
        reader.join(SECONDS)


def test_a_stream_that_was_cut_between_two_tables_leaves_the_copies_as_they_were(pair):
    """The stream of a shard that is killed may end as if it were whole."""
    tables = [Table(name, (BLOCKS, 2), rule=add()) for name in ("w", "v")]
    begin_job(pair, Job("job", tables, consistency="asp", recovery="sync-chain"))
    owner, keeper = pair
    contents = owner.service.state.ownership.tables["w"].copy_blocks(np.arange(BLOCKS))
    copies = [
        CopiedBlocks(BlockState(name, np.arange(BLOCKS, dtype=np.uint32)), contents) for name in ("w", "v")
    ]
    batch = ReplicationBatch(owner.member.key, 1, 10**6, 0, 0, {"worker-0@x": 9}, copies)
    chunks = list(encode_batch(batch))
    cut = next(at for at, chunk in enumerate(chunks) if chunk.header and chunk.header.table == "v")
    with pytest.raises(ScarError):
        keeper.link.ship(chunks[:cut], SECONDS)
    assert newest_batch(owner, keeper) < 10**6
    keeper.link.ship(chunks, SECONDS)
    assert newest_batch(owner, keeper) == 10**6
