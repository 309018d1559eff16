"""Brings what has changed to the next replica: one thread, one cargo after the other."""

from __future__ import annotations

import logging
from threading import Event

import grpc

from scar import errors
from scar.errors import DeadlineExceeded, Internal, NotServing, OutOfOrder, ScarError
from scar.placement import Member
from scar.transport import Backoff, ShardLink
from scar.v1 import ps_pb2
from scar_ps import shipments
from scar_ps.chain import Cargo
from scar_ps.copies import Copies
from scar_ps.engine import Engine
from scar_ps.replicas import Shipment
from scar_ps.shard import Shard

WAIT_SECONDS = 1.0  # for something to send, before it is looked again
IDLE_SECONDS = 0.2  # between looks whether there is a next replica
STEP_SECONDS = 10.0  # for the apply thread
SHIP_SECONDS = 30.0  # for one shipment; a new epoch ends it
LOOK_SECONDS = 0.05  # between looks at the epoch meanwhile
TELL_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Shipper:
    """``problem``: why the next replica falls behind, in words; empty: it does not."""

    def __init__(self, shard: Shard, copies: Copies, engine: Engine) -> None:
        self._shard, self._copies, self._engine = shard, copies, engine
        self._links: dict[str, ShardLink] = {}
        self.problem = ""

    def run(self, stopped: Event) -> None:
        """Body of the thread."""
        backoff = Backoff(first=0.02, most=1.0)
        while not stopped.is_set():
            if self._shard.chain.next is None:
                stopped.wait(IDLE_SECONDS)
                continue
            try:
                arrived = self._deliver(self._engine.call(self._copies.load, WAIT_SECONDS))
            except DeadlineExceeded:  # nothing to send
                continue
            except NotServing:  # the apply thread has ended
                arrived = False
            if arrived:
                self.problem = ""
                backoff.reset()
            else:
                stopped.wait(backoff.next())
        for link in self._links.values():
            link.close()

    def _deliver(self, cargo: Cargo) -> bool:
        """Send it; what fails is done again with the next cargo."""
        sent = [self._sent(cargo, shipment) for shipment in cargo.shipments]
        if not all(sent):
            return False
        told = [self._told(cargo.epoch, member) for member in cargo.tell]
        self._engine.call(lambda: self._copies.complete(cargo, all(told)), STEP_SECONDS)
        return all(told)

    def _sent(self, cargo: Cargo, shipment: Shipment) -> bool:
        try:
            self._ship(self._link(cargo.target), shipment)
        except ScarError as error:
            gap = isinstance(error, OutOfOrder)
            self.problem = f"{cargo.target.key} lacks copies of {shipment.blocks} blocks: {error.message}"
            _log.info("ship.failed", extra={"reason": self.problem})
            self._engine.call(lambda: self._copies.failed(shipment, gap), STEP_SECONDS)
            return False
        self._engine.call(lambda: self._copies.arrived(cargo, shipment), STEP_SECONDS)
        return True

    def _ship(self, link: ShardLink, shipment: Shipment) -> None:
        """Returns when the target has it. Raises what it answers, :class:`NotServing` when an epoch has come meanwhile."""
        done = Event()
        call = link.channel.stream_unary(
            "/scar.v1.ShardData/Ship", request_serializer=None, response_deserializer=ps_pb2.ShipReply.FromString
        )
        future = call.future(shipments.encoded(shipment), timeout=SHIP_SECONDS)
        future.add_done_callback(lambda _: done.set())
        while not done.wait(LOOK_SECONDS):
            if self._shard.view.epoch != shipment.epoch:  # the target may be dead: nobody waits for its answer
                future.cancel()
                raise NotServing(f"epoch {shipment.epoch} is over")
        try:
            future.result()
        except grpc.RpcError as error:
            raise errors.from_rpc(error, link.target) from error
        except grpc.FutureCancelledError as error:
            raise Internal(f"{link.target}: the shipment was cancelled") from error

    def _told(self, epoch: int, member: Member) -> bool:
        """Copies of our blocks that are not in our chain are of no use any more. False: it is to be told again."""
        link = self._link(member)
        request = ps_pb2.ReleaseRequest(epoch=epoch, owner=self._shard.member.key)
        try:
            link.call(link.control.Release, request, TELL_SECONDS)
        except ScarError as error:
            _log.info("release.failed", extra={"shard": member.key, "reason": error.message})
            return False
        return True

    def _link(self, member: Member) -> ShardLink:
        """A connection; those to shards that left are closed."""
        epoch = self._shard.epoch
        known = {shard.key for shard in epoch.shards} if epoch is not None else set()
        for key in [key for key in self._links if key not in known]:
            self._links.pop(key).close()
        if member.key not in self._links:
            self._links[member.key] = ShardLink(member.address, member.key)
        return self._links[member.key]
