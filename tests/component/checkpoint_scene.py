"""Fake shards and a fake recovery coordinator over real gRPC, around a real checkpoint coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import InvalidRequest, NotServing, StaleEpoch
from scar.placement import Epoch, Member, Role
from scar.tables import Checkpoint, Job, Table, rows
from scar.v1 import checkpoint_pb2_grpc, ps_pb2, ps_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.epoch_messages import epoch_to_proto
from scar.wire.transport import Link
from scar_checkpoint import maintenance
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.core import round_schedule
from scar_checkpoint.leader_session import CheckpointSession
from scar_checkpoint.servicer import CheckpointServicer
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import object_ref_to_proto
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint, load_newest
from scar_runtime.checkpoint.selection import chosen
from scar_runtime.checkpoint.selection_codec import counts_to_proto, range_from_proto, read_selection
from scar_runtime.checkpoint.top_keys import DistanceArray, KeyRange, block_keys, count_keys
from scar_runtime.process.server import bind_port, make_server
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import object_key
from tests.component.processes import eventually

BLOCKS = 20


def job_with(selection: str = "priority", fraction: float = 0.25, period: int = 4, keep: int = 3) -> Job:
    return Job(
        "job",
        [Table("w", (2 * BLOCKS,), blocks=rows(2))],
        checkpoint=Checkpoint(selection, fraction, period, keep),
    )


class Shard(ps_pb2_grpc.ShardControlServicer):
    """Holds some blocks of table "w"; a block's value is its clock, set by the test. Keeps the rules of a
    round.
    """

    def __init__(self, number: int, job: Job, store: Store, ids: np.ndarray) -> None:
        self.job, self.store, self.ids = job, store, ids.astype(np.uint32)
        self.values, self.cache = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.float32)
        self.clock, self.epoch, self.open_round = 0, 1, 0
        self.pending: np.ndarray | None = None
        self.finished: list[tuple[int, bool]] = []
        self.author = self.saved = ""  # of the round under way: its coordinator, and the shard's object
        self.kept: list[str] = []  # objects that were committed
        self.before_save: Callable[[], None] = lambda: None
        self.changed = threading.Condition()
        self.server = make_server(16)
        address = bind_port(self.server, "127.0.0.1:0")
        self.member = Member(Role.SHARD, f"ps-{number}", f"{number:012x}", address)
        ps_pb2_grpc.add_ShardControlServicer_to_server(self, self.server)
        self.server.start()

    def train(self, clock: int, blocks: slice = slice(None)) -> None:
        """Some blocks take the value of this clock, and it is open."""
        with self.changed:
            self.values[blocks], self.clock = clock, clock
            self.changed.notify_all()

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise (
                StaleEpoch("newer", epoch=self.epoch)
                if epoch < self.epoch
                else NotServing("this shard has not heard yet")
            )

    def Distances(
        self, request: ps_pb2.DistancesRequest, context: grpc.ServicerContext
    ) -> ps_pb2.DistancesReply:
        with self.changed:
            self._check(request.epoch)
            while self.clock < request.min_clock:
                self.changed.wait(0.05)
                self._check(request.epoch)
                if not context.is_active():
                    return ps_pb2.DistancesReply()
            self._undo()
            self.open_round, self.author, self.saved = request.round, request.author, ""
            reply = ps_pb2.DistancesReply(clock=self.clock, settled=len(self.ids))
            if not request.skip:
                self.keys = block_keys(self.job, "w", self.ids, self._distances())
                reply.counts.CopyFrom(counts_to_proto(count_keys(self.keys, KeyRange())))
            return reply

    def Count(self, request: ps_pb2.CountRequest, context: grpc.ServicerContext) -> ps_pb2.CountReply:
        with self.changed:
            self._check(request.epoch)
            if request.round != self.open_round:
                raise InvalidRequest("no such round")
            return ps_pb2.CountReply(counts=counts_to_proto(count_keys(self.keys, range_from_proto(request))))

    def _distances(self) -> DistanceArray:
        return np.abs(self.values - self.cache).astype(np.float32)

    def Save(self, request: ps_pb2.SaveRequest, context: grpc.ServicerContext) -> ps_pb2.SaveReply:
        self.before_save()
        with self.changed:
            self._check(request.epoch)
            if request.round != self.open_round:
                raise InvalidRequest("no such round")
            mask = chosen(read_selection(request), self.job, "w", self.ids, self._distances())
            self.pending, self.cache = self.cache.copy(), np.where(mask, self.values, self.cache)
            ids, values, clock = self.ids[mask], self.values[mask], self.clock
        reply = ps_pb2.SaveReply(copy_seconds=0.001)
        if len(ids):
            group = BlockState("w", ids, clock, {"worker-0@aa": clock}, self.member.key)
            encoded = EncodedObject(
                self.job, [(group, BlockPayload(np.repeat(values, 2), {}, np.zeros(len(ids), np.int64)))]
            )
            key = object_key(request.epoch, self.member.key, request.round)
            self.store.put_pieces(key, encoded.pieces())
            self.saved = key
            ref = object_ref(key, encoded, [group], self.member.key, request.epoch, request.round)
            reply.object.CopyFrom(object_ref_to_proto(ref))
        return reply

    def Finish(self, request: ps_pb2.FinishRequest, context: grpc.ServicerContext) -> ps_pb2.FinishReply:
        with self.changed:
            self.finished.append((request.round, request.committed))
            if (request.round, request.author) == (self.open_round, self.author):
                if request.committed and request.object_key == self.saved:
                    self.pending = None
                    self.kept.append(self.saved)
                self._undo()
        return ps_pb2.FinishReply()

    def _undo(self) -> None:
        if self.pending is not None:
            self.cache, self.pending = self.pending, None

    Clock = Settle = Adopt = Freeze = Receive = Status = lambda self, request, context: context.abort(
        grpc.StatusCode.UNIMPLEMENTED, ""
    )


class Recovery(recovery_pb2_grpc.RecoveryServicer):
    """Serves epochs that the test makes."""

    def __init__(self, job: Job) -> None:
        self.job, self.started = job, True
        self.epochs: list[Epoch] = []
        self.changed = threading.Condition()
        self.server = make_server(16)
        self.address = bind_port(self.server, "127.0.0.1:0")
        recovery_pb2_grpc.add_RecoveryServicer_to_server(self, self.server)
        self.server.start()

    def announce(self, shards: list[Shard], **rest: object) -> None:
        """The next epoch, known to these shards at once."""
        with self.changed:
            number = len(self.epochs) + 1
            for shard in shards:
                shard.epoch = number
            members = tuple(shard.member for shard in shards)
            owners = {"w": np.zeros(BLOCKS, np.uint16)}
            self.epochs.append(Epoch(number, "recovery", self.job.name, members, (), owners, **rest))
            self.changed.notify_all()

    def GetJob(
        self, request: recovery_pb2.GetJobRequest, context: grpc.ServicerContext
    ) -> recovery_pb2.GetJobReply:
        return recovery_pb2.GetJobReply(started=self.started, job=codec.job_to_proto(self.job))

    def Join(
        self, request: recovery_pb2.JoinRequest, context: grpc.ServicerContext
    ) -> recovery_pb2.JoinReply:
        return recovery_pb2.JoinReply()

    def GetEpochs(
        self, request: recovery_pb2.GetEpochsRequest, context: grpc.ServicerContext
    ) -> recovery_pb2.GetEpochsReply:
        with self.changed:
            self.changed.wait_for(lambda: len(self.epochs) > request.after, min(request.wait, 0.3))
            found = self.epochs[request.after :] if request.after else self.epochs[-1:]
        return recovery_pb2.GetEpochsReply(epochs=[epoch_to_proto(epoch) for epoch in found])


def spawn(name: str, target: Callable[[], None]) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


class Scene:
    """Two shards (even and odd blocks), recovery, and a coordinator that leads, all in this process."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.job, self.url = job, f"file://{folder}/store"
        self.store = open_store(self.url).under(job.name)
        self.recovery = Recovery(job)
        self.shards = [Shard(number, job, self.store, np.arange(number, BLOCKS, 2)) for number in range(2)]
        self.recovery.announce(self.shards)
        self._links: list[Link] = []
        self._servers: list[grpc.Server] = [self.recovery.server, *(shard.server for shard in self.shards)]
        self._stops: list[Callable[[], None]] = []

    def lead(
        self, store: Store | None = None, incarnation: str = "c" * 12
    ) -> checkpoint_pb2_grpc.CheckpointStub:
        """Start a coordinator; returns a stub to it."""
        link = self.link(self.recovery.address)
        member = Member(Role.CHECKPOINT, "checkpoint-0", incarnation, "127.0.0.1:0")
        settings = CheckpointSettings(name="checkpoint-0", round_timeout_seconds=3.0, keep_seconds=0.0)
        leadership = CheckpointSession(member, settings, self.job, store or self.store, link, spawn)
        stopping = threading.Event()
        thread = threading.Thread(
            target=leadership.run, args=(stopping.is_set, lambda epoch: None), daemon=True
        )
        thread.start()
        self._stops.append(lambda: (stopping.set(), thread.join(10))[0])
        server = make_server(8)
        address = bind_port(server, "127.0.0.1:0")
        checkpoint_pb2_grpc.add_CheckpointServicer_to_server(
            CheckpointServicer(lambda: leadership, lambda: ""), server
        )
        server.start()
        self._servers.append(server)
        return checkpoint_pb2_grpc.CheckpointStub(self.link(address).channel)

    def link(self, address: str) -> Link:
        self._links.append(Link(address, "peer"))
        return self._links[-1]

    def train(self, clock: int, blocks: slice = slice(None)) -> None:
        for shard in self.shards:
            shard.train(clock, blocks)

    def committed(self, number: int) -> Manifest:
        """The manifest with at least this number, once it exists and the shards have heard."""
        eventually(
            lambda: load_newest(self.store, self.job).manifest.number >= number, what=f"manifest {number}"
        )
        return load_newest(self.store, self.job).manifest

    def stop(self) -> None:
        for stop in self._stops:
            stop()
        self._stops = []

    def close(self) -> None:
        self.stop()
        for link in self._links:
            link.close()
        for server in self._servers:
            server.stop(0).wait()


def restored(running: RunningCheckpoint, store: Store) -> list[float]:
    """The value of every block in the running checkpoint (x(0) is 0)."""
    values = np.zeros(BLOCKS)
    for origin in running.origins("w", np.arange(BLOCKS, dtype=np.uint32)):
        if origin.index >= 0:
            ref, header = running.objects[origin.index], running.headers[origin.index]
            values[origin.group.ids] = read_blocks(
                store, ref, header, running.job, "w", origin.group.ids
            ).values[::2]
    return values.tolist()


class Flaky(Store):
    """A store that fails on demand, and runs ``before_create`` before each creation."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.url)
        self.store, self.error, self.before_create = store, None, lambda key: None
        self.after_create: Callable[[str], None] = lambda key: None

    def _use(self) -> Store:
        if self.error is not None:
            raise self.error
        return self.store

    def put(self, key, data):
        self._use().put(key, data)

    def create(self, key, data):
        self.before_create(key)
        self._use().create(key, data)
        self.after_create(key)

    def get(self, key):
        return self._use().get(key)

    def get_range(self, key, start, length):
        return self._use().get_range(key, start, length)

    def list(self, prefix=""):
        return self._use().list(prefix)

    def delete(self, key):
        self._use().delete(key)

    def under(self, prefix):
        return self._use().under(prefix)


@contextmanager
def scenes(folder: Path) -> Iterator[Callable[..., Scene]]:
    """Makes scenes that are impatient, and closes them."""
    made: list[Scene] = []

    def make(job: Job | None = None) -> Scene:
        made.append(Scene(folder, job or job_with()))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(round_schedule, "BACKOFF", 0.1)
        patch.setattr(maintenance, "PERIOD", 0.1)
        yield make
        for scene in made:
            scene.close()
