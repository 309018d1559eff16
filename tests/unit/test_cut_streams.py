"""A stream that ends before its end changes nothing, wherever it was cut.

The stream of a process that was killed may end, for who reads it, as if it were whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from scar._client.copy_sender import encode_copy
from scar._client.core.held_copies import OwedCopy
from scar._client.core.pull_buffer import PullBuffer
from scar._client.core.pushes import ShardPush, TablePush
from scar._client.core.stream_steps import SendPush
from scar._client.push_stream import encode_push
from scar.blocks import BlockState
from scar.errors import ScarError
from scar.placement import Member, Role
from scar.tables import Job, Table
from scar.wire.codec import Chunk, decode_chunk, encode_chunk
from scar_ps.core.block_store import BlockStore
from scar_ps.core.requests import ShardView
from scar_ps.wire.copy_stream import decode_copy
from scar_ps.wire.push_decoder import PushStaging
from scar_ps.wire.replication_stream import decode_batch, encode_batch
from scar_ps.wire.tensor_parts import contents_parts
from tests.unit.ps_support import started
from tests.unit.replication_pair import MINE, TABLES, Pair, job

WORKER = Member(Role.WORKER, "worker-0", "a", "127.0.0.1:1")


def push_stream() -> tuple[list[Chunk], Callable[[Sequence[Chunk]], Any]]:
    tables = {
        table.name: TablePush(
            MINE[table.name], np.ones(table.layout.count_elements(MINE[table.name]), np.float32)
        )
        for table in TABLES
    }
    step = SendPush(ShardPush(1, 0, tables, seq=1), 1, frozenset())
    view = started(job(), MINE)[0].view

    def decode(chunks: Sequence[Chunk]) -> Any:
        with PushStaging(1 << 20, lambda: 0).open_push(view) as decoder:
            for chunk in chunks:
                decoder.read_chunk(chunk)
            return decoder.finish()

    return list(encode_push(job(), WORKER, step)), decode


@pytest.mark.parametrize(
    ("table", "merged", "finite"),
    [
        (Table("w", (4,)), 1, True),
        (Table("w", (4,)), 2, False),
        (Table("w", (4,), allow_nonfinite=True), 1, False),
    ],
)
def test_a_push_says_where_a_look_was_taken_as_it_was_copied(table: Table, merged: int, finite: bool) -> None:
    """A sum of several pushes may be infinite though none of them was."""
    push = TablePush(np.arange(4, dtype=np.uint32), np.ones(4, np.float32))
    step = SendPush(ShardPush(1, 0, {"w": push}, seq=1, merged=merged), 1, frozenset())
    (chunk,) = encode_push(Job("test", [table]), WORKER, step)
    assert chunk.header is not None
    assert chunk.header.finite == finite


def ship_stream() -> tuple[list[Chunk], Callable[[Sequence[Chunk]], Any]]:
    pair = Pair(job())
    [batch] = pair.load().batches
    assert len(batch.copies) == len(TABLES)
    return list(encode_batch(batch)), lambda chunks: decode_batch(chunks, pair.job)


def restore_stream() -> tuple[list[Chunk], Callable[[Sequence[Chunk]], Any]]:
    table = TABLES[1]
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    store.loading[:] = 3
    ids = np.array([0, 2], np.uint32)
    contents = store.copy_blocks(ids)
    assert contents.steps is not None
    parts = contents_parts(contents)
    copy = OwedCopy(3, "ps-1@a", BlockState(table.name, ids, 7), PullBuffer(table))
    view = ShardView(3, {table.name: store}, 0)
    return list(encode_copy(WORKER, copy, parts)), lambda chunks: decode_copy(iter(chunks), view)


@pytest.mark.parametrize("made", [push_stream, ship_stream, restore_stream])
def test_no_part_of_a_stream_is_taken_for_the_whole(made: Any) -> None:
    chunks, decode = made()
    chunks = [decode_chunk(encode_chunk(chunk)) for chunk in chunks]
    assert sum(chunk.header is not None for chunk in chunks) > 1
    decode(chunks)
    for count in range(len(chunks)):
        with pytest.raises(ScarError):
            decode(chunks[:count])
