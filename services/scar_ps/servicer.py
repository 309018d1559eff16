"""The shard on the wire: decode, one call, encode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import grpc

from scar.errors import Fenced, InvalidRequest, NotServing, StaleEpoch
from scar.tables import MAX_ROWS
from scar.v1 import ps_pb2, ps_pb2_grpc
from scar.v1.direct_pb2 import DirectReply, DirectRequest
from scar.wire import codec, loss_messages, tracing
from scar.wire.codec import Chunk, WireParts
from scar.wire.row_names import images_from_bytes
from scar.wire.shared_memory import SegmentOffer
from scar.wire.small_message import decode_small, encode_small
from scar_ps import metrics
from scar_ps.apply_thread import ApplyThread, remaining
from scar_ps.core.clocks import ClockState
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import (
    AcknowledgementDue,
    ClockFinished,
    PullRequested,
    PushReceived,
    StatusRequested,
    WorkerSettled,
)
from scar_ps.core.migrations import FrozenBlocks, FrozenState
from scar_ps.core.pushes import PulledBlocks, PushApplied
from scar_ps.core.requests import PulledParts, Sender, WantedBlocks, WantedRows
from scar_ps.core.transfer_events import (
    BatchReceived,
    BlocksReceived,
    FreezeRequested,
    FrozenRequested,
    ReplicasClaimed,
    ReplicasReleased,
)
from scar_ps.epoch_sync import EpochSync
from scar_ps.round_runner import RoundRunner
from scar_ps.wire import copy_stream, migration, pull_encoder, replication_stream, status_encoder
from scar_ps.wire.push_decoder import PushStaging
from scar_ps.wire.shared_memory_pool import SharedMemoryPool
from scar_ps.wire.shown_parts import slot_tables
from scar_runtime.process.addresses import is_local_peer

DATA_SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ShardData"].full_name
CONTROL_SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ShardControl"].full_name
MAX_SECONDS = 600.0  # for callers without a deadline
MOST_BUSIEST = 4096  # blocks whose traffic one question is about, and as many of the quietest


class DataServicer:
    """Push, Pull, Fetch, Ship and Restore: tensors, in streams or one message, that never become protobuf
    objects.
    """

    def __init__(
        self, state: CoreState, apply_thread: ApplyThread, staging: PushStaging, shared: SharedMemoryPool
    ) -> None:
        self._state = state
        self._apply_thread = apply_thread
        self._staging = staging
        self._shared = shared

    def register(self, server: grpc.Server) -> None:
        handlers = {
            "Push": grpc.stream_unary_rpc_method_handler(
                self.push, codec.decode_chunk, ps_pb2.PushReply.SerializeToString
            ),
            "PushSmall": grpc.unary_unary_rpc_method_handler(
                self.push, decode_small, ps_pb2.PushReply.SerializeToString
            ),
            "PullSmall": grpc.unary_unary_rpc_method_handler(self.pull_small, ps_pb2.PullRequest.FromString),
            "Pull": grpc.unary_stream_rpc_method_handler(self.pull, ps_pb2.PullRequest.FromString, b"".join),
            "Fetch": grpc.unary_stream_rpc_method_handler(
                self.fetch, ps_pb2.FetchRequest.FromString, codec.encode_chunk
            ),
            "Ship": grpc.stream_unary_rpc_method_handler(
                self.ship, codec.decode_chunk, ps_pb2.ShipReply.SerializeToString
            ),
            "Restore": grpc.stream_unary_rpc_method_handler(
                self.restore, codec.decode_chunk, ps_pb2.RestoreReply.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(DATA_SERVICE, handlers),))

    def push(self, chunks: Iterable[Chunk], context: grpc.ServicerContext) -> ps_pb2.PushReply:
        with count_refusals(), self._staging.open_push(self._state.view) as decoder:
            for chunk in self._shared.read_chunks(chunks, copied=self._state.is_bsp):
                decoder.read_chunk(chunk)
            received = PushReceived(decoder.finish())
            applied: PushApplied = self._apply_thread.serve(
                received, _seconds_left(context), metrics.APPLY_SECONDS.observe
            )
            if applied.delayed:
                self._apply_thread.serve(AcknowledgementDue(applied.update), _seconds_left(context))
        (metrics.DUPLICATES if applied.duplicate else metrics.PUSHES).inc()
        return ps_pb2.PushReply(
            epoch=applied.epoch,
            clock=applied.clock,
            duplicate=applied.duplicate,
            joins=applied.joins,
            owed=applied.owed,
        )

    def pull(self, request: ps_pb2.PullRequest, context: grpc.ServicerContext) -> Iterator[WireParts]:
        """Chunks that are encoded already: each is copied out under its table's lock."""
        segment = self._find_segment(request)
        slots = slot_tables(request)
        found, waited = self._find_pulled(request, context)
        short = _short_tables(request)
        yield from pull_encoder.encode_pulled(found, segment, waited, short, slots, request.whole)
        self._apply_thread.check_lease()

    def pull_small(self, request: ps_pb2.PullRequest, context: grpc.ServicerContext) -> bytes:
        """The same chunks as one message. Raises :class:`TooLarge` when they are too many for it."""
        segment = self._find_segment(request)
        slots = slot_tables(request)
        found, waited = self._find_pulled(request, context)
        short = _short_tables(request)
        pull_encoder.require_small(found, short, segment, slots)
        chunks = pull_encoder.encode_pulled(found, segment, waited, short, slots)
        message = encode_small(map(b"".join, chunks))
        self._apply_thread.check_lease()
        return message

    def _find_segment(self, request: ps_pb2.PullRequest) -> pull_encoder.SegmentWriter | None:
        """Where the caller wants the values; None: in messages."""
        if not request.shared:
            return None
        return pull_encoder.SegmentWriter(request.shared, self._shared.find_segment(request.shared))

    def _find_pulled(
        self, request: ps_pb2.PullRequest, context: grpc.ServicerContext
    ) -> tuple[PulledBlocks, float]:
        """With the seconds until it could be served."""
        asked = time.monotonic()
        sender = Sender(request.worker, request.incarnation)
        wanted = _decode_pulled(request.tables)
        event = PullRequested(
            sender,
            request.epoch,
            request.min_clock,
            wanted,
            request.loss_clock,
            request.contents,
            request.unsettled,
            request.exact_clock - 1,
            request.clock,
        )
        with count_refusals():
            found: PulledBlocks = self._apply_thread.serve(event, _seconds_left(context))
        return found, time.monotonic() - asked

    def fetch(self, request: ps_pb2.FetchRequest, context: grpc.ServicerContext) -> Iterator[Chunk]:
        event = FrozenRequested(request.epoch, _decode_wanted(request.tables))
        frozen: FrozenBlocks = self._apply_thread.serve(event, _seconds_left(context))
        yield from migration.encode_frozen(frozen, request.epoch)

    def ship(self, chunks: Iterable[Chunk], context: grpc.ServicerContext) -> ps_pb2.ShipReply:
        if self._state.job is None:
            raise NotServing("this shard has no job yet")
        batch = replication_stream.decode_batch(chunks, self._state.job)
        self._apply_thread.call(BatchReceived(batch), _seconds_left(context))
        return ps_pb2.ShipReply()

    def restore(self, chunks: Iterable[Chunk], context: grpc.ServicerContext) -> ps_pb2.RestoreReply:
        received = copy_stream.decode_copy(chunks, self._state.view)
        with count_refusals():
            flaw = self._apply_thread.serve(received, _seconds_left(context))
        if flaw:
            raise InvalidRequest(f"blocks of table {received.table} cannot be used: {flaw}")
        return ps_pb2.RestoreReply()


class ControlServicer(ps_pb2_grpc.ShardControlServicer):
    """Clocks, epochs, migration and rounds."""

    def __init__(
        self,
        state: CoreState,
        apply_thread: ApplyThread,
        epochs: EpochSync,
        rounds: RoundRunner,
        shared: SharedMemoryPool,
        offer_port: Callable[[grpc.ServicerContext], DirectReply],
    ) -> None:
        self._offer_port = offer_port
        self._state = state
        self._apply_thread = apply_thread
        self._epochs = epochs
        self._rounds = rounds
        self._shared = shared

    def Share(self, request: ps_pb2.ShareRequest, context: grpc.ServicerContext) -> ps_pb2.ShareReply:
        if not is_local_peer(context.peer()):  # another machine's process numbers mean nothing here
            return ps_pb2.ShareReply(found=False)
        offer = SegmentOffer(request.pid, request.number, request.bytes, request.key)
        return ps_pb2.ShareReply(found=self._shared.attach_segment(offer))

    def DirectPort(self, _request: DirectRequest, context: grpc.ServicerContext) -> DirectReply:
        return self._offer_port(context)

    def Clock(self, request: ps_pb2.ClockRequest, context: grpc.ServicerContext) -> ps_pb2.ClockReply:
        sender = Sender(request.worker, request.incarnation)
        part = loss_messages.part_from_proto(request.part) if request.HasField("part") else None
        heard = loss_messages.point_from_proto(request.heard) if request.HasField("heard") else None
        first = request.first if request.HasField("first") else None
        finished = ClockFinished(sender, request.epoch, request.finished, part, heard, first, request.holds)
        with count_refusals():
            state: ClockState = self._apply_thread.serve(
                finished, _seconds_left(context), metrics.APPLY_SECONDS.observe
            )
        return ps_pb2.ClockReply(
            epoch=state.epoch, clock=state.clock, finished=state.finished, settled=state.settled
        )

    def Settle(self, request: ps_pb2.SettleRequest, context: grpc.ServicerContext) -> ps_pb2.SettleReply:
        settled = WorkerSettled(Sender(request.worker, request.incarnation), request.epoch)
        with count_refusals():
            state: ClockState = self._apply_thread.serve(settled, _seconds_left(context))
        return ps_pb2.SettleReply(clock=state.clock, finished=state.finished, joins=state.joins)

    def Adopt(self, request: ps_pb2.AdoptRequest, context: grpc.ServicerContext) -> ps_pb2.AdoptReply:
        tracing.remember_operation(("epoch", request.epoch))
        job = self._epochs.find_job(request.job)
        adopted = self._epochs.adopt_stored(request.epoch, request.digest, job, _seconds_left(context))
        return ps_pb2.AdoptReply(epoch=adopted.epoch, loading=adopted.loading)

    def Freeze(self, request: ps_pb2.FreezeRequest, context: grpc.ServicerContext) -> ps_pb2.FreezeReply:
        event = FreezeRequested(request.epoch, _decode_wanted(request.tables))
        frozen: FrozenState = self._apply_thread.call(event, _seconds_left(context))
        ahead = [status_encoder.encode_kept(state) for state in frozen.ahead]
        return ps_pb2.FreezeReply(watermark=frozen.watermark, clock=frozen.clock, ahead=ahead)

    def Receive(self, request: ps_pb2.ReceiveRequest, context: grpc.ServicerContext) -> ps_pb2.ReceiveReply:
        job = self._epochs.find_job(request.job)
        donor = self._epochs.find_shard(codec.member_from_proto(request.donor).key, request.epoch, job)
        fetch = ps_pb2.FetchRequest(epoch=request.epoch, tables=request.tables)
        incoming = migration.fetch_frozen(donor, fetch, job, _seconds_left(context))
        self._apply_thread.call(BlocksReceived(incoming), _seconds_left(context))
        return ps_pb2.ReceiveReply(bytes=sum(one.contents.bytes for one in incoming))

    def Claim(self, request: ps_pb2.ClaimRequest, context: grpc.ServicerContext) -> ps_pb2.ClaimReply:
        wanted = [(one.table, codec.ids_from_bytes(one.block_ids)) for one in request.tables]
        event = ReplicasClaimed(request.epoch, request.dead, wanted)
        found = self._apply_thread.call(event, _seconds_left(context))
        return ps_pb2.ClaimReply(kept=[status_encoder.encode_kept(state) for state in found])

    def Release(self, request: ps_pb2.ReleaseRequest, context: grpc.ServicerContext) -> ps_pb2.ReleaseReply:
        self._apply_thread.call(ReplicasReleased(request.epoch, request.owner), _seconds_left(context))
        return ps_pb2.ReleaseReply()

    def Distances(
        self, request: ps_pb2.DistancesRequest, context: grpc.ServicerContext
    ) -> ps_pb2.DistancesReply:
        return self._rounds.measure_distances(request, _seconds_left(context))

    def Count(self, request: ps_pb2.CountRequest, context: grpc.ServicerContext) -> ps_pb2.CountReply:
        return self._rounds.count_keys(request, _seconds_left(context))

    def Save(self, request: ps_pb2.SaveRequest, context: grpc.ServicerContext) -> ps_pb2.SaveReply:
        return self._rounds.save_blocks(request, _seconds_left(context))

    def Finish(self, request: ps_pb2.FinishRequest, context: grpc.ServicerContext) -> ps_pb2.FinishReply:
        self._rounds.finish_round(request, _seconds_left(context))
        return ps_pb2.FinishReply()

    def Status(self, request: ps_pb2.ShardStatusRequest, context: grpc.ServicerContext) -> ps_pb2.ShardStatus:
        busiest = min(request.busiest, MOST_BUSIEST)
        asked = StatusRequested(request.since_clock, busiest)
        summary = self._apply_thread.call(asked, _seconds_left(context))
        problem = summary.problem or self._apply_thread.waiting_reason
        return status_encoder.encode_status(summary, self._apply_thread.leased, problem)


def _decode_wanted(tables: Iterable[ps_pb2.TableBlocks]) -> WantedBlocks:
    """Raises :class:`BlockOutOfRange` or :class:`InvalidRequest` for invalid ids."""
    return [(one.table, None if one.dense else codec.ids_from_bytes(one.block_ids)) for one in tables]


def _short_tables(request: ps_pb2.PullRequest) -> frozenset[str]:
    """Whose values go in two bytes."""
    return frozenset(one.table for one in request.tables if one.bfloat16)


def _decode_pulled(tables: Iterable[ps_pb2.TableBlocks]) -> PulledParts:
    """The same, with rows in the place of blocks."""
    return [
        (one.table, _decode_rows(one)) if one.rows or one.keys else _decode_wanted([one])[0] for one in tables
    ]


def _decode_rows(one: ps_pb2.TableBlocks) -> WantedRows:
    """Whether the table has such rows, its store says."""
    return WantedRows(images_from_bytes(one.keys) if one.keys else codec.ids_from_bytes(one.rows, MAX_ROWS))


def _seconds_left(context: grpc.ServicerContext) -> float:
    return remaining(MAX_SECONDS, context.time_remaining())


@contextmanager
def count_refusals() -> Iterator[None]:
    """Count what was refused because its sender is behind or out."""
    try:
        yield
    except (StaleEpoch, Fenced):
        metrics.STALE.inc()
        raise
