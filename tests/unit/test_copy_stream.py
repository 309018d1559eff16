"""Blocks from a worker on the wire: memory is taken for what is awaited, and every bit is checked."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from scar.errors import InvalidRequest, NotServing, ScarError, ShapeMismatch, UnknownTable
from scar.tables import Table, adam
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


SLOTTED = Table("w", (6, 2), rule=adam(0.1))
PARTS = {
    "values": VALUES,
    "slot:first": VALUES + 10,
    "slot:second": VALUES + 20,
    "steps": np.array([5, 6], np.int64),
}


def decode_parts(parts: Mapping[str, np.ndarray], loading: int = 3, **changes: Any) -> CopyReceived:
    store = BlockStore(SLOTTED, np.arange(6, dtype=np.uint32))
    store.loading[:] = loading
    chunks = [
        chunk
        for name, part in parts.items()
        for chunk in stream(
            part, **({"part": name, "dtype": part.dtype.name, "crc32": zlib.crc32(part.tobytes())} | changes)
        )
    ]
    return decode_copy(iter(chunks), ShardView(3, {"w": store}, 0))


def test_slots_and_steps_arrive_with_the_values() -> None:
    received = decode_parts(PARTS)
    contents = received.contents
    found = {"values": contents.values, "steps": contents.steps}
    found |= {f"slot:{name}": slot for name, slot in contents.slots.items()}
    assert received.flaw == ""
    assert {name: part.tolist() for name, part in found.items()} == {
        name: part.tolist() for name, part in PARTS.items()
    }
    assert len(decode_parts(PARTS, loading=0).contents.slots) == 0, "they are not awaited"


@pytest.mark.parametrize("name", PARTS)
def test_values_without_their_slots_are_flawed(name: str) -> None:
    some = {other: part for other, part in PARTS.items() if other != name}
    assert decode_parts(some).flaw == f"{name} are missing"


def test_a_wrong_checksum_of_a_slot_is_told() -> None:
    assert decode_parts(PARTS, crc32=7).flaw == "their checksum is wrong"


@pytest.mark.parametrize(
    "parts",
    [
        {"slot:third": VALUES},
        {"saved": VALUES},
        {"slot:first": VALUES[:2]},
        {"steps": VALUES},
        {"steps": np.zeros(1, np.int64)},
    ],
)
def test_a_part_that_the_table_does_not_have_is_refused(parts: dict[str, np.ndarray]) -> None:
    with pytest.raises(ShapeMismatch):
        decode_parts(parts)


def test_one_stream_is_one_table() -> None:
    for other in ({"clock": 8}, {"epoch": 2}, {"worker": "worker-1"}):
        with pytest.raises(InvalidRequest, match="one table"):
            decode(iter([*stream(), *stream(**other)]))
    with pytest.raises(ShapeMismatch, match="came twice"):
        decode(iter([*stream(), *stream()]))
    with pytest.raises(InvalidRequest, match="first"):
        decode(iter([]))
