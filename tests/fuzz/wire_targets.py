"""Targets: what comes over the wire in one message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import grpc
import numpy as np
from google.protobuf.message import Message

import scar
from scar.errors import InvalidRequest, ScarError, StaleEpoch, from_rpc, to_metadata
from scar.losses import LossPart, LossPoint
from scar.lost_ranges import LostRanges
from scar.rule_expressions import parse_expression
from scar.tables import Table
from scar.v1 import ps_pb2, recovery_pb2, types_pb2
from scar.v1.direct_pb2 import DirectAnswer, DirectCall
from scar.wire import codec, direct_frames, loss_messages
from scar.wire.codec import Chunk
from scar.wire.epoch_messages import epoch_from_proto
from scar.wire.lost_pushes import pack_losses
from scar_checkpoint.core.events import CountKeys, MeasureDistances
from scar_checkpoint.round_codec import counted_from_proto, measured_from_proto
from scar_ps.core.block_store import BlockStore
from scar_ps.core.update_rules import apply_push
from scar_ps.servicer import _decode_pulled
from scar_ps.wire.shared_memory_pool import SharedMemoryPool
from scar_recovery.codec import (
    failure_report_from_proto,
    job_fields_from_proto,
    job_start_from_proto,
    reroute_report_from_proto,
    uploaded_from_proto,
)
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.offer_board import offer_from_proto
from scar_recovery.shard_client import kept_from_proto, traffic_from_proto
from scar_runtime.checkpoint.selection import RoundSelection
from scar_runtime.checkpoint.selection_codec import range_from_proto, read_selection, write_selection
from scar_runtime.checkpoint.top_keys import KeyRange
from scar_runtime.failure_records import FailureRecord, WorkerReport
from scar_runtime.process import interceptors
from scar_runtime.store.failure_codec import failure_to_proto
from tests.fuzz import samples
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mutations import Mutator
from tests.fuzz.samples import (
    AUTO_JOB,
    JOB,
    KEYED_JOB,
    ME,
    PAIR_EPOCH,
    PAIR_JOB,
    SINGLE_JOBS,
    WORKER,
    epochs_on_the_wire,
    ones,
)
from tests.unit.ps_support import DrivenShard, load_initial

Kind = TypeVar("Kind", bound=Message)


def message_target(name: str, seeds: list[Kind], read: Callable[[Kind], object], cost: int = 1) -> FuzzTarget:
    """Bytes that a servicer or a client takes as a message of this kind, and what reads it."""
    kind = type(seeds[0])
    decode = interceptors._safe_decoder(kind.FromString)
    wires = [seed.SerializeToString() for seed in seeds]
    return FuzzTarget(
        name, lambda: wires, lambda data: read(decode(data)), partial(_mutate_message, kind), cost
    )


def _mutate_message(kind: type[Message], mutator: Mutator, data: bytes) -> bytes:
    return mutator.mutate_message(kind, data)


# --- chunks and ids


def _chunks() -> list[bytes]:
    header = ps_pb2.TensorHeader(
        table="w", dtype="float32", worker="worker-0", seq=1, push_id=1, epoch=3, bytes=12
    )
    shared = ps_pb2.SharedRange(key=b"k" * 16, offset=8, bytes=16)
    return [codec.encode_chunk(Chunk(header, b"x" * 12)), codec.encode_chunk(Chunk(None, shared=shared))]


class _OneSegment(SharedMemoryPool):
    """A pool that knows one segment."""

    def find_segment(self, key: bytes) -> memoryview:
        return memoryview(bytes(64)) if key == b"k" * 16 else super().find_segment(key)


def _read_chunk(data: bytes) -> None:
    list(_OneSegment(True).read_chunks([codec.decode_chunk(data)], copied=True))


def _read_ids(data: bytes) -> None:
    codec.ids_from_bytes(data[1:], (1, 5, 40, 1 << 24)[data[0] % 4] if data else 1)


# --- jobs and epochs


def _read_job(message: types_pb2.JobSpec) -> None:
    job = codec.job_from_proto(message)
    job_fields_from_proto(codec.job_to_proto(job))
    assert job.blocks >= len(job.tables)


def _adopting_shard() -> DrivenShard:
    shard = DrivenShard(ME)
    load_initial(shard, PAIR_JOB, shard.adopt(replace(PAIR_EPOCH, number=2, manifest=0), PAIR_JOB))
    return shard


def _read_epoch(message: types_pb2.Epoch) -> None:
    """As a shard takes it from anybody who may call Adopt."""
    epoch = epoch_from_proto(message)
    epoch.ensure_valid(PAIR_JOB)
    _adopting_shard().adopt(epoch, PAIR_JOB)


def _read_expression(text: bytes) -> None:
    """What it makes of the text, a shard takes a step with: in bounded time, whatever came."""
    parse_expression.cache_clear()
    rule = scar.rule(text.decode(errors="replace"), project="w + 0 * eps", eps=0.5)
    store = BlockStore(Table("w", (2, 3), rule=rule), np.arange(2, dtype=np.uint32))
    apply_push(store, None, np.ones(6, np.float32), lambda: None)


_EXPRESSIONS = [
    b"w - eps * g",
    b"where(abs(w) <= 1e-3, -exp(g) ** 2, clip(log(w), -1, 1)) / maximum(norm(w), eps)",
    b"sign(w) * minimum(sqrt(g), 0.5) + (w != step)",
]


# --- answers and reports


def _distances() -> ps_pb2.DistancesReply:
    counts = ps_pb2.KeyCounts(digits=[3, 1016], counts=[1, JOB.blocks - 1])
    return ps_pb2.DistancesReply(clock=3, settled=JOB.blocks, counts=counts)


def _read_distances(message: ps_pb2.DistancesReply) -> None:
    asked = MeasureDistances(samples.ME, 3, 1, 0, skip=False)
    measured_from_proto(JOB, asked, message)


def _read_counts(message: ps_pb2.CountReply) -> None:
    counted_from_proto(JOB, CountKeys(samples.ME, 3, 1, KeyRange(1, 1016), 1.0), message)


def _selection() -> ps_pb2.SaveRequest:
    request = ps_pb2.SaveRequest(epoch=3, round=1)
    write_selection(RoundSelection("priority", threshold=5 << 24, first=0, count=3, seed=7), request)
    return request


def _failure_report() -> recovery_pb2.FailureReport:
    return recovery_pb2.FailureReport(
        member=codec.member_to_proto(WORKER),
        silence=0.75,
        detect_seconds=0.75,
        suspect_seconds=0.5,
        evidence="silent",
    )


def _reroute() -> recovery_pb2.RerouteReport:
    ids = samples.all_ids(JOB.tables[0])
    lost = LostRanges("w", ids, np.ones(len(ids), np.int64), np.full(len(ids), 4, np.int64))
    return recovery_pb2.RerouteReport(
        epoch=3,
        worker=codec.member_to_proto(WORKER),
        lost=[pack_losses(lost)],
        delta=[recovery_pb2.TableDelta(table="w", squared=0.5, blocks=3)],
        resent=2,
    )


def _read_reroute(message: recovery_pb2.RerouteReport) -> None:
    """As it gets into the ledger."""
    report = reroute_report_from_proto(message, JOB)
    told = WorkerReport(report.worker, 1, report.resent, report.delta)
    failure_to_proto(
        FailureRecord(1, resent_pushes=3).with_reports([told, replace(told, worker="worker-1@x")])
    )


def _offer() -> recovery_pb2.HeldBlocks:
    ids = codec.ids_to_bytes(samples.all_ids(JOB.tables[0]))
    return recovery_pb2.HeldBlocks(table="w", block_ids=ids, clock=3, watermark={WORKER.key: 4})


def _read_offer(message: recovery_pb2.HeldBlocks) -> None:
    offer_from_proto(message, WORKER, JOB)


def _kept() -> ps_pb2.Kept:
    ids = codec.ids_to_bytes(samples.all_ids(JOB.tables[0]))
    return ps_pb2.Kept(table="w", block_ids=ids, clock=3, watermark={WORKER.key: 4})


def _traffic() -> ps_pb2.Traffic:
    ids = samples.all_ids(JOB.tables[0])
    amounts = np.arange(len(ids), dtype="<f8").tobytes()
    one = ps_pb2.BlockTraffic(table="w", block_ids=codec.ids_to_bytes(ids), traffic=amounts)
    return ps_pb2.Traffic(seconds=2.0, bytes=1000, blocks=[one])


def _read_traffic(message: ps_pb2.Traffic) -> None:
    found = traffic_from_proto("ps-0", message)
    assert np.isfinite(found.rate)
    assert all(np.isfinite(one.rates).all() for one in found.blocks.values())


def _job_start() -> recovery_pb2.StartJobRequest:
    given = {"w": ones(JOB.tables[0]).tobytes()}
    uploaded = {"r": recovery_pb2.UploadedArray(keys=[codec.initial_key("r", b"")])}
    return recovery_pb2.StartJobRequest(
        job=codec.job_to_proto(PAIR_JOB), given=given, request_id="a-1", uploaded=uploaded
    )


def _read_start(message: recovery_pb2.StartJobRequest) -> None:
    """Its arrays are looked for as what the first two tables begin with."""
    job_start_from_proto(message)
    given = GivenArrays(message.given, uploaded_from_proto(message))
    for table in JOB.tables[:2]:
        given.keys_of(table)


def _read_losses(message: ps_pb2.TensorHeader) -> None:
    loss_messages.point_from_header(message)


class _RpcFailure(grpc.RpcError):
    """What gRPC raises, with this metadata."""

    def __init__(self, data: bytes) -> None:
        self._pairs = [pair.split("=", 1) for pair in data.decode(errors="replace").split("\n")]

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.ABORTED

    def details(self) -> str:
        return self._pairs[0][-1]

    def trailing_metadata(self) -> list[tuple[str, str]]:
        return [(pair[0], pair[1]) for pair in self._pairs if len(pair) == 2]


def _read_error(data: bytes) -> None:
    assert isinstance(from_rpc(_RpcFailure(data), "ps-0"), ScarError)


def _error() -> bytes:
    return "\n".join(f"{key}={value}" for key, value in to_metadata(StaleEpoch("old", epoch=3))).encode()


# --- direct connections


class _Arriving:
    """A connection over which these bytes come, five at a time, and then its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def settimeout(self, _seconds: float | None) -> None:
        """Nothing waits."""

    def recv(self, size: int) -> bytes:
        count = min(5, size)
        some, self._data = self._data[:count], self._data[count:]
        return some

    def recv_into(self, room: memoryview) -> int:
        some = self.recv(len(room))
        room[: len(some)] = some
        return len(some)


def _calls() -> list[bytes]:
    call = DirectCall(method="ShardData/PushSmall", seconds=5.0)
    begun = DirectCall(method="ShardData/Push", seconds=5.0, more=True)
    stream = _frame(begun, b"") + _frame(DirectCall(more=True), b"x" * 12) + _frame(DirectCall(), b"")
    return [_frame(call, b"x" * 12), _frame(DirectCall(), b""), stream]


def _answers() -> list[bytes]:
    refused = DirectAnswer(code=9, details="no", trailing={"scar-error": "NotServing"})
    stream = _frame(DirectAnswer(more=True), b"x" * 12) + _frame(DirectAnswer(), b"")
    return [_frame(DirectAnswer(), b"x" * 12), _frame(refused, b""), stream]


def _frame(head: Message, message: bytes) -> bytes:
    about = head.SerializeToString()
    return struct.pack(">II", len(about), len(message)) + about + message


def _read_frames(data: bytes, decode: Callable[[bytes], DirectCall | DirectAnswer]) -> None:
    """Until one says that no more follow."""
    reader = direct_frames.FrameReader(_Arriving(data))  # type: ignore[arg-type]
    try:
        while decode(reader.read(1.0)[0]).more:
            pass
        reader.ensure_end()
    except ConnectionResetError as error:  # what ends a connection
        raise InvalidRequest(str(error)) from None


def _read_call(data: bytes) -> None:
    _read_frames(data, direct_frames.decode_call)


def _read_answer(data: bytes) -> None:
    _read_frames(data, direct_frames.decode_answer)


TARGETS = [
    FuzzTarget("chunk", _chunks, _read_chunk, samples.mutate_chunk),
    FuzzTarget(
        "block-ids", lambda: [b"\x02" + codec.ids_to_bytes(samples.all_ids(JOB.tables[0]))], _read_ids
    ),
    FuzzTarget("rpc-error", lambda: [_error()], _read_error, Mutator.mutate_text),
    message_target(
        "job", list(map(codec.job_to_proto, (*SINGLE_JOBS, AUTO_JOB, KEYED_JOB))), _read_job, cost=4
    ),
    FuzzTarget("expression", lambda: _EXPRESSIONS, _read_expression, Mutator.mutate_text, cost=4),
    message_target("epoch", epochs_on_the_wire(), _read_epoch, cost=40),
    message_target(
        "wanted-blocks",
        [
            ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="w", block_ids=b"\0\0\0\0")], epoch=3),
            ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="s", rows=b"\0\0\0\0")], epoch=3),
        ],
        lambda message: _decode_pulled(message.tables),
    ),
    message_target("distances", [_distances()], _read_distances),
    message_target(
        "key-range", [ps_pb2.CountRequest(epoch=3, round=1, depth=2, prefix=1016)], range_from_proto
    ),
    message_target(
        "key-counts", [ps_pb2.CountReply(counts=ps_pb2.KeyCounts(digits=[7], counts=[2]))], _read_counts
    ),
    message_target("selection", [_selection()], read_selection),
    message_target("offer", [_offer()], _read_offer, cost=2),
    message_target("kept-blocks", [_kept()], kept_from_proto),
    message_target("shard-traffic", [_traffic()], _read_traffic),
    message_target("reroute-report", [_reroute()], _read_reroute, cost=2),
    message_target("failure-report", [_failure_report()], failure_report_from_proto),
    message_target("job-start", [_job_start()], _read_start),
    message_target(
        "loss-part",
        [loss_messages.part_to_proto(LossPart(0.5, 0, 1, 3, 3, True, (1,)))],
        loss_messages.part_from_proto,
    ),
    message_target(
        "loss-point",
        [loss_messages.point_to_proto(LossPoint(3, 0.5, 1.0, (("accuracy", 0.5),)))],
        loss_messages.point_from_proto,
    ),
    FuzzTarget("direct-call", _calls, _read_call),
    FuzzTarget("direct-answer", _answers, _read_answer),
    message_target("pull-header", [ps_pb2.TensorHeader(loss_clock=3, loss=0.5)], _read_losses),
]
