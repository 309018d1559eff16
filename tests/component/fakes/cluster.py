"""Fake shards and a fake recovery coordinator, with the moves that a test makes: kill, restore, move live,
roll back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import numpy as np

from scar.placement import NOBODY, BlockGroup, BlockSource, Epoch, Member, spread_blocks
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.epoch_messages import epoch_to_proto
from scar.wire.transport import server_options
from tests.component.fakes.shard import WAIT_SECONDS, FakeShard


class FakeRecovery(recovery_pb2_grpc.RecoveryServicer):
    """Serves epochs that the test commits; remembers who joined, left and reported."""

    def __init__(self, job: Job, cluster: FakeCluster) -> None:
        self.job, self.cluster, self.lock = job, cluster, threading.Condition()
        self.epochs: list[Epoch] = []
        self.reports: list[recovery_pb2.RerouteReport] = []
        self.left: list[tuple[str, bool]] = []
        self.outage = ""  # why the next epoch waits for the store
        self.forgetful = 0  # members that join in vain
        self.address, self.server = "127.0.0.1:0", None
        self.start()

    def start(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(16), options=server_options())
        recovery_pb2_grpc.add_RecoveryServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(self.address)}"
        self.server.start()

    def stop(self) -> None:
        self.server.stop(0).wait()

    def commit(self, epoch: Epoch) -> None:
        with self.lock:
            self.epochs.append(epoch)
            self.lock.notify_all()

    def GetJob(self, request, context):
        return recovery_pb2.GetJobReply(started=True, job=codec.job_to_proto(self.job))

    def Join(self, request, context):
        if self.forgetful:  # replaced before an epoch said so
            self.forgetful -= 1
        else:
            self.cluster.joined(codec.member_from_proto(request.member))
        return recovery_pb2.JoinReply(epoch=self.cluster.epoch.number)

    def Leave(self, request, context):
        self.left.append((request.member.name, request.finished))
        return recovery_pb2.LeaveReply(epoch=self.cluster.epoch.number)

    def GetEpochs(self, request, context):
        with self.lock:
            self.lock.wait_for(lambda: self.epochs[-1].number > request.after, min(request.wait, 1.0))
            newer = [epoch for epoch in self.epochs if epoch.number > request.after]
        return recovery_pb2.GetEpochsReply(
            epochs=[epoch_to_proto(epoch) for epoch in (newer if request.after else newer[-1:])],
            outage=self.outage,
        )

    def ReportReroute(self, request, context):
        if not request.first:  # each worker's, of the epoch that it begins with
            self.reports.append(request)
        return recovery_pb2.RerouteReply()


class FakeCluster:
    """``saved``: what a restore takes, whole tables with one watermark; at first x(0) = 0."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.shards = {f"ps-{i}": FakeShard(job, f"ps-{i}", f"{i:012x}") for i in range(job.shards)}
        self.saved = {table.name: np.zeros(table.elements, table.dtype) for table in job.tables}
        self.watermark: dict[str, int] = {}
        self._joining = threading.Lock()  # each epoch follows from the last
        self.recovery = FakeRecovery(job, self)
        members = tuple(shard.member for shard in self.shards.values())
        owners = spread_blocks(job, job.shards)
        self._commit(Epoch(1, "author", job.name, members, (), owners, awaits_workers=True))

    @property
    def address(self) -> str:
        return self.recovery.address

    @property
    def epoch(self) -> Epoch:
        return self.recovery.epochs[-1]

    def _commit(self, epoch: Epoch, announce: bool = True) -> None:
        for shard in self.shards.values():
            if epoch.shard_index(shard.member.key) >= 0 and not shard.dead:
                shard.adopt(epoch, self._gained(epoch, shard.member.key), self.saved)
        self.recovery.commit(epoch)

    def _gained(self, epoch: Epoch, key: str) -> dict[str, np.ndarray]:
        owned = epoch.owned_by(key)
        found: dict[str, list[np.ndarray]] = {}
        for group in epoch.moved:
            if group.source is not BlockSource.DONOR:
                found.setdefault(group.table, []).append(group.ids[np.isin(group.ids, owned[group.table])])
        return {table: np.unique(np.concatenate(ids)) for table, ids in found.items()}

    def joined(self, member: Member) -> None:
        with self._joining:
            others = [worker for worker in self.epoch.workers if worker.name != member.name]
            epoch = replace(
                self.epoch,
                number=self.epoch.number + 1,
                workers=(*others, member),
                moved=(),
                cause="workers",
                awaits_workers=self.epoch.awaits_workers and len(others) + 1 < self.job.workers,
            )
            self._commit(epoch)

    def save(self) -> None:
        """A consistent checkpoint of all shards, once they all contain the same pushes: marks follow in
        the background.
        """
        end = time.monotonic() + WAIT_SECONDS
        alive = [shard for shard in self.shards.values() if not shard.dead]
        while (
            any(shard.pending for shard in alive)
            or len({frozenset(shard.watermark.items()) for shard in alive}) > 1
        ):
            assert time.monotonic() < end, "the shards stay at different clocks"
            time.sleep(0.005)
        self.watermark = {}
        for shard in self.shards.values():
            with shard.lock:
                for table, ids in self.epoch.owned_by(shard.member.key).items():
                    layout, at = self.job.table(table).layout, ids.astype(np.int64)
                    layout.scatter(self.saved[table], at, layout.gather(shard.values[table], at))
                self.watermark = {
                    key: max(push, self.watermark.get(key, 0)) for key, push in shard.watermark.items()
                }

    def kill(self, name: str) -> None:
        self.shards[name].die()

    def recover(self, names: Iterable[str], failure: int = 1) -> Epoch:
        """The epoch that answers the death of these shards: their blocks go to the others (to nobody when
        there are none).
        """
        dead = {self.shards[name].member.key for name in names}
        old = self.epoch
        alive = tuple(member for member in old.shards if member.key not in dead)
        owners, moved = {}, []
        for table, before in old.owners.items():
            keys = [member.key for member in old.shards]
            index = np.array(
                [next((i for i, m in enumerate(alive) if m.key == key), NOBODY) for key in keys], np.uint16
            )
            after = np.where(before == NOBODY, NOBODY, index[np.minimum(before, len(keys) - 1)]).astype(
                np.uint16
            )
            ids = np.flatnonzero(after == NOBODY).astype(np.uint32)
            if alive:
                after[ids] = np.arange(len(ids)) % len(alive)
            owners[table] = after
            former = next(iter(dead), "")
            if len(ids):
                moved.append(
                    BlockGroup(
                        table,
                        ids,
                        former_owner=former,
                        source=BlockSource.OBJECT,
                        object_key="object",
                        watermark=dict(self.watermark),
                    )
                )
        epoch = replace(
            old,
            number=old.number + 1,
            shards=alive,
            owners=owners,
            moved=tuple(moved),
            cause="failure",
            failure=failure,
        )
        self._commit(epoch)
        return epoch

    def add(self, name: str, incarnation: str) -> Epoch:
        """A new shard that gets every block that nobody owns."""
        shard = self.shards[name] = FakeShard(self.job, name, incarnation)
        old = self.epoch
        owners, moved = {}, []
        for table, before in old.owners.items():
            ids = np.flatnonzero(before == NOBODY).astype(np.uint32)
            owners[table] = np.where(before == NOBODY, len(old.shards), before).astype(np.uint16)
            if len(ids):
                moved.append(
                    BlockGroup(
                        table,
                        ids,
                        source=BlockSource.OBJECT,
                        object_key="object",
                        watermark=dict(self.watermark),
                    )
                )
        shard.clock = max((other.clock for other in self.shards.values() if not other.dead), default=0)
        epoch = replace(
            old,
            number=old.number + 1,
            shards=(*old.shards, shard.member),
            owners=owners,
            moved=tuple(moved),
            cause="join",
        )
        self._commit(epoch)
        return epoch

    def announce(self) -> None:
        """An epoch that moves nothing, as a new leader creates one."""
        self._commit(replace(self.epoch, number=self.epoch.number + 1, moved=(), cause="leader"))

    def move(self, source: str, target: str) -> None:
        """A live move of half the blocks of one shard, once they are settled; the two serve nobody in
        between.
        """
        donor, heir = self.shards[source], self.shards[target]
        with donor.lock:
            assert donor.lock.wait_for(donor.is_settled, WAIT_SECONDS)
            with heir.lock:
                self._hand_over(donor, heir)

    def _hand_over(self, donor: FakeShard, heir: FakeShard) -> None:
        old, owners, moved = self.epoch, {}, []
        for table, before in old.owners.items():
            ids = old.owned_by(donor.member.key)[table][::2]
            layout, at = self.job.table(table).layout, ids.astype(np.int64)
            layout.scatter(heir.values[table], at, layout.gather(donor.values[table], at))
            owners[table] = before.copy()
            owners[table][ids] = old.shard_index(heir.member.key)
            moved.append(
                BlockGroup(
                    table,
                    ids,
                    former_owner=donor.member.key,
                    source=BlockSource.DONOR,
                    watermark=dict(donor.watermark),
                )
            )
        heir.gained = old.number + 1
        self._commit(replace(old, number=old.number + 1, owners=owners, moved=tuple(moved), cause="join"))

    def roll_back(self) -> Epoch:
        """Full recovery: every value returns to the checkpoint."""
        old = self.epoch
        moved = tuple(
            BlockGroup(
                table.name,
                np.arange(table.blocks, dtype=np.uint32),
                source=BlockSource.OBJECT,
                object_key="o",
                watermark=dict(self.watermark),
            )
            for table in self.job.tables
        )
        epoch = replace(old, number=old.number + 1, moved=moved, rollback=True, cause="failure", failure=1)
        for shard in self.shards.values():
            shard.pending.clear()
        self._commit(epoch)
        return epoch

    def model(self) -> dict[str, np.ndarray]:
        """The whole model as the shards have it."""
        found = {table.name: np.zeros(table.elements, table.dtype) for table in self.job.tables}
        for shard in self.shards.values():
            if shard.dead:
                continue
            for table, ids in self.epoch.owned_by(shard.member.key).items():
                layout, at = self.job.table(table).layout, ids.astype(np.int64)
                layout.scatter(found[table], at, layout.gather(shard.values[table], at))
        return {name: values.reshape(self.job.table(name).shape) for name, values in found.items()}

    def close(self) -> None:
        for shard in self.shards.values():
            shard.die()
        self.recovery.stop()
