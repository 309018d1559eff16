"""Records: what is written comes back, what is damaged is refused."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from scar.errors import AlreadyExists, CorruptCheckpoint, ObjectNotFound, StoreError
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.ps_pb2 import ObjectRef
from scar.v1.types_pb2 import Epoch
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import numbered
from scar_runtime.store.records import (
    create_record,
    decode_record,
    encode_record,
    get_record,
    newest,
    numbers,
    put_record,
)

MANIFEST = Manifest(
    number=7,
    job="mnist",
    author="0123456789ab",
    full=True,
    objects=[ObjectRef(key="objects/a", bytes=1 << 40)],
    plan={"fraction": 0.125, "every": 20, "reason": "as the budget allows"},
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}").under("mnist")


def test_round_trip_keeps_large_numbers_and_bytes() -> None:
    epoch = Epoch(
        number=2**63, moved=[{"table": "w", "block_ids": b"\x00\xff\x80", "watermark": {"w@1": 2**64 - 1}}]
    )
    assert decode_record(Epoch, encode_record(epoch)) == epoch
    assert decode_record(Manifest, encode_record(MANIFEST)) == MANIFEST


def test_a_record_is_two_lines_for_people() -> None:
    head, body, rest = encode_record(MANIFEST).split(b"\n")
    assert head == b"scar2 Manifest %08x" % zlib.crc32(body)
    assert body.startswith(b'{"number"')
    assert rest == b""


def test_every_bit_flip_and_every_cut_is_refused() -> None:
    data = encode_record(MANIFEST)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreError):
            decode_record(Manifest, bytes(flipped))
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            decode_record(Manifest, data[:length])


def test_another_kind_is_refused() -> None:
    with pytest.raises(CorruptCheckpoint, match="no Epoch"):
        decode_record(Epoch, encode_record(MANIFEST))


@pytest.mark.parametrize("newer", [b"scar3 Manifest %08x\n%s\n", b"scar2 Manifest %08x\n%s\n"])
def test_a_newer_format_says_so(newer: bytes) -> None:
    body = b'{"number": "7", "invented_later": 1}'
    with pytest.raises(StoreError, match="newer SCAR") as caught:
        decode_record(Manifest, newer % (zlib.crc32(body), body), "manifests/00000007")
    assert not isinstance(caught.value, CorruptCheckpoint)
    assert "Upgrade" in caught.value.next_step


def test_an_older_format_is_refused_by_name() -> None:
    older = encode_record(MANIFEST).replace(b"scar2", b"scar1")
    with pytest.raises(CorruptCheckpoint, match="manifests/00000007 is of format 1") as caught:
        decode_record(Manifest, older, "manifests/00000007")
    assert "begin it anew" in caught.value.next_step


def test_create_once_then_put_over_it(store: Store) -> None:
    key = numbered("manifests", 7)
    assert key == "manifests/00000007"
    create_record(store, key, MANIFEST)
    with pytest.raises(AlreadyExists):
        create_record(store, key, MANIFEST)
    assert get_record(store, key, Manifest) == MANIFEST
    put_record(store, key, Manifest(number=8))
    assert get_record(store, key, Manifest).number == 8
    with pytest.raises(ObjectNotFound, match="00000009"):
        get_record(store, numbered("manifests", 9), Manifest)


def test_newest_compares_numbers_not_names(store: Store) -> None:
    assert newest(store, "epochs") == 0
    for number in (1, 2, 99_999_999, 100_000_000):
        create_record(store, numbered("epochs", number), Epoch(number=number))
    store.put("epochs/notes.txt", b"by a person")
    assert newest(store, "epochs") == 100_000_000
    assert numbers(store, "epochs") == [1, 2, 99_999_999, 100_000_000]


@pytest.mark.parametrize(
    "body", [b'{"job": "\xff"}', b'{"job": ' + b"[" * 100_000], ids=["no UTF-8", "nested"]
)
def test_a_body_that_cannot_be_read_is_typed_whatever_its_checksum(body: bytes) -> None:
    with pytest.raises(StoreError):
        decode_record(Manifest, b"scar2 Manifest %08x\n%s\n" % (zlib.crc32(body), body), "manifests/00000007")
