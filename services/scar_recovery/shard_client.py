"""Calls to members: the only place where the recovery coordinator speaks to others. Every call has a
deadline.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

import numpy as np

from scar.blocks import BlockState, Ids
from scar.errors import InvalidRequest, ScarError
from scar.losses import LossPoint
from scar.placement import Member, Role
from scar.v1 import (
    member_pb2,
    member_pb2_grpc,
    ps_pb2,
    types_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from scar.wire import codec
from scar.wire.link_pool import ShardLinks
from scar.wire.loss_messages import point_from_proto
from scar_recovery.core.block_sources import ReplicaCopy
from scar_recovery.core.epoch_intent import BlocksByTable, FreezeAnswer
from scar_recovery.core.hot_blocks import BlockRates, ShardTraffic
from scar_recovery.unaddressed_members import UnaddressedMembers
from scar_runtime.process.addresses import is_ours, split_address
from scar_runtime.store.records import message_digest

ADOPT_SECONDS = 5.0
STATUS_SECONDS = 1.0
CONFIRM_SECONDS = 0.3  # a suspect has had its whole lease to answer others
FREEZE_SECONDS = 5.0
RECEIVE_SECONDS = 30.0
CLAIM_SECONDS = 2.0
CONNECT_SECONDS = 0.3
SHORTEST_SECONDS = 0.1  # of which traffic is taken to be


@dataclass(frozen=True)
class UnreadableBlocks:
    """Blocks of which the object that a manifest names has no whole copy any more, as a shard found."""

    table: str
    ids: Ids
    manifest: int
    object_key: str
    reason: str


@dataclass(frozen=True)
class ShardState:
    """``loading``: blocks that are not served yet; ``serving``: its lease is young; ``unreadable``: that
    it cannot load; ``adopted``: the newest epochs, and the open clock when each was adopted.
    """

    epoch: int
    loading: int
    clock: int
    serving: bool
    unreadable: tuple[UnreadableBlocks, ...] = ()
    adopted: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardProgress:
    """``clock``: that is open; ``blocks``: that it owns; ``losses``: by clock; ``metrics``: and by name."""

    clock: int
    blocks: int
    losses: Mapping[int, float]
    metrics: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


class ShardClient(Protocol):
    """What the coordinator asks of members.

    All raise :class:`ScarError`, but :meth:`is_serving`, :meth:`is_watched`, :meth:`refuses_connection`,
    :meth:`is_gone`.
    """

    def send_epoch(self, member: Member, epoch: types_pb2.Epoch) -> tuple[int, int]:
        """(newest epoch that the shard knows, blocks that it is still loading)."""
        ...

    def read_state(self, member: Member) -> ShardState: ...

    def freeze_blocks(self, member: Member, epoch: int, blocks: BlocksByTable) -> FreezeAnswer:
        """What the blocks contain, which do not change any more before a newer epoch."""
        ...

    def copy_blocks(self, target: Member, epoch: int, donor: Member, blocks: BlocksByTable) -> None: ...

    def read_traffic(self, member: Member, epoch: int, busiest: int) -> ShardTraffic | None:
        """With the rates of so many of its busiest and of its quietest blocks. None: it is in another epoch,
        or of a version that counts nothing.
        """
        ...

    def claim_replicas(
        self, member: Member, epoch: int, dead: Sequence[str], blocks: BlocksByTable
    ) -> list[ReplicaCopy]:
        """Copies that it keeps of blocks of dead owners; it takes no newer ones from them in this epoch."""
        ...

    def is_serving(self, member: Member) -> bool:
        """Does this very incarnation still work?"""
        ...

    def is_watched(self, member: Member) -> bool:
        """Whether its silence means anything. Takes no time."""
        ...

    def refuses_connection(self, member: Member) -> bool:
        """True when nobody listens at the member's address any more, or something on the way rejects us."""
        ...

    def is_gone(self, member: Member) -> bool:
        """True when it is certain that nobody listens there: its address is one of this machine's."""
        ...

    def close_link(self, member: Member) -> None: ...


class GrpcShardClient:
    """:class:`ShardClient` over gRPC. ``job``: of which shards are told; set it before the first epoch.
    ``unaddressed``: knows of members that have no address.
    """

    def __init__(self, unaddressed: UnaddressedMembers) -> None:
        self._unaddressed = unaddressed
        self.job = types_pb2.JobSpec()
        self.links = ShardLinks()

    def send_epoch(self, member: Member, epoch: types_pb2.Epoch) -> tuple[int, int]:
        link = self.links.connect(member)
        request = ps_pb2.AdoptRequest(epoch=epoch.number, digest=message_digest(epoch), job=self.job.name)
        reply = link.call(link.control.Adopt, request, ADOPT_SECONDS)
        return reply.epoch, reply.loading

    def read_losses(self, member: Member) -> dict[int, LossPoint]:
        """Losses that a shard knows, by clock."""
        with self.links.borrow(member) as link:
            reply = link.call(link.control.Status, ps_pb2.ShardStatusRequest(), STATUS_SECONDS)
        return {int(one.clock): point_from_proto(one) for one in reply.losses}

    def read_progress(self, member: Member, since: int) -> ShardProgress:
        """How far a shard is, with losses from clock ``since`` on."""
        request = ps_pb2.ShardStatusRequest(since_clock=since)
        with self.links.borrow(member) as link:
            reply = link.call(link.control.Status, request, STATUS_SECONDS)
        blocks = sum(table.blocks for table in reply.tables)
        points = [point_from_proto(one) for one in reply.losses]
        metrics = {one.clock: dict(one.metrics) for one in points if one.metrics}
        return ShardProgress(reply.clock, blocks, {one.clock: one.loss for one in points}, metrics)

    def read_state(self, member: Member, timeout: float = STATUS_SECONDS) -> ShardState:
        status = self._shard_status(member, timeout)
        if status.member.incarnation != member.incarnation:
            raise ScarError(f"{member.key} is gone: {status.member.incarnation} answers at its address")
        loading = sum(table.loading for table in status.tables)
        unreadable = tuple(
            UnreadableBlocks(
                one.table, codec.ids_from_bytes(one.block_ids), one.manifest, one.object_key, one.reason
            )
            for one in status.unreadable
        )
        adopted = dict(status.adopted) or {status.epoch: status.clock}  # older versions do not say
        return ShardState(status.epoch, loading, status.clock, status.serving, unreadable, adopted)

    def _shard_status(self, member: Member, timeout: float) -> ps_pb2.ShardStatus:
        with self.links.borrow(member) as link:
            reply: ps_pb2.ShardStatus = link.call(
                link.control.Status, ps_pb2.ShardStatusRequest(since_clock=1 << 62), timeout
            )
        return reply

    def freeze_blocks(self, member: Member, epoch: int, blocks: BlocksByTable) -> FreezeAnswer:
        link = self.links.connect(member)
        reply = link.call(
            link.control.Freeze,
            ps_pb2.FreezeRequest(epoch=epoch, tables=_tables_to_proto(blocks)),
            FREEZE_SECONDS,
        )
        ahead = tuple(map(kept_from_proto, reply.ahead))
        return FreezeAnswer(reply.clock, dict(reply.watermark), ahead)

    def copy_blocks(self, target: Member, epoch: int, donor: Member, blocks: BlocksByTable) -> None:
        link = self.links.connect(target)
        request = ps_pb2.ReceiveRequest(
            epoch=epoch,
            donor=codec.member_to_proto(donor),
            tables=_tables_to_proto(blocks),
            job=self.job.name,
        )
        link.call(link.control.Receive, request, RECEIVE_SECONDS)

    def read_traffic(self, member: Member, epoch: int, busiest: int) -> ShardTraffic | None:
        request = ps_pb2.ShardStatusRequest(since_clock=1 << 62, busiest=busiest)
        with self.links.borrow(member) as link:
            reply = link.call(link.control.Status, request, STATUS_SECONDS)
        known = reply.HasField("traffic") and reply.epoch == epoch
        return traffic_from_proto(member.key, reply.traffic) if known else None

    def claim_replicas(
        self, member: Member, epoch: int, dead: Sequence[str], blocks: BlocksByTable
    ) -> list[ReplicaCopy]:
        link = self.links.connect(member)
        request = ps_pb2.ClaimRequest(epoch=epoch, dead=dead, tables=_tables_to_proto(blocks))
        reply = link.call(link.control.Claim, request, CLAIM_SECONDS)
        return [ReplicaCopy(member, kept_from_proto(one)) for one in reply.kept]

    def is_serving(self, member: Member) -> bool:
        """A shard whose lease has run out does not work, though it may answer; it gets the lease back only
        from us.
        """
        if member.role != Role.SHARD:
            return self.answers_probe(member)
        try:
            return self.read_state(member, CONFIRM_SECONDS).serving
        except ScarError:
            return False

    def answers_probe(self, member: Member) -> bool:
        """Does this very incarnation answer? One without an address cannot, and gives other signs."""
        if not member.address:
            return self._unaddressed.is_alive(member.key)
        return self._probe(member) is not None

    def is_watched(self, member: Member) -> bool:
        return bool(member.address) or self._unaddressed.may_be_missed(member.key)

    def _probe(self, member: Member) -> member_pb2.ProbeReply | None:
        request = member_pb2.ProbeRequest(incarnation=member.incarnation)
        try:
            with self.links.borrow(member) as link:
                probe = member_pb2_grpc.MemberServiceStub(link.channel).Probe
                reply: member_pb2.ProbeReply = link.call(probe, request, CONFIRM_SECONDS)
        except ScarError:
            return None
        return reply if reply.member.incarnation == member.incarnation else None

    def candidate_protocol(self, member: Member) -> int | None:
        """What it speaks, if it is alive and without a place; else None. A worker that has finished, or waits
        for another job, may stay up and wants none.
        """
        if member.role != Role.WORKER:
            reply = self._probe(member)
            return None if reply is None else reply.protocol
        try:
            status = self._worker_status(member)
        except ScarError:
            return None
        mine = status.member.incarnation == member.incarnation and status.job == self.job.name
        return status.protocol if mine and status.state in ("waiting", "training") else None

    def read_incarnation(self, member: Member) -> str:
        """Who answers at the address of a shard or worker; empty: nobody does."""
        try:
            if member.role == Role.WORKER:
                return str(self._worker_status(member).member.incarnation)
            return str(self._shard_status(member, CONFIRM_SECONDS).member.incarnation)
        except ScarError:
            return ""

    def _worker_status(self, member: Member) -> worker_pb2.WorkerStatus:
        with self.links.borrow(member) as link:
            ask = worker_pb2_grpc.WorkerStub(link.channel).Status
            reply: worker_pb2.WorkerStatus = link.call(ask, worker_pb2.WorkerStatusRequest(), CONFIRM_SECONDS)
        return reply

    def refuses_connection(self, member: Member) -> bool:
        host, port = split_address(member.address)
        if not host:
            return False
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
        return False

    def is_gone(self, member: Member) -> bool:
        return self.refuses_connection(member) and is_ours(split_address(member.address)[0])

    def close_link(self, member: Member) -> None:
        self.links.drop(member.key)

    def close(self) -> None:
        self.links.close()


def _tables_to_proto(blocks: BlocksByTable) -> list[ps_pb2.TableBlocks]:
    return [
        ps_pb2.TableBlocks(table=table, block_ids=codec.ids_to_bytes(ids)) for table, ids in blocks.items()
    ]


def kept_from_proto(one: ps_pb2.Kept) -> BlockState:
    return BlockState(one.table, codec.ids_from_bytes(one.block_ids), one.clock, dict(one.watermark))


def traffic_from_proto(shard: str, traffic: ps_pb2.Traffic) -> ShardTraffic:
    """Raises :class:`InvalidRequest` for amounts that cannot be."""
    if not 0 <= traffic.seconds < inf:
        raise InvalidRequest(f"traffic of {traffic.seconds} seconds")
    seconds = max(traffic.seconds, SHORTEST_SECONDS)
    blocks: dict[str, BlockRates] = {}
    for one in traffic.blocks:
        ids = codec.ids_from_bytes(one.block_ids)
        if len(one.traffic) != 8 * len(ids):
            raise InvalidRequest(f"traffic of {len(ids)} blocks has {len(one.traffic)} bytes")
        amounts = np.frombuffer(one.traffic, "<f8")
        if not (np.isfinite(amounts) & (amounts >= 0)).all():
            raise InvalidRequest("traffic of a block is below 0, or no number")
        blocks[one.table] = BlockRates(ids, amounts / seconds)
    return ShardTraffic(shard, traffic.bytes / seconds, blocks)
