"""A job, an epoch and what encoders write of them: the seeds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

import scar
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.strategies import StrategyChoice
from scar.tables import Job, Table
from scar.v1 import ps_pb2, types_pb2
from scar.wire import codec
from scar.wire.codec import Chunk, ids_to_bytes
from scar.wire.epoch_messages import epoch_to_proto
from tests.fuzz.mutations import Mutator

OWN_STEPS = {"n": "n + norm(g) ** 2", "w": "where(w > 0, w - lr * g / sqrt(n + step), 0)"}
JOB = Job(
    "fuzz",
    [
        Table("w", (40, 3), rule=scar.adam()),
        Table("r", (30, 2), rule=scar.momentum(0.1), blocks=scar.ragged([0, 3, 4, 10, 30])),
        Table("own", (5, 3), rule=scar.rule(OWN_STEPS, slots=["n"], project="clip(w, -1, 1)", lr=0.1)),
        Table("i", 17, dtype="int32", rule=scar.add(), blocks=scar.rows(5)),
        Table("s", (12, 2), rule=scar.adagrad(0.1, rowwise=True), blocks=scar.rows(5)),
    ],
    shards=2,
    workers=1,
    recovery="sync-chain",
)
CHOICE = StrategyChoice("sync-chain", replicas=1, reason="it adds least")
AUTO_JOB = replace(JOB, recovery="auto", server_mtbf=60.0, choice=CHOICE)
KEYED = Table("k", keys=scar.keys(admit_after=2), dim=3, capacity=20, rule=scar.adagrad(0.1))
KEYED_JOB = replace(JOB, tables=[KEYED])
SINGLE_JOBS = [replace(JOB, tables=[table]) for table in JOB.tables]  # short seeds are played sooner
ME = Member(Role.SHARD, "ps-0", "0123456789ab", "h:1")
OTHER = Member(Role.SHARD, "ps-1", "0123456789ac", "h:2")
WORKER = Member(Role.WORKER, "worker-0", "0123456789ad")


def epoch_of(job: Job) -> Epoch:
    """Which gives all blocks to one shard, out of an object."""
    moved = tuple(
        BlockGroup(
            table.name,
            np.arange(table.blocks, dtype=np.uint32),
            former_owner=OTHER.key,
            source=BlockSource.OBJECT,
            object_key="objects/x",
            clock=1,
            watermark={WORKER.key: 2},
        )
        for table in job.tables
    )
    return Epoch(
        number=3,
        author="recovery",
        job=job.name,
        shards=(ME, OTHER),
        workers=(WORKER,),
        owners={table.name: np.zeros(table.blocks, np.uint16) for table in job.tables},
        moved=moved,
        manifest=2,
        clock=1,
        cause="failure",
        failure=1,
    )


EPOCH = epoch_of(JOB)
PAIR_JOB = replace(JOB, tables=[JOB.tables[0], JOB.tables[3]])
PAIR_EPOCH = epoch_of(PAIR_JOB)


def epochs_on_the_wire() -> list[types_pb2.Epoch]:
    """One of this version, and the same as protocol 5 had it."""
    now = epoch_to_proto(PAIR_EPOCH)
    before = types_pb2.Epoch()
    before.CopyFrom(now)
    del before.owners[:]
    for table, owners in PAIR_EPOCH.owners.items():
        before.owners.add(table=table, owners=owners.tobytes())
    for message, group in zip(before.moved, PAIR_EPOCH.moved, strict=True):
        message.ClearField("bitmap")
        message.block_ids = ids_to_bytes(group.ids)
    return [now, before]


def all_ids(table: Table) -> np.ndarray:
    return np.arange(table.blocks, dtype=np.uint32)


def ones(table: Table) -> np.ndarray:
    return np.ones(table.elements, table.dtype)


def each_table(make: Callable[..., bytes]) -> list[bytes]:
    """What it makes of each table alone, and of two."""
    return [*map(make, JOB.tables), make(*JOB.tables[:2])]


# --- streams as one input: the messages, each after its length


def join_stream(messages: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(message)) + message for message in messages)


def split_stream(data: bytes) -> list[bytes]:
    """Whatever the lengths say: the rest is the last message."""
    messages = []
    at = 0
    while at + 4 <= len(data):
        size = int(struct.unpack_from("<I", data, at)[0])
        messages.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return messages


def stream_of(parts: Sequence[tuple[ps_pb2.TensorHeader, np.ndarray]]) -> bytes:
    """What a sender of these tensors sends."""
    return join_stream(
        codec.encode_chunk(chunk) for header, array in parts for chunk in codec.chunks(header, array)
    )


def mutate_stream(mutator: Mutator, data: bytes) -> bytes:
    """One message of a stream: gone, twice, elsewhere, with other fields, other data or other bytes."""
    rng = mutator.rng
    messages = split_stream(data)
    if not messages or rng.random() < 0.05:
        return mutator.mutate_bytes(data)
    at = rng.randrange(len(messages))
    match rng.randrange(10):
        case 0:
            del messages[at]
        case 1:
            messages.insert(rng.randrange(len(messages) + 1), messages[at])
        case 2:
            messages[at] = mutator.mutate_bytes(messages[at])
        case _:
            messages[at] = mutate_chunk(mutator, messages[at])
    return join_stream(messages)


def mutate_chunk(mutator: Mutator, wire: bytes) -> bytes:
    """Fields of its header, its data, or its bytes."""
    rng = mutator.rng
    try:
        chunk = codec.decode_chunk(wire)
    except scar.ScarError:
        return mutator.mutate_bytes(wire)
    pick = rng.random()
    if pick < 0.6:
        chunk.header = chunk.header or ps_pb2.TensorHeader()
        mutator.shake(chunk.header)
    elif pick < 0.8:
        chunk.data = mutator.mutate_bytes(bytes(chunk.data))
    elif pick < 0.9:
        chunk = Chunk(chunk.header, shared=chunk.shared or ps_pb2.SharedRange(key=b"k" * 16, bytes=8))
        mutator.shake(chunk.shared)  # type: ignore[arg-type]
    else:
        return mutator.mutate_bytes(wire)
    return codec.encode_chunk(chunk)
