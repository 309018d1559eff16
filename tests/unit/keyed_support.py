"""Keyed tables for tests: pushes and pulls of keys as they come over the wire, and the same by a dict."""

from __future__ import annotations

import numpy as np

from scar import tables
from scar.keyed_rows import draw_rows, mix_keys, row_seed
from scar.tables import Job, Rule, Table
from scar.v1.ps_pb2 import TensorHeader
from scar.wire import codec
from scar.wire.codec import decode_chunk
from scar.wire.row_names import set_rows
from scar_ps.core.block_store import BlockStore
from scar_ps.core.keyed_store import KeyedBlockStore
from scar_ps.core.pushes import PulledBlocks
from scar_ps.core.requests import Sender, WantedRows
from scar_ps.core.update_rules import apply_push
from scar_ps.wire import pull_encoder
from scar_ps.wire.push_decoder import PushStaging
from tests.unit.ps_support import DrivenShard, job, sender

WIDTH = 3
INIT = tables.uniform(-1, 1)
READER = Sender("", "")


def keyed_job(
    rule: Rule | None = None,
    policy: tables.KeyPolicy | None = None,
    capacity: int = 64,
    dtype: str = "float32",
    **options: object,
) -> Job:
    table = Table(
        "w",
        keys=policy or "int64",
        dim=WIDTH,
        capacity=capacity,
        rule=rule or tables.sgd(0.5),
        init=tables.zeros() if dtype.startswith("int") else INIT,
        dtype=dtype,
    )
    return job(table, **options)


def store_of(shard: DrivenShard) -> KeyedBlockStore:
    store = shard.ownership.tables["w"]
    assert isinstance(store, KeyedBlockStore)
    return store


def push_keys(
    shard: DrivenShard,
    rank: int,
    seq: int,
    clock: int,
    keys: np.ndarray,
    values: np.ndarray,
    push_id: int = 0,
) -> None:
    """Each key once, in any order."""
    images = mix_keys(keys)
    order = np.argsort(images)
    packed = np.ascontiguousarray(values[order])
    header = TensorHeader(
        table="w",
        dtype=packed.dtype.name,
        bytes=packed.nbytes,
        epoch=shard.number,
        worker=sender(rank).name,
        incarnation=sender(rank).incarnation,
        seq=seq,
        push_id=push_id or seq,
        clock=clock,
    )
    set_rows(header, images[order])
    with PushStaging(1 << 20, lambda: 0).open_push(shard.view) as place:
        for chunk in codec.chunks(header, packed.reshape(-1)):
            place.read_chunk(chunk)
        shard.push(place.finish())


def pull_keys(shard: DrivenShard, clock: int, keys: np.ndarray, who: Sender | None = None) -> np.ndarray:
    """In the order of these keys, each once."""
    images = mix_keys(keys)
    order = np.argsort(images)
    wanted = [("w", WantedRows(images[order]))]
    parts = shard.pull(who or sender(0), shard.number, clock, wanted)
    found = PulledBlocks(parts, shard.number, clock, None, [None])
    raw = b"".join(bytes(decode_chunk(one).data) for one in map(b"".join, pull_encoder.encode_pulled(found)))
    dtype = parts[0].store.table.dtype
    values = np.empty((len(keys), WIDTH), dtype)
    values[order] = np.frombuffer(raw, dtype).reshape(-1, WIDTH)
    return values


def first_values(spec: Job, keys: np.ndarray) -> np.ndarray:
    """x(0) of these keys."""
    table = spec.table("w")
    images = mix_keys(keys)
    return draw_rows(table.init, row_seed(spec.seed, "w"), images, WIDTH, table.dtype).reshape(-1, WIDTH)


class RowOracle:
    """A dict of rows, each of which takes its steps alone."""

    def __init__(self, spec: Job) -> None:
        self._spec = spec
        table = spec.table("w")
        self._single = Table("w", (1, WIDTH), rule=table.rule, dtype=table.dtype_name)
        self.rows: dict[int, BlockStore] = {}

    def push(self, clock: int, keys: np.ndarray, values: np.ndarray) -> None:
        for key, value in zip(keys.tolist(), values, strict=True):
            if key not in self.rows:
                self.rows[key] = BlockStore(self._single, np.zeros(1, np.uint32))
                self.rows[key].values[:] = first_values(self._spec, np.array([key]))[0]
            rule = self._single.rule.at_clock(clock)
            apply_push(self.rows[key], None, value, lambda: None, rule)

    def pull(self, keys: np.ndarray, unknown_zero: bool = False) -> np.ndarray:
        unknown = first_values(self._spec, keys) * (not unknown_zero)
        known = [self.rows[key].values if key in self.rows else None for key in keys.tolist()]
        return np.stack([mine if mine is not None else row for mine, row in zip(known, unknown, strict=True)])


def without_steps(rule: Rule) -> bool:
    return not rule.counts_steps
