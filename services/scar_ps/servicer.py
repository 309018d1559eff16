"""The shard on the wire: decode, one call, encode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import grpc
import numpy as np

from scar import codec
from scar.codec import Chunk
from scar.errors import Fenced, InvalidRequest, NotServing, StaleEpoch
from scar.shared import Offer
from scar.tables import Job
from scar.v1 import ps_pb2, ps_pb2_grpc, types_pb2
from scar_ps import metrics, moves, shipments, tensors
from scar_ps.barrier import Sender
from scar_ps.blockstore import BlockStore, Part
from scar_ps.borrowed import Borrowed
from scar_ps.copies import Copies
from scar_ps.engine import Engine, remaining, timed
from scar_ps.epochs import Epochs
from scar_ps.loader import Loader
from scar_ps.requests import Push, Wanted
from scar_ps.saver import Saver
from scar_ps.shard import Shard
from scar_ps.shipper import Shipper
from scar_ps.staging import Staging

DATA_SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ShardData"].full_name
CONTROL_SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ShardControl"].full_name
MOST_SECONDS = 600.0  # for callers without a deadline


class DataServicer:
    """Push, Pull, Fetch and Ship: tensor streams that never become protobuf objects."""

    def __init__(self, shard: Shard, engine: Engine, staging: Staging, copies: Copies, borrowed: Borrowed) -> None:
        self._shard, self._engine, self._staging, self._copies = shard, engine, staging, copies
        self._borrowed = borrowed

    def register(self, server: grpc.Server) -> None:
        handlers = {
            "Push": grpc.stream_unary_rpc_method_handler(self.push, codec.decode_chunk, ps_pb2.PushReply.SerializeToString),
            "Pull": grpc.unary_stream_rpc_method_handler(self.pull, ps_pb2.PullRequest.FromString),
            "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch, ps_pb2.FetchRequest.FromString, codec.encode_chunk),
            "Ship": grpc.stream_unary_rpc_method_handler(self.ship, codec.decode_chunk, ps_pb2.ShipReply.SerializeToString),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(DATA_SERVICE, handlers),))

    def push(self, chunks: Iterable[Chunk], context: grpc.ServicerContext) -> ps_pb2.PushReply:
        with counted_refusals(), self._staging.open(self._shard.view) as stage:
            for chunk in self._borrowed.read(chunks):
                stage.take(chunk)
            push = stage.push()
            work = timed(lambda: self._apply(push), metrics.APPLY_SECONDS.observe)
            reply, updates = self._engine.serve(work, _left(context))
            if self._shard.delays:
                self._engine.serve(lambda: self._shard.await_copy(updates), _left(context), changes=False)
        (metrics.DUPLICATES if reply.duplicate else metrics.PUSHES).inc()
        return reply

    def _apply(self, push: Push) -> tuple[ps_pb2.PushReply, int]:
        """The answer, and the update that it may have to wait for."""
        duplicate = self._shard.push(push)
        reply = ps_pb2.PushReply(epoch=self._shard.number, clock=self._shard.told, duplicate=duplicate, joins=self._shard.clock)
        return reply, self._shard.chain.updates

    def pull(self, request: ps_pb2.PullRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Chunks that are encoded already: each is copied out under its table's lock."""
        sender = Sender(request.worker, request.incarnation)
        wanted = _wanted(request.tables)
        room = tensors.Room(request.shared, self._borrowed.room(request.shared)) if request.shared else None
        with counted_refusals():
            parts, header = self._engine.serve(lambda: self._find(request, sender, wanted), _left(context), changes=False)
        for part in parts:
            yield from tensors.encoded(header, part.store, part.positions, room)
        self._engine.check_lease()

    def _find(self, request: ps_pb2.PullRequest, sender: Sender, wanted: Wanted) -> tuple[list[Part], ps_pb2.TensorHeader]:
        parts = self._shard.pull(sender, request.epoch, request.min_clock, wanted)
        loss, loss_clock = self._shard.barrier.last_loss
        header = ps_pb2.TensorHeader(epoch=self._shard.number, clock=self._shard.told, loss=loss, loss_clock=loss_clock)
        return parts, header

    def fetch(self, request: ps_pb2.FetchRequest, context: grpc.ServicerContext) -> Iterator[Chunk]:
        shard, wanted = self._shard, _wanted(request.tables)

        def work() -> moves.Offer:
            parts = shard.frozen(request.epoch, wanted)
            pushes = [shard.contributions.of(part) for part in parts]
            return moves.Offer(parts, pushes, list(shard.rounds.pending))

        yield from moves.offered(self._engine.serve(work, _left(context), changes=False), request.epoch)

    def ship(self, chunks: Iterable[Chunk], context: grpc.ServicerContext) -> ps_pb2.ShipReply:
        if self._shard.job is None:
            raise NotServing("this shard has no job yet")
        shipment = shipments.received(chunks, self._shard.job)
        self._engine.call(lambda: self._copies.receive(shipment), _left(context))
        return ps_pb2.ShipReply()


class ControlServicer(ps_pb2_grpc.ShardControlServicer):
    """Clocks, epochs, moves and rounds."""

    def __init__(
        self,
        shard: Shard,
        engine: Engine,
        epochs: Epochs,
        loader: Loader,
        saver: Saver,
        copies: Copies,
        shipper: Shipper,
        borrowed: Borrowed,
    ) -> None:
        self._shard, self._engine = shard, engine
        self._epochs, self._loader, self._saver = epochs, loader, saver
        self._copies, self._shipper, self._borrowed = copies, shipper, borrowed

    def Share(self, request: ps_pb2.ShareRequest, _: grpc.ServicerContext) -> ps_pb2.ShareReply:
        offer = Offer(request.pid, request.number, request.bytes, request.key)
        return ps_pb2.ShareReply(found=self._borrowed.take(offer))

    def Clock(self, request: ps_pb2.ClockRequest, context: grpc.ServicerContext) -> ps_pb2.ClockReply:
        shard, sender = self._shard, Sender(request.worker, request.incarnation)
        loss = request.loss if request.has_loss else None

        def work() -> ps_pb2.ClockReply:
            shard.mark(sender, request.epoch, request.finished, loss)
            return ps_pb2.ClockReply(epoch=shard.number, clock=shard.told, finished=shard.barrier.finished(sender.name))

        with counted_refusals():
            return self._engine.serve(timed(work, metrics.APPLY_SECONDS.observe), _left(context))

    def Settle(self, request: ps_pb2.SettleRequest, context: grpc.ServicerContext) -> ps_pb2.SettleReply:
        shard, sender = self._shard, Sender(request.worker, request.incarnation)

        def work() -> ps_pb2.SettleReply:
            shard.settle(sender, request.epoch)
            return ps_pb2.SettleReply(clock=shard.told, finished=shard.barrier.finished(sender.name))

        with counted_refusals():
            return self._engine.serve(work, _left(context))

    def Adopt(self, request: ps_pb2.AdoptRequest, context: grpc.ServicerContext) -> ps_pb2.AdoptReply:
        epoch = codec.epoch_from_proto(request.epoch)
        return self._epochs.adopt(epoch, self._job(request.job), _left(context))

    def Freeze(self, request: ps_pb2.FreezeRequest, context: grpc.ServicerContext) -> ps_pb2.FreezeReply:
        shard, wanted = self._shard, _wanted(request.tables)
        return self._engine.call(
            lambda: ps_pb2.FreezeReply(watermark=shard.freeze(request.epoch, wanted), clock=shard.clock), _left(context)
        )

    def Receive(self, request: ps_pb2.ReceiveRequest, context: grpc.ServicerContext) -> ps_pb2.ReceiveReply:
        donor, fetch = codec.member_from_proto(request.donor), ps_pb2.FetchRequest(epoch=request.epoch, tables=request.tables)
        asides = moves.fetch(donor, fetch, self._job(request.job), _left(context))
        self._engine.call(lambda: self._shard.put_aside(asides), _left(context))
        return ps_pb2.ReceiveReply(bytes=sum(aside.contents.bytes for aside in asides))

    def Claim(self, request: ps_pb2.ClaimRequest, context: grpc.ServicerContext) -> ps_pb2.ClaimReply:
        wanted = [(one.table, codec.ids_from_bytes(one.block_ids)) for one in request.tables]
        found = self._engine.call(lambda: self._copies.claim(request.epoch, request.dead, wanted), _left(context))
        kept = [
            ps_pb2.Kept(table=k.table, block_ids=codec.ids_to_bytes(k.ids), clock=k.clock, watermark=dict(k.watermark))
            for k in found
        ]
        return ps_pb2.ClaimReply(kept=kept)

    def Release(self, request: ps_pb2.ReleaseRequest, context: grpc.ServicerContext) -> ps_pb2.ReleaseReply:
        self._engine.call(lambda: self._copies.release(request.epoch, request.owner), _left(context))
        return ps_pb2.ReleaseReply()

    def Distances(self, request: ps_pb2.DistancesRequest, context: grpc.ServicerContext) -> ps_pb2.DistancesReply:
        return self._saver.measure(request, _left(context))

    def Save(self, request: ps_pb2.SaveRequest, context: grpc.ServicerContext) -> ps_pb2.SaveReply:
        return self._saver.save(request, _left(context))

    def Finish(self, request: ps_pb2.FinishRequest, context: grpc.ServicerContext) -> ps_pb2.FinishReply:
        self._saver.finish(request.round, request.committed, _left(context))
        return ps_pb2.FinishReply()

    def Status(self, request: ps_pb2.ShardStatusRequest, context: grpc.ServicerContext) -> ps_pb2.ShardStatus:
        return self._engine.call(lambda: self._status(request.since_clock), _left(context), changes=False)

    def _status(self, since: int) -> ps_pb2.ShardStatus:
        shard, counts = self._shard, self._shard.counts
        return ps_pb2.ShardStatus(
            member=codec.member_to_proto(shard.member),
            epoch=shard.number,
            clock=shard.clock,
            tables=[_table(store) for store in shard.holdings.tables.values()],
            losses=[ps_pb2.LossPoint(clock=clock, loss=loss) for clock, loss in shard.barrier.losses.items() if clock >= since],
            pushes=counts.pushes,
            duplicates=counts.duplicates,
            stale=counts.stale,
            round=shard.rounds.number,
            saved_clock=shard.rounds.saved_clock,
            saved_age=self._saver.age,
            serving=self._engine.leased,
            problem=self._loader.problem or shard.dismissed or self._shipper.problem or self._engine.waiting_for(),
            finished=shard.barrier.marks(),
            replicas=self._copies.kept,
        )

    def _job(self, message: types_pb2.JobSpec) -> Job:
        if not message.name and self._shard.job is None:
            raise InvalidRequest("a shard that has just started needs the job")
        return codec.job_from_proto(message) if self._shard.job is None else self._shard.job


def _wanted(tables: Iterable[ps_pb2.TableBlocks]) -> Wanted:
    """Raises :class:`BlockOutOfRange` or :class:`InvalidRequest` for ids that cannot be."""
    return [(one.table, None if one.dense else codec.ids_from_bytes(one.block_ids)) for one in tables]


def _table(store: BlockStore) -> ps_pb2.TableStatus:
    return ps_pb2.TableStatus(
        table=store.table.name,
        blocks=len(store),
        loading=int(np.count_nonzero(store.loading)),
        unsettled=int(np.count_nonzero(store.unsettled)),
        bytes=store.bytes,
    )


def _left(context: grpc.ServicerContext) -> float:
    return remaining(MOST_SECONDS, context.time_remaining())


@contextmanager
def counted_refusals() -> Iterator[None]:
    """Count what was refused because its sender is behind or out."""
    try:
        yield
    except (StaleEpoch, Fenced):
        metrics.STALE.inc()
        raise
