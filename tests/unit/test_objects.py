"""Checkpoint objects: any blocks come back as they were; anything damaged, foreign or impossible is
refused with a type.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scar.blocks import BlockState
from scar.errors import CorruptCheckpoint, ObjectNotFound, ShapeMismatch, StoreError, WrongJob
from scar.tables import Job, Table, adam, layer, momentum, ragged, rows
from scar_runtime.checkpoint import object_reader, objects
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.object_reader import damaged_blocks, read_blocks, verify_object
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import object_key

OWNER = "ps-0@0123456789ab"
TABLES = {
    "uniform": Table("uniform", (40, 3), rule=momentum(0.1)),
    "short-end": Table("short-end", (41, 2), dtype="float64", blocks=rows(4), rule=adam()),
    "ragged": Table("ragged", (50,), blocks=ragged([0, 1, 4, 5, 20, 22, 50]), rule=adam()),
    "ragged-wide": Table("ragged-wide", (9, 2), dtype="float64", blocks=ragged([0, 1, 4, 9])),
    "counts": Table("counts", (30, 5), dtype="int32", blocks=ragged([0, 2, 30])),
    "totals": Table("totals", (12,), dtype="int64"),
    "layer": Table("layer", (6, 7), blocks=layer()),
}
JOB = Job("job", list(TABLES.values()))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}").under("job")


def payload_of(table: Table, ids: np.ndarray, seed: int = 0) -> BlockPayload:
    draw = np.random.default_rng(seed)
    count = int(table.layout.sizes[ids].sum())

    def array() -> np.ndarray:
        return draw.integers(-(2**31), 2**31 - 1, count).astype(table.dtype)

    return BlockPayload(
        array(), {name: array() for name in table.rule.slots}, draw.integers(0, 2**60, len(ids))
    )


def saved(store: Store, groups: list[tuple[BlockState, BlockPayload]], job: Job = JOB) -> ObjectRef:
    encoded = EncodedObject(job, groups)
    key = object_key(7, OWNER, 42)
    store.put_pieces(key, encoded.pieces())
    assert encoded.bytes == len(store.get(key)) == sum(len(piece) for _, piece in encoded.pieces())
    return object_ref(key, encoded, [group for group, _ in groups], OWNER, 7, 42)


def part_of(table: Table, payload: BlockPayload, held: np.ndarray, wanted: np.ndarray) -> BlockPayload:
    layout, at = table.layout.take(held), np.searchsorted(held, wanted)
    slots = {name: layout.gather(array, at) for name, array in payload.slots.items()}
    return BlockPayload(layout.gather(payload.values, at), slots, payload.steps[at])


def assert_same(found: BlockPayload, expected: BlockPayload) -> None:
    assert found.values.dtype == expected.values.dtype
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.steps, expected.steps)
    assert list(found.slots) == list(expected.slots)
    for name, array in expected.slots.items():
        np.testing.assert_array_equal(found.slots[name], array)


@st.composite
def subsets(draw: st.DrawFn) -> tuple[str, np.ndarray, np.ndarray]:
    """A table, blocks that an object holds, and some of these."""
    table = TABLES[draw(st.sampled_from(sorted(TABLES)))]
    held = sorted(draw(st.sets(st.integers(0, table.blocks - 1), min_size=1)))
    wanted = sorted(draw(st.sets(st.sampled_from(held))))
    return table.name, np.array(held, dtype=np.uint32), np.array(wanted, dtype=np.uint32)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    subsets(),
    st.sampled_from([1, 60, 1 << 14]),
    st.sampled_from([16, 100, 1 << 20]),
    st.sampled_from([0, 1 << 16]),
)
def test_any_blocks_come_back(
    store: Store, case: tuple[str, np.ndarray, np.ndarray], segment: int, piece: int, gap: int
) -> None:
    name, held, wanted = case
    table = TABLES[name]
    payload = payload_of(table, held, seed=len(held))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "SEGMENT_BYTES", segment)
        patch.setattr(objects, "PIECE_BYTES", piece)
        patch.setattr(object_reader, "READ_BYTES", piece)
        patch.setattr(object_reader, "GAP_BYTES", gap)
        ref = saved(store, [(BlockState(name, held, 3, {"worker-0@aa": 9}, OWNER), payload)])
        header = read_header(store, ref, JOB)
        assert_same(read_blocks(store, ref, header, JOB, name, wanted), part_of(table, payload, held, wanted))


def test_several_groups_keep_what_belongs_to_them(store: Store) -> None:
    table = TABLES["uniform"]
    first, second = np.array([0, 2, 30], np.uint32), np.array([1, 31], np.uint32)
    one, two = payload_of(table, first, 1), payload_of(table, second, 2)
    other = payload_of(TABLES["ragged"], np.array([3], np.uint32), 3)
    ref = saved(
        store,
        [
            (BlockState("uniform", first, 8, {"worker-0@aa": 5}, "ps-0@a"), one),
            (BlockState("ragged", np.array([3], np.uint32), 6, {}, "ps-0@a"), other),
            (
                BlockState("counts", np.empty(0, np.uint32), 0, {}, "ps-0@a"),
                payload_of(TABLES["counts"], np.empty(0, np.uint32)),
            ),
            (BlockState("uniform", second, 9, {"worker-0@aa": 7}, "ps-1@b"), two),
        ],
    )
    assert (ref.blocks, ref.clock, ref.owner, ref.epoch, ref.round) == (6, 0, OWNER, 7, 42)
    header = read_header(store, ref, JOB)
    assert header.blocks == 6
    assert [(group.table, group.clock, dict(group.watermark), group.owner) for group in header.groups] == [
        ("uniform", 8, {"worker-0@aa": 5}, "ps-0@a"),
        ("ragged", 6, {}, "ps-0@a"),
        ("uniform", 9, {"worker-0@aa": 7}, "ps-1@b"),
    ]
    mixed = read_blocks(store, ref, header, JOB, "uniform", np.array([1, 2, 30, 31], np.uint32))
    np.testing.assert_array_equal(
        mixed.values, np.concatenate([two.values[:3], one.values[3:9], two.values[3:6]])
    )
    np.testing.assert_array_equal(mixed.steps, [two.steps[0], one.steps[1], one.steps[2], two.steps[1]])
    assert_same(read_blocks(store, ref, header, JOB, "ragged", np.array([3], np.uint32)), other)
    with pytest.raises(CorruptCheckpoint, match="does not contain block 5 of table uniform"):
        read_blocks(store, ref, header, JOB, "uniform", np.array([2, 5], np.uint32))


def small(store: Store) -> ObjectRef:
    """An object of three tables, some hundred bytes long."""
    groups = []
    for name, ids in (("uniform", [1, 5]), ("ragged", [0, 2]), ("totals", [11])):
        held = np.array(ids, dtype=np.uint32)
        groups.append((BlockState(name, held, 4, {"worker-0@aa": 2}, OWNER), payload_of(TABLES[name], held)))
    return saved(store, groups)


def test_every_bit_flip_is_found(store: Store) -> None:
    ref = small(store)
    data = store.get(ref.key)
    damaged = Memory(data)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.data = bytes(flipped)
        with pytest.raises(StoreError):
            verify_object(damaged, ref, JOB)
    damaged.data = data
    assert verify_object(damaged, ref, JOB).blocks == 5


def test_every_cut_is_found(store: Store) -> None:
    ref = small(store)
    data = store.get(ref.key)
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpoint, match="cut off"):
            verify_object(Memory(data[:length]), ref, JOB)


def test_only_what_is_read_is_checked(store: Store) -> None:
    ref = small(store)
    data = bytearray(store.get(ref.key))
    data[-1] ^= 1  # the step of block 11 of "totals"
    store.put(ref.key, bytes(data))
    header = read_header(store, ref, JOB)
    assert len(read_blocks(store, ref, header, JOB, "uniform", np.array([1, 5], np.uint32)).values) == 6
    with pytest.raises(CorruptCheckpoint, match="block 11 of table totals is damaged") as caught:
        read_blocks(store, ref, header, JOB, "totals", np.array([11], np.uint32))
    assert ref.key in caught.value.message
    assert "verify" in caught.value.next_step


def test_an_object_of_another_job_or_table_is_refused(store: Store) -> None:
    ref = small(store)
    with pytest.raises(WrongJob, match="belongs to job 'job', not to 'other'"):
        read_header(store, ref, Job("other", JOB.tables))
    changed = [Table("uniform", (40, 3), rule=adam()), *JOB.tables[1:]]
    with pytest.raises(WrongJob, match="uniform"):
        read_header(store, ref, Job("job", changed))
    with pytest.raises(WrongJob, match="ragged"):
        read_header(store, ref, Job("job", [TABLES["uniform"]]))
    with pytest.raises(ObjectNotFound, match="gone"):
        read_header(store, ObjectRef(key="objects/gone", bytes=ref.bytes, header_bytes=ref.header_bytes), JOB)


def rewritten(store: Store, ref: ObjectRef, change: dict[str, object]) -> ObjectRef:
    """The object with another JSON text and a digest that fits it."""
    data = store.get(ref.key)
    size = struct.unpack_from("<I", data, 8)[0]
    text = json.dumps(json.loads(data[12 : 12 + size]) | change).encode()
    head = data[:8] + struct.pack("<I", len(text)) + text + data[12 + size : ref.header_bytes]
    store.put("objects/changed", [head, data[ref.header_bytes :]])
    return replace(
        ref,
        key="objects/changed",
        bytes=len(head) + len(data) - ref.header_bytes,
        header_bytes=len(head),
        digest=hashlib.sha256(head).digest(),
    )


def test_a_newer_format_says_so(store: Store) -> None:
    with pytest.raises(StoreError, match="newer SCAR") as caught:
        read_header(store, rewritten(store, small(store), {"format": 4, "groups": "unheard of"}), JOB)
    assert not isinstance(caught.value, CorruptCheckpoint)


@pytest.mark.parametrize(
    "group",
    [
        {"blocks": 1 << 60},
        {"blocks": -1},
        {"blocks": 1},
        {"blocks": "many"},
        {"watermark": 3},
        {"table": None},
    ],
)
def test_impossible_headers_allocate_nothing(store: Store, group: dict[str, object]) -> None:
    entry = {
        "table": "uniform",
        "dtype": "float32",
        "slots": ["velocity"],
        "blocks": 2,
        "clock": 0,
        "watermark": {},
        "owner": OWNER,
    }
    with pytest.raises((CorruptCheckpoint, WrongJob)):
        read_header(store, rewritten(store, small(store), {"groups": [entry | group]}), JOB)


@pytest.mark.parametrize(("size", "header"), [(1 << 50, 1 << 49), (100, 200), (0, 0), (1 << 20, 3)])
def test_impossible_sizes_in_a_manifest_are_refused_before_reading(size: int, header: int) -> None:
    with pytest.raises(CorruptCheckpoint, match="invalid"):
        read_header(Memory(b""), ObjectRef(key="objects/x", bytes=size, header_bytes=header), JOB)


def test_ids_beyond_the_table_are_refused(store: Store) -> None:
    wide = Job("job", [Table("uniform", (4000, 3), rule=momentum(0.1))])
    ids = np.array([3999], np.uint32)
    ref = saved(store, [(BlockState("uniform", ids, 0, {}, OWNER), payload_of(wide.tables[0], ids))], wide)
    with pytest.raises(CorruptCheckpoint, match="are invalid"):
        read_header(store, ref, JOB)


def test_a_payload_that_does_not_fit_is_refused() -> None:
    ids = np.array([1, 2], np.uint32)
    payload = payload_of(TABLES["uniform"], ids)
    for wrong in (
        BlockPayload(payload.values[:-1], payload.slots, payload.steps),
        BlockPayload(payload.values.astype("float64"), payload.slots, payload.steps),
        BlockPayload(payload.values, payload.slots, payload.steps[:1]),
    ):
        with pytest.raises(ShapeMismatch, match="uniform"):
            EncodedObject(JOB, [(BlockState("uniform", ids, 0, {}, OWNER), wrong)])


def test_neighbours_are_read_by_one_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SEGMENT_BYTES", 24)  # one record
    table = Table("t", (1000, 4))
    job = Job("job", [table])
    ids = np.arange(1000, dtype=np.uint32)
    ref = saved(store, [(BlockState("t", ids, 0, {}, OWNER), payload_of(table, ids))], job)
    counted = Memory(store.get(ref.key))
    header = read_header(counted, ref, job)
    read_blocks(counted, ref, header, job, "t", ids[::3].copy())
    assert len(counted.requests) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_reader, "GAP_BYTES", 1000)
        read_blocks(counted, ref, header, job, "t", np.array([3, 4, 5, 900, 901], np.uint32))
    assert [length for _, length in counted.requests[2:]] == [3 * 24, 2 * 24]


def test_blocks_are_read_and_refused_with_their_segment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "SEGMENT_BYTES", 240)  # ten records
    monkeypatch.setattr(object_reader, "GAP_BYTES", 0)
    table = Table("t", (100, 4))
    job = Job("job", [table])
    ids = np.arange(100, dtype=np.uint32)
    ref = saved(store, [(BlockState("t", ids, 0, {}, OWNER), payload_of(table, ids))], job)
    damaged = Memory(store.get(ref.key))
    header = read_header(damaged, ref, job)
    read_blocks(damaged, ref, header, job, "t", np.array([37, 52, 58], np.uint32))
    assert sorted(damaged.requests[1:]) == [(ref.header_bytes + 240 * at, 240) for at in (3, 5)]
    at = ref.header_bytes + 35 * 24
    damaged.data = damaged.data[:at] + bytes([damaged.data[at] ^ 1]) + damaged.data[at + 1 :]
    assert damaged_blocks(damaged, ref, header, job, "t", ids).tolist() == list(range(30, 40))
    with pytest.raises(CorruptCheckpoint, match="block 31 of table t is damaged"):
        read_blocks(damaged, ref, header, job, "t", np.array([31, 52], np.uint32))
    assert len(read_blocks(damaged, ref, header, job, "t", np.array([29, 40], np.uint32)).steps) == 2


def test_an_object_of_another_round_is_refused(store: Store) -> None:
    """Both are ours: what an older manifest names is no answer for a newer one."""
    ref = small(store)
    older = store.get(ref.key)
    group = BlockState("uniform", np.array([1, 5], np.uint32), 9, {}, OWNER)
    newer = saved(store, [(group, payload_of(TABLES["uniform"], group.ids, 7))])
    with pytest.raises(CorruptCheckpoint):
        read_header(Memory(older), newer, JOB)


def test_an_object_of_an_older_format_is_refused_by_name() -> None:
    raw = b"SCARBLK1" + bytes(92)
    with pytest.raises(CorruptCheckpoint, match="format 1") as caught:
        read_header(Memory(raw), ObjectRef(key="objects/x", bytes=200, header_bytes=100), JOB)
    assert "begin it anew" in caught.value.next_step


class Memory(Store):
    """One object in memory, whatever its key; counts range requests."""

    def __init__(self, data: bytes) -> None:
        super().__init__("memory:")
        self.data = data
        self.requests: list[tuple[int, int]] = []

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.requests.append((start, length))
        return self.data[start : start + length]

    def put(self, key: str, data: object) -> None:
        raise NotImplementedError

    create = get = list = delete = under = put


@pytest.mark.parametrize("clock", ["Infinity", "9" * 5000, "[" * 4000], ids=["infinite", "long", "nested"])
def test_a_header_of_impossible_numbers_is_corrupt_whatever_its_checksum(store: Store, clock: str) -> None:
    ref = small(store)
    data = store.get(ref.key)
    size = struct.unpack_from("<I", data, 8)[0]
    text = re.sub(rb'"clock": ?[0-9]+', b'"clock": ' + clock.encode(), data[12 : 12 + size])
    head = data[:8] + struct.pack("<I", len(text)) + text + data[12 + size : ref.header_bytes]
    store.put("objects/changed", [head, data[ref.header_bytes :]])
    size = len(head) + len(data) - ref.header_bytes
    digest = hashlib.sha256(head).digest()
    forged = replace(ref, key="objects/changed", bytes=size, header_bytes=len(head), digest=digest)
    with pytest.raises(CorruptCheckpoint):
        read_header(store, forged, JOB)
