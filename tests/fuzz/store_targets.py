"""Targets: what lies in the store.

Checksums are made right again after most changes, so that what they guard is reached.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache, lru_cache, partial

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message

import scar
from scar.blocks import BlockState
from scar.given_rows import pack_rows
from scar.lost_ranges import LostRanges
from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2, recovery_pb2, types_pb2
from scar.wire import codec
from scar.wire.epoch_messages import epoch_from_proto
from scar.wire.lost_pushes import pack_losses
from scar_console.page_update import encode_json
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.initial_arrays import read_initial
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef, RoundPlan
from scar_runtime.checkpoint.manifest_codec import manifest_to_proto, read_manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import MAGIC, PREFIX_BYTES, BlockPayload, ChangedRows, EncodedObject
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.failure_records import FailureRecord, TableDelta, WorkerReport
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store.failure_codec import failure_from_proto, failure_to_proto
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.job_records import read_job_spec, read_revisions, read_start
from scar_runtime.store.layout import REVISIONS, manifest_key, numbered, pin_key
from scar_runtime.store.pins import Pins
from scar_runtime.store.records import decode_record, encode_record
from tests.framework.recovery import MemoryStore
from tests.fuzz import samples
from tests.fuzz.engine import MOST_SEEDS, FuzzTarget
from tests.fuzz.mutations import Mutator
from tests.fuzz.samples import AUTO_JOB, JOB, ME, PAIR_JOB, SINGLE_JOBS, WORKER, all_ids, ones

MANIFEST = Manifest(
    number=3,
    parent=2,
    job=JOB.name,
    author="checkpoint-0@0123456789ab",
    epoch=3,
    selection="priority",
    objects=(ObjectRef("objects/x", 100, 50, ME.key, 3, 1, 40, 1),),
    plan=RoundPlan(0.125, 20, "as the budget allows", 2, 0.5, 60.0, 0.05),
)
FAILURE = FailureRecord(
    number=1,
    members=(ME.key,),
    evidence=("silent",),
    strategy="partial",
    epoch=3,
    suspect_seconds=0.25,
    settle_seconds=0.5,
    return_seconds=2.0,
    sources={"object": 3},
    reports=(WorkerReport(WORKER.key, 1, 2, (TableDelta("w", 0.5, 3),)),),
)


# --- records


def record_target(name: str, read: Callable[[bytes], object], cost: int, *messages: Message) -> FuzzTarget:
    """Records of one kind, and what reads them."""
    written = list(map(encode_record, messages))
    return FuzzTarget(name, lambda: written, read, partial(_mutate_record, type(messages[0])), cost)


def _mutate_record(kind: type[Message], mutator: Mutator, data: bytes) -> bytes:
    head, _, body = data.partition(b"\n")
    match mutator.rng.randrange(5):
        case 0:
            return mutator.mutate_bytes(data)
        case 1 | 2:
            body = mutator.mutate_json(body[:-1])
        case _:
            body = _shaken(kind, mutator, body[:-1])
    return b"%s %08x\n%s\n" % (head[: -len(" 01234567")], zlib.crc32(body), body)


def _shaken(kind: type[Message], mutator: Mutator, body: bytes) -> bytes:
    parsed = _parsed(kind, body)
    if parsed is None:
        return mutator.mutate_json(body)
    message = kind()
    message.CopyFrom(parsed)
    mutator.shake(message)
    return json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True).encode()


@lru_cache(MOST_SEEDS)  # each seed is changed many times
def _parsed(kind: type[Message], body: bytes) -> Message | None:
    """None: it is none."""
    try:
        return json_format.Parse(body, kind())
    except (ValueError, RecursionError, json_format.ParseError):
        return None


def _read_manifest(data: bytes) -> None:
    read_manifest(MemoryStore({manifest_key(3): data}), 3)


def _read_revision(data: bytes) -> None:
    store = MemoryStore({numbered(REVISIONS, 2): data})
    codec.job_from_proto(read_job_spec(store))
    read_revisions(store)
    read_start(store)


def _read_pin(data: bytes) -> None:
    Pins(MemoryStore({pin_key("a"): data}), lambda: 0.0).manifests()


def _lost_log() -> FailureLog:
    store = MemoryStore()
    ids = all_ids(JOB.tables[0])
    lost = LostRanges("w", ids, np.zeros(len(ids), np.int64), np.ones(len(ids), np.int64))
    log = FailureLog(store)
    log.write(failure_to_proto(FAILURE), "recovery-0")
    log.write_lost(1, WORKER.key, [pack_losses(lost)])
    return log


def _ledger() -> list[bytes]:
    """The ledger of one failure, its objects in the order of their keys."""
    objects = _lost_log()._store.objects  # type: ignore[attr-defined]
    return [samples.join_stream(data for _, data in sorted(objects.items()))]


@cache
def _ledger_keys() -> list[str]:
    return sorted(_lost_log()._store.objects)  # type: ignore[attr-defined]


def _read_ledger(data: bytes) -> None:
    log = FailureLog(MemoryStore(dict(zip(_ledger_keys(), samples.split_stream(data), strict=False))))
    for record in log.read(lost=True):
        failure_from_proto(record)


def _mutate_ledger(mutator: Mutator, data: bytes) -> bytes:
    parts = samples.split_stream(data)
    if not parts or mutator.rng.random() < 0.1:
        return mutator.mutate_bytes(data)
    at = mutator.rng.randrange(len(parts))
    kinds = (recovery_pb2.FailureRecord, recovery_pb2.LostBlocks, recovery_pb2.LostReport)
    kind = next((one for one in kinds if one.DESCRIPTOR.name.encode() in parts[at][:64]), kinds[0])
    parts[at] = _mutate_record(kind, mutator, parts[at])
    return samples.join_stream(parts)


# --- how a run went


def _history() -> ProgressHistory:
    history = ProgressHistory()
    history.add_losses({clock: 1 / (1 + clock) for clock in range(5)})
    history.metrics.add_metrics({clock: {"accuracy": clock / 5} for clock in range(5)})
    history.add_samples(
        recovery_pb2.HistorySample(time=1.5 * step, clock=step, epoch=1, shards=2, workers=2)
        for step in range(4)
    )
    return history


def _read_history(data: bytes) -> None:
    """As the page of a store shows it."""
    history = ProgressHistory()
    history.merge_record(decode_record(recovery_pb2.HistoryRecord, data))
    encode_json([history.curve.points_from(), history.clocks_per_second, history.clock_at(2.0)])
    history.to_proto()


# --- objects of the running checkpoint


def _object(*tables: Table) -> bytes:
    groups = []
    for table in tables:
        state = BlockState(table.name, all_ids(table), 1, {WORKER.key: 4}, ME.key)
        slots = {name: ones(table)[: table.slot_layout(name).elements] for name in table.rule.slots}
        groups.append((state, BlockPayload(ones(table), slots, np.zeros(table.blocks, np.int64))))
    return _as_input(EncodedObject(JOB, groups))


def _as_input(encoded: EncodedObject) -> bytes:
    whole = b"".join(bytes(piece) for _, piece in sorted(encoded.pieces()))
    return struct.pack("<II", len(whole), encoded.header_bytes) + whole


def _changed_object(table: Table, baseline: ObjectRef | None) -> bytes:
    """Of the last row of each block."""
    state = BlockState(table.name, all_ids(table), 2, {WORKER.key: 5}, ME.key)
    values = ones(table)[: table.blocks * table.row_elements]
    slots = {name: ones(table)[: table.blocks * table.slot_width(name)] for name in table.slots}
    counts = np.ones(table.blocks, np.int64)
    changed = ChangedRows(counts, table.row_counts.sizes - 1, baseline)
    payload = BlockPayload(values, slots, np.zeros(table.blocks, np.int64), changed)
    return _as_input(EncodedObject(JOB, [(state, payload)]))


def _objects() -> list[bytes]:
    several = [table for table in JOB.tables if not table.has_row_blocks]
    changed = [_changed_object(table, named) for table in several for named in (None, _baseline(table))]
    return [*samples.each_table(_object), *changed]


def _baseline(table: Table) -> ObjectRef:
    key = f"objects/{table.name}"
    return _named_object(key, _baselines()[key])


@cache
def _baselines() -> dict[str, bytes]:
    return {f"objects/{table.name}": _object(table) for table in JOB.tables}


def _named_object(key: str, data: bytes) -> ObjectRef:
    """``data``: sizes by the manifest, whose digest fits the header, then the object."""
    size, header_bytes = struct.unpack("<II", data[:8].ljust(8, b"\0"))
    digest = hashlib.sha256(data[8 : 8 + header_bytes]).digest()
    return ObjectRef(key, size, header_bytes, digest=digest)


def _read_object(data: bytes) -> None:
    """As :func:`_named_object` has it."""
    ref = _named_object("objects/o", data)
    baselines = {key: raw[8:] for key, raw in _baselines().items()}
    store = MemoryStore({**baselines, ref.key: data[8:]})
    header = read_header(store, ref, JOB)
    RunningCheckpoint(JOB).append(ref, header)
    for section in header.sections:
        read_blocks(store, ref, header, JOB, section.group.table, section.group.ids)


def _mutate_object(mutator: Mutator, data: bytes) -> bytes:
    whole = data[8:]
    size, header_bytes = struct.unpack("<II", data[:8].ljust(8, b"\0"))
    text_end = PREFIX_BYTES + int.from_bytes(whole[len(MAGIC) : PREFIX_BYTES], "little")
    text = whole[PREFIX_BYTES:text_end]
    index = whole[text_end : max(text_end, header_bytes)]
    blocks = whole[header_bytes:]
    match mutator.rng.randrange(8):
        case 0:
            return mutator.mutate_bytes(data)
        case 1:
            blocks = mutator.mutate_bytes(blocks)
        case 2 | 3:
            index = mutator.mutate_bytes(index)
        case _:
            text = mutator.mutate_json(text)
    head = MAGIC + struct.pack("<I", len(text)) + text + index
    named = size + len(head) - header_bytes if mutator.rng.random() < 0.9 else size
    return struct.pack("<II", named & 0xFFFFFFFF, len(head)) + head + blocks


# --- initial arrays


def _read_initial(data: bytes) -> None:
    table = _given_job().tables[0]
    given = read_initial(MemoryStore({table.init.key: data}), table, all_ids(table))
    table.initial(JOB.seed, all_ids(table), given)


@cache
def _given_job() -> Job:
    spec = codec.job_to_proto(JOB)
    spec.tables[0].init.kind = "given"
    spec.tables[0].init.key = "init/w"
    return codec.job_from_proto(spec)


def _given_rows() -> bytes:
    init = scar.given_rows([3, -1, 2**62], np.ones((3, 3)))
    assert init.rows is not None
    return pack_rows(init.rows, samples.KEYED.dtype)


@cache
def _begun_table() -> scar.Table:
    table = copy(samples.KEYED)
    table.init = replace(scar.given_rows([], np.empty((0, 3))), key="init/k", rows=None)
    return table


def _read_given_rows(data: bytes) -> None:
    table = _begun_table()
    given = read_initial(MemoryStore({table.init.key: data}), table, all_ids(table))
    table.initial(JOB.seed, all_ids(table), given)
    table.initial_slots(all_ids(table), given)


TARGETS = [
    record_target(
        "job-record",
        lambda data: codec.job_from_proto(decode_record(types_pb2.JobSpec, data)),
        10,
        *map(codec.job_to_proto, (*SINGLE_JOBS, AUTO_JOB)),
    ),
    record_target(
        "revision-record",
        _read_revision,
        20,
        *(
            recovery_pb2.JobRevision(number=2, job=codec.job_to_proto(job), changes="lr=0.1", created=1.7e9)
            for job in SINGLE_JOBS
        ),
    ),
    record_target(
        "epoch-record",
        lambda data: epoch_from_proto(decode_record(types_pb2.Epoch, data)).ensure_valid(PAIR_JOB),
        10,
        *samples.epochs_on_the_wire(),
    ),
    record_target("manifest-record", _read_manifest, 6, manifest_to_proto(MANIFEST)),
    record_target(
        "pin-record", _read_pin, 4, checkpoint_pb2.Pin(manifests=[1, 2], holder="me@here", count=3)
    ),
    record_target(
        "finished-record",
        partial(decode_record, recovery_pb2.FinishedRecord),
        4,
        recovery_pb2.FinishedRecord(),
    ),
    record_target("owner-record", partial(decode_record, recovery_pb2.JobOwner), 4, recovery_pb2.JobOwner()),
    record_target("history-record", _read_history, 10, _history().to_proto()),
    FuzzTarget("ledger", _ledger, _read_ledger, _mutate_ledger, cost=40),
    FuzzTarget(
        "object",
        _objects,
        _read_object,
        _mutate_object,
        cost=20,
    ),
    FuzzTarget("initial-rows", lambda: [_given_rows()], _read_given_rows, cost=4),
    FuzzTarget("initial-array", lambda: [ones(JOB.tables[0]).tobytes()], _read_initial, cost=4),
]
