"""Calls to members: the only place where the recovery coordinator speaks to others. Every call has a deadline."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scar import codec
from scar.errors import ScarError
from scar.placement import Member, Role
from scar.transport import ShardLink
from scar.v1 import (
    member_pb2,
    member_pb2_grpc,
    ps_pb2,
    types_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from scar_recovery.plans import Blocks, Copy
from scar_runtime.addresses import is_ours, parted

ADOPT_SECONDS = 5.0
STATUS_SECONDS = 1.0
CONFIRM_SECONDS = 0.3  # a suspect has had its whole lease to answer others
FREEZE_SECONDS = 5.0
RECEIVE_SECONDS = 30.0
CLAIM_SECONDS = 2.0
CONNECT_SECONDS = 0.3


@dataclass(frozen=True)
class ShardState:
    """``loading``: blocks that are not served yet; ``serving``: its lease is young."""

    epoch: int
    loading: int
    clock: int
    serving: bool


class Shards(Protocol):
    """What the coordinator asks of members. All but :meth:`alive`, :meth:`refuses`, :meth:`gone` raise :class:`ScarError`."""

    def adopt(self, member: Member, epoch: types_pb2.Epoch) -> tuple[int, int]:
        """(newest epoch that the shard knows, blocks that it is still loading)."""
        ...

    def state(self, member: Member) -> ShardState: ...

    def freeze(self, member: Member, epoch: int, blocks: Blocks) -> tuple[int, Mapping[str, int]]:
        """(open clock, watermark) of the blocks, which do not change any more before a newer epoch."""
        ...

    def receive(self, target: Member, epoch: int, donor: Member, blocks: Blocks) -> None: ...

    def claim(self, member: Member, epoch: int, dead: Sequence[str], blocks: Blocks) -> list[Copy]:
        """Copies that it keeps of blocks of dead owners; it takes no newer ones from them in this epoch."""
        ...

    def alive(self, member: Member) -> bool:
        """Does this very incarnation still work?"""
        ...

    def refuses(self, member: Member) -> bool:
        """True when nobody listens at the member's address any more, or something on the way rejects us."""
        ...

    def gone(self, member: Member) -> bool:
        """True when it is certain that nobody listens there: its address is one of this machine's."""
        ...

    def forget(self, member: Member) -> None: ...


class RemoteShards:
    """:class:`Shards` over gRPC. ``job``: sent along, so that a new shard knows its tables; set it before the first epoch."""

    def __init__(self) -> None:
        self.job = types_pb2.JobSpec()
        self._links: dict[str, ShardLink] = {}
        self._lock = threading.Lock()

    def adopt(self, member: Member, epoch: types_pb2.Epoch) -> tuple[int, int]:
        link = self._link(member)
        reply = link.call(link.control.Adopt, ps_pb2.AdoptRequest(epoch=epoch, job=self.job), ADOPT_SECONDS)
        return reply.epoch, reply.loading

    def state(self, member: Member, timeout: float = STATUS_SECONDS) -> ShardState:
        status = self._status(member, timeout)
        if status.member.incarnation != member.incarnation:
            raise ScarError(f"{member.key} is gone: {status.member.incarnation} answers at its address")
        loading = sum(table.loading for table in status.tables)
        return ShardState(status.epoch, loading, status.clock, status.serving)

    def _status(self, member: Member, timeout: float) -> ps_pb2.ShardStatus:
        link = self._link(member)
        reply: ps_pb2.ShardStatus = link.call(link.control.Status, ps_pb2.ShardStatusRequest(since_clock=1 << 62), timeout)
        return reply

    def freeze(self, member: Member, epoch: int, blocks: Blocks) -> tuple[int, Mapping[str, int]]:
        link = self._link(member)
        reply = link.call(link.control.Freeze, ps_pb2.FreezeRequest(epoch=epoch, tables=_tables(blocks)), FREEZE_SECONDS)
        return reply.clock, dict(reply.watermark)

    def receive(self, target: Member, epoch: int, donor: Member, blocks: Blocks) -> None:
        link = self._link(target)
        request = ps_pb2.ReceiveRequest(epoch=epoch, donor=codec.member_to_proto(donor), tables=_tables(blocks), job=self.job)
        link.call(link.control.Receive, request, RECEIVE_SECONDS)

    def claim(self, member: Member, epoch: int, dead: Sequence[str], blocks: Blocks) -> list[Copy]:
        link = self._link(member)
        request = ps_pb2.ClaimRequest(epoch=epoch, dead=dead, tables=_tables(blocks))
        reply = link.call(link.control.Claim, request, CLAIM_SECONDS)
        return [
            Copy(member, one.table, codec.ids_from_bytes(one.block_ids), one.clock, dict(one.watermark)) for one in reply.kept
        ]

    def alive(self, member: Member) -> bool:
        """A shard whose lease has run out does not work, though it may answer; it gets the lease back only from us."""
        if member.role != Role.SHARD:
            return self.answers(member)
        try:
            return self.state(member, CONFIRM_SECONDS).serving
        except ScarError:
            return False

    def answers(self, member: Member) -> bool:
        """Does this very incarnation answer?"""
        link = self._link(member)
        probe = member_pb2_grpc.MemberServiceStub(link.channel).Probe
        try:
            reply = link.call(probe, member_pb2.ProbeRequest(incarnation=member.incarnation), CONFIRM_SECONDS)
        except ScarError:
            return False
        return bool(reply.member.incarnation == member.incarnation)

    def wants_in(self, member: Member) -> bool:
        """Is it alive and without a place? A worker that has finished, or waits for another job, may stay up and wants none."""
        if member.role != Role.WORKER:
            return self.answers(member)
        try:
            status = self._worker(member)
        except ScarError:
            return False
        mine = status.member.incarnation == member.incarnation and status.job == self.job.name
        return mine and status.state in ("waiting", "training")

    def incarnation(self, member: Member) -> str:
        """Who answers at the address of a shard or worker; empty: nobody does."""
        try:
            if member.role == Role.WORKER:
                return str(self._worker(member).member.incarnation)
            return str(self._status(member, CONFIRM_SECONDS).member.incarnation)
        except ScarError:
            return ""

    def _worker(self, member: Member) -> worker_pb2.WorkerStatus:
        link = self._link(member)
        ask = worker_pb2_grpc.WorkerStub(link.channel).Status
        reply: worker_pb2.WorkerStatus = link.call(ask, worker_pb2.WorkerStatusRequest(), CONFIRM_SECONDS)
        return reply

    def refuses(self, member: Member) -> bool:
        host, port = parted(member.address)
        if not host:
            return False
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
        return False

    def gone(self, member: Member) -> bool:
        return self.refuses(member) and is_ours(parted(member.address)[0])

    def forget(self, member: Member) -> None:
        with self._lock:
            link = self._links.pop(member.key, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        with self._lock:
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()

    def _link(self, member: Member) -> ShardLink:
        with self._lock:
            if member.key not in self._links:
                self._links[member.key] = ShardLink(member.address, member.key)
            return self._links[member.key]


def _tables(blocks: Blocks) -> list[ps_pb2.TableBlocks]:
    return [ps_pb2.TableBlocks(table=table, block_ids=codec.ids_to_bytes(ids)) for table, ids in blocks.items()]
