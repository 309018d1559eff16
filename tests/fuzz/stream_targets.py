"""Targets: streams of tensors, as shards and clients take them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import cache, partial

import numpy as np

from scar import bfloat16
from scar._client.pulls import receive_tensors
from scar.block_parts import VALUES
from scar.blocks import BlockState
from scar.keyed_rows import mix_keys
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.row_names import set_rows
from scar.wire.small_message import decode_small, encode_small
from scar_ps.core.block_data import BlockContents, CopiedBlocks
from scar_ps.core.block_store import NO_LOCK
from scar_ps.core.keyed_store import make_store
from scar_ps.core.replica_store import ReplicaStore, ReplicationBatch
from scar_ps.core.requests import ShardView
from scar_ps.wire.copy_stream import decode_copy
from scar_ps.wire.migration import PUSH, SAVED, decode_frozen
from scar_ps.wire.push_decoder import PushStaging
from scar_ps.wire.replication_stream import decode_batch, encode_batch
from scar_ps.wire.tensor_parts import contents_parts
from tests.fuzz import samples
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mutations import Mutator
from tests.fuzz.samples import EPOCH, JOB, KEYED, ME, OTHER, PAIR_JOB, WORKER, all_ids, mutate_stream, ones

ROOM = 1 << 20  # bytes of pushes that wait


def _chunks(data: bytes) -> Iterator[Chunk]:
    return map(codec.decode_chunk, samples.split_stream(data))


def _small(stream: bytes) -> bytes:
    """The same chunks as one message."""
    return encode_small(samples.split_stream(stream))


def _mutate_small(mutator: Mutator, data: bytes) -> bytes:
    """Fields of its chunks, or its bytes."""
    return mutator.mutate_message(ps_pb2.SmallTensors, data)


def _contents(table: Table) -> BlockContents:
    slots = {name: ones(table)[: table.slot_layout(name).elements] for name in table.rule.slots}
    return BlockContents(ones(table), slots, np.zeros(table.blocks, np.int64))


@cache  # what decodes changes nothing of it
def _view(loading: int) -> ShardView:
    """Of a shard that has all blocks. ``loading``: the epoch with which they come; 0: they are there."""
    tables = [*JOB.tables, KEYED]
    stores = {table.name: make_store(table, all_ids(table), NO_LOCK, JOB.seed) for table in tables}
    for store in stores.values():
        store.loading[:] = loading
    return ShardView(3, stores, ROOM)


# --- a push


def _pushes() -> list[bytes]:
    long, short = (samples.each_table(partial(_push, short=short)) for short in (False, True))
    return [*long, *short, _push_of_rows(), _push_of_keys()]


def _push_of_keys() -> bytes:
    images = np.sort(mix_keys(np.array([-7, 1, 2**40])))
    header = ps_pb2.TensorHeader(table=KEYED.name, dtype=KEYED.dtype.name, seq=1, push_id=1, epoch=3)
    header.worker = WORKER.name
    set_rows(header, images)
    return samples.stream_of([(header, ones(KEYED)[: len(images) * KEYED.row_elements])])


def _push_of_rows() -> bytes:
    """Of tables with several rows a block."""
    parts = []
    for table in [table for table in JOB.tables if not table.rule.counts_steps]:
        rows = np.array([1, 2, table.shape[0] - 1], np.uint32)
        header = ps_pb2.TensorHeader(
            table=table.name,
            dtype=table.dtype.name,
            worker=WORKER.name,
            incarnation=WORKER.incarnation,
            seq=1,
            push_id=1,
            epoch=3,
            rows=codec.ids_to_bytes(rows),
        )
        parts.append((header, ones(table)[: len(rows) * table.row_elements]))
    return samples.stream_of(parts)


def _push(*tables: Table, short: bool = False) -> bytes:
    """``short``: float32 as bfloat16."""
    parts = []
    for table in tables:
        values = ones(table)
        shortens = short and values.dtype == np.float32
        header = ps_pb2.TensorHeader(
            table=table.name,
            dtype=bfloat16.NAME if shortens else table.dtype.name,
            worker=WORKER.name,
            incarnation=WORKER.incarnation,
            seq=1,
            push_id=1,
            epoch=3,
            dense=table.name != "w",
            block_ids=codec.ids_to_bytes(all_ids(table)) if table.name == "w" else b"",
        )
        parts.append((header, bfloat16.shorten_values(values) if shortens else values))
    return samples.stream_of(parts)


def _read_push(data: bytes) -> None:
    _stage_push(_chunks(data))


def _read_small_push(data: bytes) -> None:
    _stage_push(decode_small(data))


def _stage_push(chunks: Iterable[Chunk]) -> None:
    with PushStaging(ROOM, lambda: 0).open_push(_view(loading=0)) as decoder:
        for chunk in chunks:
            decoder.read_chunk(chunk)
        decoder.finish()


# --- replicas and migration


def _batch(*tables: Table) -> bytes:
    copies = [
        CopiedBlocks(BlockState(table.name, all_ids(table), 1, {WORKER.key: 2}), _contents(table))
        for table in tables
    ]
    dropped = {table.name: all_ids(table)[:1] for table in tables}
    batch = ReplicationBatch(OTHER.key, 3, 1, 0, 1, {WORKER.key: 2}, copies, dropped=dropped)
    return samples.join_stream(map(codec.encode_chunk, encode_batch(batch)))


def _read_batch(data: bytes) -> None:
    ReplicaStore(ME.key).receive_batch(JOB, EPOCH, decode_batch(_chunks(data), JOB))


def _frozen(*tables: Table) -> bytes:
    parts = []
    for table in tables:
        arrays = {**contents_parts(_contents(table)), SAVED: ones(table), PUSH: ones(table)}
        for part, array in arrays.items():
            header = ps_pb2.TensorHeader(
                table=table.name,
                dtype=array.dtype.name,
                epoch=3,
                part=part,
                block_ids=codec.ids_to_bytes(all_ids(table)),
                worker=WORKER.name,
                push_id=3,
            )
            parts.append((header, array))
    if JOB.tables[-1] in tables:
        parts.append(_frozen_rows())
    return samples.stream_of(parts)


def _frozen_rows() -> tuple[ps_pb2.TensorHeader, np.ndarray]:
    """A push of rows that waits for its clock."""
    table = JOB.tables[-1]
    rows = np.array([0, 4, 7, 11], np.uint32)
    header = ps_pb2.TensorHeader(table=table.name, dtype=table.dtype.name, epoch=3, part=PUSH, push_id=4)
    header.worker = WORKER.name
    header.block_ids = codec.ids_to_bytes(all_ids(table))
    header.rows = codec.ids_to_bytes(rows)
    return header, ones(table)[: len(rows) * table.row_elements]


# --- what a worker gives back


def _copy(*names: str) -> bytes:
    """These parts of a table with slots; none named: all."""
    table = JOB.tables[0]
    store = make_store(table, all_ids(table), NO_LOCK, seed=1)
    parts = contents_parts(store.copy_blocks(np.arange(table.blocks)))
    sent = []
    for name in names or parts:
        header = ps_pb2.TensorHeader(
            table=table.name,
            dtype=parts[name].dtype.name,
            part=name,
            worker=WORKER.name,
            incarnation=WORKER.incarnation,
            epoch=3,
            clock=2,
            block_ids=codec.ids_to_bytes(all_ids(table)),
            crc32=zlib.crc32(parts[name].tobytes()),
        )
        sent.append((header, parts[name]))
    return samples.stream_of(sent)


def _read_copy(data: bytes) -> None:
    decode_copy(_chunks(data), _view(loading=3))


# --- an answer to a pull


def _answer() -> bytes:
    header = {"epoch": 3, "clock": 2, "loss_clock": 2, "loss": 0.5, "settled": True}
    return samples.stream_of(
        [
            (ps_pb2.TensorHeader(table=table.name, dtype=table.dtype.name, **header), ones(table))
            for table in PAIR_JOB.tables
        ]
    )


def _read_answer(data: bytes) -> None:
    _receive(_chunks(data))


def _read_small_answer(data: bytes) -> None:
    _receive(decode_small(data))


def _receive(chunks: Iterable[Chunk]) -> None:
    receive_tensors(
        chunks, {(table.name, ""): np.empty_like(ones(table)) for table in PAIR_JOB.tables}, "ps-0"
    )


TARGETS = [
    FuzzTarget("push", _pushes, _read_push, mutate_stream, cost=6),
    FuzzTarget("ship", lambda: samples.each_table(_batch), _read_batch, mutate_stream, cost=12),
    FuzzTarget(
        "fetch",
        lambda: samples.each_table(_frozen),
        lambda data: decode_frozen(_chunks(data), JOB, OTHER.key, 3),
        mutate_stream,
        cost=12,
    ),
    FuzzTarget("restore", lambda: [_copy(VALUES), _copy()], _read_copy, mutate_stream, cost=4),
    FuzzTarget("pull-answer", lambda: [_answer()], _read_answer, mutate_stream, cost=4),
    FuzzTarget("small-push", lambda: list(map(_small, _pushes())), _read_small_push, _mutate_small, cost=6),
    FuzzTarget("small-answer", lambda: [_small(_answer())], _read_small_answer, _mutate_small, cost=4),
]
