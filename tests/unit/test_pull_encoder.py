"""What a pull brings is the same whether it travels in messages or lies in memory that both sides share."""

from __future__ import annotations

import numpy as np
import pytest

import scar
from scar.errors import InvalidRequest
from scar.keyed_rows import mix_keys
from scar.tables import Table
from scar.v1.ps_pb2 import TensorHeader
from scar.wire.codec import decode_chunk
from scar_ps.core.block_store import NO_LOCK, StoreSlice
from scar_ps.core.keyed_store import make_store
from scar_ps.core.push_steps import apply_part
from scar_ps.wire import pull_encoder
from scar_ps.wire.pull_encoder import SegmentWriter, encode_blocks

PLAIN = Table("plain", (12, 5), blocks=scar.rows(3))
RAGGED = Table("ragged", (11, 5), blocks=scar.rows(3))
KEYED = Table("keyed", keys="int64", dim=4, capacity=64)
NONE = np.empty(0, np.float32)


def filled(table: Table) -> StoreSlice:
    """All blocks of a store, with values that differ."""
    store = make_store(table, np.arange(table.blocks, dtype=np.uint32), NO_LOCK, seed=1)
    if table.keys is None:
        store.values[...] = np.random.default_rng(0).normal(size=len(store.values))
    else:
        positions, rows = store.locate_rows(np.sort(mix_keys(np.arange(9))))
        apply_part(StoreSlice(store, positions, np.arange(36, dtype=np.float32), rows), table.rule, 0, int)
    return StoreSlice(store, None, NONE)


def parts() -> dict[str, StoreSlice]:
    plain, ragged, keyed = filled(PLAIN), filled(RAGGED), filled(KEYED)
    images = np.sort(mix_keys(np.arange(5, 12)))  # some of keys without a row
    return {
        "all blocks": plain,
        "some blocks": StoreSlice(plain.store, np.array([0, 2]), NONE),
        "neighbours": StoreSlice(plain.store, np.array([1, 2, 3]), NONE),
        "ragged blocks": StoreSlice(ragged.store, np.array([1, 3]), NONE),
        "rows": StoreSlice(plain.store, np.array([0, 1]), NONE, np.array([1, 2, 5])),
        "keys": StoreSlice(keyed.store, *keyed_slice(keyed.store, images)),
        "keyed blocks": keyed,
    }


def keyed_slice(store, images):
    positions, rows = store.locate_rows(images)
    return positions, NONE, rows


def received(part: StoreSlice, room: bytearray | None, short: bool) -> tuple[TensorHeader, bytes]:
    """Header and data of all chunks."""
    segment = None if room is None else SegmentWriter(b"k" * 16, memoryview(room))
    header, data = None, b""
    for parts in encode_blocks(TensorHeader(), part, segment, short):
        chunk = decode_chunk(b"".join(parts))
        header = header or chunk.header
        if room is None:
            data += chunk.data
        else:
            assert not chunk.data
            data += room[chunk.shared.offset : chunk.shared.offset + chunk.shared.bytes]
    return header, data


@pytest.mark.parametrize("piece", [16, 4 << 20])
@pytest.mark.parametrize("name", parts())
def test_shared_memory_gets_what_messages_carry(name: str, piece: int, monkeypatch):
    monkeypatch.setattr(pull_encoder, "PIECE_BYTES", piece)
    part = parts()[name]
    for short in [False, True] if name != "keyed blocks" else [False]:
        header, data = received(part, None, short)
        room = bytearray(len(data))
        assert received(part, room, short) == (header, data)
        assert any(room)


def test_a_segment_without_room_is_refused():
    with pytest.raises(InvalidRequest, match="that are shared"):
        received(parts()["all blocks"], bytearray(12 * 5 * 4 - 1), False)


@pytest.mark.parametrize("name", parts())
def test_one_message_has_what_pieces_have(name: str, monkeypatch: pytest.MonkeyPatch):
    part = parts()[name]
    monkeypatch.setattr(pull_encoder, "CHUNK_BYTES", 16)
    for short in [False, True] if name != "keyed blocks" else [False]:
        header, data = received(part, None, short)
        (message,) = encode_blocks(TensorHeader(), part, None, short, whole=True)
        chunk = decode_chunk(b"".join(message))
        assert (chunk.header, bytes(chunk.data)) == (header, data)
        with monkeypatch.context() as patch:
            patch.setattr(pull_encoder, "WHOLE_BYTES", len(data) - 1)
            assert len(list(encode_blocks(TensorHeader(), part, None, short, whole=True))) > 1


def test_of_no_block_there_is_a_header():
    part = StoreSlice(filled(PLAIN).store, np.empty(0, np.int64), NONE)
    for whole in (False, True):
        (message,) = encode_blocks(TensorHeader(), part, whole=whole)
        chunk = decode_chunk(b"".join(message))
        assert (chunk.header.table, chunk.header.bytes, len(chunk.data)) == ("plain", 0, 0)
