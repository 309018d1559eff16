"""A shard that was frozen for longer than its lease, and wakes after its blocks have gone."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import numpy as np

from scar.errors import Fenced, NotServing, ScarError, StaleEpoch, Unreachable, from_rpc
from scar.v1 import ps_pb2
from scar.wire.codec import Chunk, chunks, decode_chunk, encode_chunk
from scar.wire.transport import open_channel
from tests.framework.cluster import Cluster, running


def pull(channel: grpc.Channel, epoch: int) -> grpc.Future:
    """A dense pull as a reader sends it, on its way even to a process that does not move."""
    call = channel.unary_stream(
        "/scar.v1.ShardData/Pull",
        request_serializer=ps_pb2.PullRequest.SerializeToString,
        response_deserializer=decode_chunk,
    )
    return call(
        ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="rows", dense=True)], epoch=epoch), timeout=20
    )


def push(
    channel: grpc.Channel, worker: str, incarnation: str, epoch: int, seq: int, blocks: int
) -> grpc.Future:
    """The next dense push of a worker's lane, with an amount that nobody wrote down."""
    header = ps_pb2.TensorHeader(
        table="rows",
        dtype="int64",
        dense=True,
        epoch=epoch,
        worker=worker,
        incarnation=incarnation,
        seq=seq,
        push_id=10**9,
    )
    call = channel.stream_unary(
        "/scar.v1.ShardData/Push",
        request_serializer=encode_chunk,
        response_deserializer=ps_pb2.PushReply.FromString,
    )
    return call.future(iter(list[Chunk](chunks(header, np.ones(3 * blocks, np.int64)))), timeout=100)


def refusal(call: grpc.Future) -> ScarError:
    """The typed error of a call that must not have been answered."""
    error = call.exception()
    assert isinstance(error, grpc.RpcError), f"a zombie answered: {call.result()}"
    return from_rpc(error)


def test_zombie_neither_answers_nor_counts(tmp_path: Path) -> None:
    """Requests that wait in a frozen shard's sockets are refused when it wakes; its updates are in
    nobody's values.
    """
    with running(tmp_path, shards=3, workers=2, consistency="asp") as cluster:
        cluster.wait_clocks(5)
        before = cluster.incarnations()
        zombie = freeze(cluster, "ps-1")
        with open_channel(zombie.address) as channel:
            calls = [pull(channel, zombie.epoch)]
            calls += [
                push(channel, "worker-0", before["worker-0"], zombie.epoch, seq, zombie.blocks)
                for seq in range(1, 2000, 7)
            ]
            cluster.wait(lambda status: status.number > zombie.epoch, "an epoch without the frozen shard")
            cluster.local.resume("ps-1")
            kinds = {type(refusal(call)) for call in calls}
        assert kinds <= {Fenced, NotServing, StaleEpoch, Unreachable}
        cluster.wait_healed(before, ["ps-1"])
        cluster.verify()
        record = cluster.read_ledger()[-1]
        assert record.members == [f"ps-1@{before['ps-1']}"]
        assert before["ps-1"] in cluster.read_epochs()[-1].fenced


class Frozen:
    """What the outside knew of the shard when it stopped. ``blocks``: of table "rows"."""

    def __init__(self, address: str, epoch: int, blocks: int) -> None:
        self.address, self.epoch, self.blocks = address, epoch, blocks


def freeze(cluster: Cluster, name: str) -> Frozen:
    status = cluster.wait(lambda status: name in status.shards, f"an answer of {name}")
    shard = status.shards[name]
    cluster.local.pause(name)
    blocks = next(table.blocks for table in shard.tables if table.table == "rows")
    return Frozen(shard.member.address, shard.epoch, blocks)


def test_short_freeze_starts_no_recovery(tmp_path: Path) -> None:
    """Half a lease of silence costs nobody anything: no failure, no new epoch, no lost push."""
    with running(tmp_path, shards=2, workers=1, local={"shard_settings": {"lease_seconds": 2}}) as cluster:
        cluster.wait_clocks(3)
        number = cluster.status().number
        cluster.local.pause("ps-0")
        time.sleep(0.4)
        cluster.local.resume("ps-0")
        cluster.wait_clocks(5)
        assert cluster.read_ledger() == []
        assert cluster.status().number == number
        cluster.verify()
