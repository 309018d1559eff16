"""Blocks from a worker on the wire: memory is taken for what is awaited, and every bit is checked."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from scar.errors import InvalidRequest, NotServing, ScarError, ShapeMismatch, UnknownTable
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar_ps.core.block_store import BlockStore
from scar_ps.core.events import CopyReceived
from scar_ps.core.requests import ShardView
from scar_ps.wire.copy_stream import decode_copy

TABLE = Table("w", (6, 2))
IDS = np.array([1, 3], np.uint32)
VALUES = np.arange(4, dtype=np.float32)


def stream(values: np.ndarray = VALUES, **changes: Any) -> Iterator[Chunk]:
    fields = {
        "table": "w",
        "dtype": "float32",
        "block_ids": codec.ids_to_bytes(IDS),
        "epoch": 3,
        "worker": "worker-0",
        "incarnation": "a",
        "clock": 7,
        "crc32": zlib.crc32(VALUES.tobytes()),
    }
    return codec.chunks(ps_pb2.TensorHeader(**(fields | changes)), values)


def decode(chunks: Iterator[Chunk], loading: int = 3, owned: int = 6) -> CopyReceived:
    store = BlockStore(TABLE, np.arange(owned, dtype=np.uint32))
    store.loading[:] = loading
    return decode_copy(chunks, ShardView(3, {"w": store}, 0))


def test_it_arrives_as_it_was_sent() -> None:
    received = decode(stream())
    assert (received.sender.key, received.epoch, received.clock, received.flaw) == ("worker-0@a", 3, 7, "")
    assert received.ids.tolist() == IDS.tolist()
    assert received.contents.values.tobytes() == VALUES.tobytes()


def test_a_wrong_checksum_is_told_with_the_blocks() -> None:
    assert decode(stream(VALUES + 1)).flaw == "their checksum is wrong"


@pytest.mark.parametrize("state", [{"loading": 0}, {"owned": 2}])
def test_what_is_not_awaited_takes_no_memory(state: dict[str, int]) -> None:
    received = decode(stream(), **state)
    assert (len(received.ids), len(received.contents.values), received.flaw) == (0, 0, "")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"table": "x"}, UnknownTable),
        ({"epoch": 4}, NotServing),
        ({"dtype": "float64"}, ShapeMismatch),
        ({"block_ids": codec.ids_to_bytes(IDS[::-1])}, InvalidRequest),
        ({"block_ids": codec.ids_to_bytes(IDS[:1])}, ShapeMismatch),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], error: type[ScarError]) -> None:
    with pytest.raises(error):
        decode(stream(**changes))


def test_one_stream_is_one_table() -> None:
    with pytest.raises(InvalidRequest, match="one table"):
        decode(iter([*stream(), *stream()]))
    with pytest.raises(InvalidRequest, match="first"):
        decode(iter([]))
