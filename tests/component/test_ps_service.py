"""A whole shard behind real gRPC on loopback, with a store in a directory: data, rounds, moves, restores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from scar import tables
from scar.errors import (
    DeadlineExceeded,
    Fenced,
    ForgedRecord,
    InvalidRequest,
    NonFinite,
    NotServing,
    ScarError,
    StaleEpoch,
    StoreUnavailable,
)
from scar.placement import BlockGroup, BlockSource
from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2, ps_pb2, recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.direct_calls import DirectConnections
from scar_ps.wire import pull_encoder
from scar_runtime.checkpoint.top_keys import KeyRange, block_keys
from scar_runtime.process.server import bind_port, make_server
from scar_runtime.store import open_store
from scar_runtime.store.records import create_record
from tests.component.processes import eventually
from tests.component.ps_scene import SECONDS, WORKER, Running, after, declared, first, run_pair


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"file://{tmp_path}"


@pytest.fixture
def shards(store: str) -> Iterator[list[Running]]:
    yield from run_pair(store)


@pytest.fixture
def shard(shards: list[Running]) -> Running:
    return shards[0]


def test_a_clock_of_bsp_over_the_wire(shard, shards):
    large = Table("large", (3, 1 << 20))
    spec = declared("bsp", large)
    shard.adopt(first(spec, shards), spec)
    assert shard.service.ready()
    values = np.random.default_rng(0).normal(size=large.elements).astype(np.float32)
    rows = np.arange(6, dtype=np.float32)
    reply = shard.push({"large": (None, values), "w": ([1, 5], rows)})
    assert (reply.epoch, reply.clock, reply.duplicate) == (1, 0, False)
    assert not shard.pull("w")[0].any()
    reply = shard.clock(1, loss=0.25)
    assert (reply.clock, reply.finished) == (1, 1)
    found, header = shard.pull("large", clock=1)
    assert (found == values).all()
    assert (header.clock, header.loss, header.loss_clock, header.dense) == (1, 0.25, 1, True)
    assert shard.pull("w", [0, 1, 5])[0].tolist() == [0, 0, 0, *rows.tolist()]
    assert (shard.pull("large", [0, 2])[0] == values.reshape(3, -1)[[0, 2]].reshape(-1)).all()
    status = shard.status()
    assert (status.pushes, status.clock, status.finished["worker-0"]) == (1, 1, 1)
    assert [(one.clock, one.loss) for one in status.losses] == [(0, 0.25)]
    assert status.serving


def test_errors_are_typed_and_change_nothing(shard, shards):
    spec = declared()
    with pytest.raises(NotServing):
        shard.pull("w")
    shard.adopt(first(spec, shards), spec)
    ones = np.ones(24, np.float32)
    with pytest.raises(NonFinite, match="block 7"):
        shard.push({"w": (None, np.where(np.arange(24) < 22, ones, np.nan).astype(np.float32))}, seq=1)
    shard.push({"w": (None, ones)}, seq=1)
    assert shard.push({"w": (None, ones)}, seq=1).duplicate
    with pytest.raises(NotServing):
        shard.push({"w": (None, ones)}, seq=2, epoch=2)
    shard.adopt(after(first(spec, shards)), spec)
    with pytest.raises(StaleEpoch) as stale:
        shard.push({"w": (None, ones)}, seq=2)
    assert stale.value.epoch == 2
    assert shard.pull("w", epoch=2)[0].tolist() == ones.tolist()
    status = shard.status()
    assert (status.pushes, status.duplicates) == (1, 1)


def test_garbage_instead_of_a_push_is_a_typed_error(shard, shards):
    spec = declared()
    shard.adopt(first(spec, shards), spec)
    raw = shard.link.channel.stream_unary("/scar.v1.ShardData/Push")
    with pytest.raises(grpc.RpcError) as refused:
        raw(iter([b"\xff" * 10]), timeout=SECONDS)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_waiting_pull_is_answered_when_the_clock_opens_or_says_what_it_waits_for(shard, shards):
    spec = declared("bsp")
    shard.adopt(first(spec, shards), spec)

    def says_why() -> bool:  # the shard answers 50 ms before the deadline, which a busy machine may lose
        with pytest.raises(DeadlineExceeded) as caught:
            shard.pull("w", clock=1, timeout=1.0)
        return "waits for worker-0" in caught.value.message

    eventually(says_why)
    found = []
    waiting = threading.Thread(target=lambda: found.append(shard.pull("w", clock=1)[1].clock))
    waiting.start()
    shard.clock(1)
    waiting.join(SECONDS)
    assert found == [1]


def test_readers_never_see_half_of_a_block(shard, shards):
    wide = Table("wide", (4, 200_000), rule=tables.assign())
    spec = declared("asp", wide)
    shard.adopt(first(spec, shards), spec)
    stop, torn = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            rows = shard.pull("wide")[0].reshape(4, -1)
            torn.extend(row for row in rows if (row != row[0]).any())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 40):
        shard.push({"wide": (None, np.full(wide.elements, number, np.float32))})
    stop.set()
    reader.join(SECONDS)
    assert torn == []


def test_without_a_lease_nothing_is_served(shard, shards):
    spec = declared()
    shard.adopt(first(spec, shards), spec)
    shard.process.liveness.give_up_lease()
    with pytest.raises(NotServing, match="lease"):
        shard.push({"w": (None, np.ones(24, np.float32))})
    with pytest.raises(NotServing, match="lease"):
        shard.pull("w")
    assert not shard.status().serving


def test_a_lease_that_runs_out_while_values_are_sent_ends_their_stream_with_an_error(
    shard, shards, monkeypatch
):
    spec = declared()
    shard.adopt(first(spec, shards), spec)
    encode = pull_encoder.encode_blocks

    def encode_slowly(*arguments):
        yield from encode(*arguments)
        shard.process.liveness.give_up_lease()

    monkeypatch.setattr(pull_encoder, "encode_blocks", encode_slowly)
    with pytest.raises(NotServing, match="lease"):
        shard.pull("w")


def test_a_shard_that_is_fenced_ends_its_process(shard, shards):
    spec = declared()
    epoch = first(spec, shards)
    shard.adopt(epoch, spec)
    shard.adopt(after(epoch, fenced=(shard.member.incarnation,)), spec)
    assert [type(error) for error in shard.process.failures] == [Fenced]
    with pytest.raises(ScarError):
        shard.pull("w", epoch=2)


class Leaders(recovery_pb2_grpc.RecoveryServicer):
    """Answers ``Leave`` with these (epoch, blocks that remain) in turn, the last one forever."""

    def __init__(self, *answers: tuple[int, int]) -> None:
        self.answers = list(answers)
        self._server = make_server(workers=2)
        recovery_pb2_grpc.add_RecoveryServicer_to_server(self, self._server)
        self.address = bind_port(self._server, "127.0.0.1:0")
        self._server.start()

    def Join(
        self, request: recovery_pb2.JoinRequest, context: grpc.ServicerContext
    ) -> recovery_pb2.JoinReply:
        return recovery_pb2.JoinReply()

    def Leave(
        self, request: recovery_pb2.LeaveRequest, context: grpc.ServicerContext
    ) -> recovery_pb2.LeaveReply:
        epoch, remaining = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return recovery_pb2.LeaveReply(epoch=epoch, remaining=remaining)

    def close(self) -> None:
        self._server.stop(0).wait()


def test_a_coordinator_that_has_not_read_the_epoch_yet_lets_no_shard_go(store):
    """It has just begun to lead and knows of no block. Who took that for an empty shard ended with its
    blocks.
    """
    leaders = Leaders((0, 0), (0, 0), (1, 8), (2, 0))
    shard = Running(0, store, recovery=leaders.address)
    spec = declared()
    shard.adopt(first(spec, [shard]), spec)
    shard.stop()
    leaders.close()
    assert leaders.answers == [(2, 0)]


def commit(store: str, spec: Job, number: int, *replies: ps_pb2.SaveReply) -> None:
    manifest = checkpoint_pb2.Manifest(
        number=number, parent=number - 1, job=spec.name, objects=[one.object for one in replies]
    )
    create_record(open_store(store).under(spec.name), f"manifests/{number:08d}", manifest)


def test_a_saved_block_comes_back_with_its_optimizer_state_on_another_shard(shards, store):
    spec = declared("asp", Table("v", (6, 2), rule=tables.momentum(1.0, 0.5)))
    epoch = first(spec, shards, alternate=True)
    for shard in shards:
        shard.adopt(epoch, spec)
        shard.settle(1)
    dying, heir = shards
    dying.push({"w": (None, np.arange(12, dtype=np.float32)), "v": (None, np.ones(6, np.float32))})
    assert dying.measure(1)["v"].tolist() == [np.float32(np.sqrt(2))] * 3
    reply = dying.save(1)
    assert reply.object.blocks == 7
    assert reply.object.key.startswith(f"objects/e00000001-{dying.member.key}-r00000001")
    commit(store, spec, 1, reply)
    dying.finish(1, True)
    assert not dying.measure(2)["w"].any()
    assert dying.status().saved_age >= 0

    lost = {name: np.flatnonzero(owner == 0).astype(np.uint32) for name, owner in epoch.owners.items()}
    moved = tuple(
        BlockGroup(
            name,
            ids,
            former_owner=dying.member.key,
            source=BlockSource.OBJECT,
            object_key=reply.object.key,
            watermark={WORKER.key: 1},
        )
        for name, ids in lost.items()
    )
    owners = {name: np.zeros_like(owner) for name, owner in epoch.owners.items()}
    heir.adopt(
        after(epoch, shards=(heir.member,), owners=owners, moved=moved, manifest=1, fenced=("a",)), spec
    )
    assert heir.pull("w", [0, 2], epoch=2)[0].tolist() == [0, 1, 2, 3, 4, 5]
    heir.seq = 0
    heir.push({"v": ([0], np.ones(2, np.float32))}, epoch=2)
    assert heir.pull("v", [0], epoch=2)[0].tolist() == [-2.5, -2.5], "the velocity was restored, too"
    assert [(one.table, one.unsettled) for one in heir.status().tables] == [("w", 4), ("v", 3)]
    heir.settle(2)
    assert not any(one.unsettled for one in heir.status().tables)


def test_priority_saves_what_has_moved_most(shard, shards):
    spec = declared()
    shard.adopt(first(spec, shards), spec)
    shard.settle(1)
    shard.push({"w": ([2, 5, 6], np.repeat(np.float32([1, 3, 2]), 3))})
    found = shard.measure(1)["w"]
    assert np.argsort(-found)[:3].tolist() == [5, 6, 2]
    keys = block_keys(spec, "w", np.arange(8, dtype=np.uint32), found)
    counts = shard.count(1, depth=0)
    assert sum(counts.values()) == 3, "blocks that have changed"
    second = KeyRange(1, int(keys[6]) >> KeyRange().shift)
    assert sum(shard.count(1, depth=1, prefix=second.prefix).values()) == counts[second.prefix]
    reply = shard.save(1, selection="priority", threshold=int(keys[6]))
    assert reply.object.blocks == 2
    shard.finish(1, True)
    assert np.flatnonzero(shard.measure(2)["w"]).tolist() == [2]
    assert not shard.save(2, selection="priority", threshold=int(keys[5])).HasField("object")


def test_a_repeated_save_is_answered_again_and_a_repeated_round_gets_another_key(shard, shards):
    spec = declared()
    shard.adopt(first(spec, shards), spec)
    shard.settle(1)
    shard.measure(1, skip=True)
    reply = shard.save(1)
    assert shard.save(1) == reply
    shard.measure(1, skip=True)
    assert shard.save(1).object.key != reply.object.key


def test_a_failed_upload_gives_the_distances_back(shard, shards, monkeypatch):
    spec = declared()
    shard.adopt(first(spec, shards), spec)
    shard.settle(1)
    shard.push({"w": (None, np.ones(24, np.float32))})
    before = shard.measure(1)["w"]

    def down(*_: object) -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr("scar_runtime.store.directory.DirectoryStore.put_pieces", down)
    with pytest.raises(StoreUnavailable):
        shard.save(1)
    monkeypatch.undo()
    assert (shard.measure(2)["w"] == before).all()
    shard.finish(2, False)
    with pytest.raises(InvalidRequest):
        shard.save(2)


def test_frozen_blocks_move_to_another_shard_without_a_perturbation(shards, store, monkeypatch):
    methods = []
    receive = DirectConnections.receive_stream
    monkeypatch.setattr(
        DirectConnections,
        "receive_stream",
        lambda self, method, *how: methods.append(method) or receive(self, method, *how),
    )
    spec = declared("asp", Table("v", (6, 2), rule=tables.adam()))
    epoch = first(spec, shards)
    donor, heir = shards
    donor.adopt(epoch, spec)
    donor.settle(1)
    draw = np.random.default_rng(0)
    donor.push(
        {
            "w": (None, draw.normal(size=24).astype(np.float32)),
            "v": (None, draw.normal(size=12).astype(np.float32)),
        }
    )
    before = {name: donor.pull(name)[0] for name in ("w", "v")}
    moving = {"w": np.array([1, 4], np.uint32), "v": np.array([0, 5], np.uint32)}
    wanted = [
        ps_pb2.TableBlocks(table=name, block_ids=codec.ids_to_bytes(ids)) for name, ids in moving.items()
    ]
    frozen = donor.call(donor.control.Freeze, ps_pb2.FreezeRequest(epoch=1, tables=wanted))
    assert dict(frozen.watermark) == {WORKER.key: 1}
    request = ps_pb2.ReceiveRequest(
        epoch=1, donor=codec.member_to_proto(donor.member), tables=wanted, job=spec.name
    )
    assert heir.call(heir.control.Receive, request).bytes == 2 * 12 + 3 * 2 * 8
    assert methods == [*2 * ["ShardData/Pull"], "ShardData/Fetch"]
    owners = {name: owner.copy() for name, owner in epoch.owners.items()}
    for name, ids in moving.items():
        owners[name][ids] = 1
    moved = tuple(
        BlockGroup(
            name, ids, former_owner=donor.member.key, source=BlockSource.DONOR, watermark=frozen.watermark
        )
        for name, ids in moving.items()
    )
    second = after(epoch, owners=owners, moved=moved)
    heir.adopt(second, spec)
    donor.adopt(second, spec)
    assert (heir.pull("w", epoch=2)[0] == before["w"].reshape(8, 3)[[1, 4]].reshape(-1)).all()
    assert (heir.pull("v", epoch=2)[0] == before["v"].reshape(6, 2)[[0, 5]].reshape(-1)).all()
    ones = np.ones(4, np.float32)
    heir.seq, donor.seq = 0, 1
    heir.push({"v": (None, ones)}, epoch=2)
    donor.push({"v": ([1, 2], ones)}, epoch=2)
    stores = [one.service.state.ownership.tables["v"] for one in (heir, donor)]
    assert stores[0].steps.tolist() == [2, 2]
    assert stores[1].steps.tolist() == [2, 2, 1, 1]
    heir.settle(2)
    assert heir.measure(1, epoch=2)["w"].all(), "the running checkpoint still holds x(0) of these blocks"


def test_an_epoch_is_what_the_store_has_and_not_what_its_bringer_says(shards):
    spec = declared()
    shard = shards[0]
    epoch = first(spec, shards)
    forged = ps_pb2.AdoptRequest(epoch=1, digest=bytes(32), job=spec.name)
    with pytest.raises(NotServing, match="job 'job' is not in the store"):
        shard.call(shard.control.Adopt, forged)
    asked = shard.publish(epoch, spec)
    with pytest.raises(ForgedRecord, match="is not the one that recovery has made"):
        shard.call(shard.control.Adopt, forged)
    with pytest.raises(NotServing, match="epoch 2 is not in the store"):
        shard.call(shard.control.Adopt, ps_pb2.AdoptRequest(epoch=2, digest=asked.digest, job=spec.name))
    assert shard.status().epoch == 0
    assert shard.call(shard.control.Adopt, asked).epoch == 1
    assert shard.call(shard.control.Adopt, forged).epoch == 1, "an older or equal one changes nothing"


def test_missed_epochs_are_read_from_the_store(shards, store):
    spec = declared()
    epoch = first(spec, shards, alternate=True)
    shard = shards[0]
    shard.adopt(epoch, spec)
    gained = np.array([1, 3, 5, 7], np.uint32)
    owners = {"w": np.zeros(8, np.uint16)}
    moved = (BlockGroup("w", gained, former_owner=shards[1].member.key, source=BlockSource.INITIAL),)
    second = after(epoch, owners=owners, moved=moved)
    third = after(second)
    shard.publish(second, spec)
    assert shard.adopt(third, spec).epoch == 3
    assert shard.pull("w", epoch=3)[0].size == 24
    fourth = after(third)
    shard.publish(fourth, spec)
    pause = threading.Event()
    for _ in range(2000):  # a request of a newer epoch makes the shard look for it
        try:
            shard.pull("w", epoch=4)
            break
        except NotServing:
            pause.wait(0.02)
    assert shard.status().epoch == 4
    assert shard.process.liveness.epoch == 4


def test_given_and_random_initial_values_are_loaded_before_the_shard_is_ready(shard, shards, store):
    array = np.arange(10, dtype=np.float64)
    spec = declared(
        "asp",
        Table("given", (10,), dtype="float64", init=tables.Init("given", key="given")),
        Table("drawn", (1000, 3), init=tables.normal(0, 1), blocks=tables.rows(7)),
    )
    open_store(store).under("job").put("given", array.tobytes())
    shard.adopt(first(spec, shards), spec)
    assert (shard.pull("given")[0] == array).all()
    drawn = spec.table("drawn")
    assert (shard.pull("drawn")[0] == drawn.initial(0, np.arange(drawn.blocks, dtype=np.uint32))).all()


def test_a_load_is_repeated_until_the_store_answers(shard, shards, store):
    array = np.ones(4, np.float32)
    spec = declared("asp", Table("given", (4,), init=tables.Init("given", key="given")))
    shard.call(shard.control.Adopt, shard.publish(first(spec, shards), spec))
    pause = threading.Event()
    while "cannot be loaded" not in shard.status().problem:
        pause.wait(0.01)
    assert not shard.service.ready()
    open_store(store).under("job").put("given", array.tobytes())
    assert shard.pull("given")[0].tolist() == [1.0] * 4
    assert shard.status().problem == ""


def test_loads_that_could_not_be_started_are_started_later(shard, shards, monkeypatch):
    spec = declared("asp")
    request = shard.publish(first(spec, shards), spec)

    def away(prefix):
        raise StoreUnavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(shard.service._loader, "_store", SimpleNamespace(under=away))
        shard.call(shard.control.Adopt, request)
        while "the store is away" not in shard.status().problem:
            shard.process.stopping.wait(0.01)
    assert shard.pull("w")[0].tolist() == [0.0] * 24  # nobody tells the shard again
