"""What else the store has of blocks whose newest copy cannot be read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import StoreUnavailable
from scar.tables import Job, Table, constant, momentum
from scar_runtime.checkpoint.damage import unreadable_blocks, write_patches
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint, load_newest
from scar_runtime.store.layout import object_key
from tests.framework.recovery import MemoryStore

pytestmark = pytest.mark.usefixtures("digest_per_block")

JOB = Job("test", [Table("w", (8, 2), rule=momentum(0.1), init=constant(3.0))])
RECORD = 2 * 2 * 4 + 8  # bytes: values and velocity of two float32, the step


def ids(*blocks: int) -> np.ndarray:
    return np.array(blocks, np.uint32)


def write(store: MemoryStore, number: int, blocks: list[int], drop: int = 0) -> str:
    """Manifest ``number`` with the objects of the one before, but for the first ``drop``, and one with
    these blocks.
    """
    older = list(load_newest(store, JOB).manifest.objects)[drop:]
    group = BlockState("w", ids(*blocks), number, {"w@1": 10 * number}, "ps-0@1")
    values = np.full(2 * len(blocks), number, "f4")
    payload = BlockPayload(values, {"velocity": -values}, np.full(len(blocks), number))
    encoded = EncodedObject(JOB, [(group, payload)])
    key = object_key(1, "ps-0@1", number)
    store.put_pieces(key, encoded.pieces())
    refs = [*older, object_ref(key, encoded, [group], "ps-0@1", 1, number)]
    manifest = Manifest(
        number=number, parent=number - 1, job="test", round=number, clock=number, objects=tuple(refs)
    )
    create_manifest(store, manifest)
    return key


def rot(store: MemoryStore, key: str, block: int) -> None:
    """Flip a bit in the record of the object's ``block``-th block."""
    full, last = store._full_key(key), store.get(key)
    at = len(last) - RECORD * (len_of(last) - block)
    store.objects[full] = last[:at] + bytes([last[at] ^ 1]) + last[at + 1 :]


def len_of(raw: bytes) -> int:
    return int(raw.split(b'"blocks":')[1].split(b",")[0])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore().under("test")


def patched(store: MemoryStore, *suspects: int) -> dict[int, float]:
    """Block -> its clock (x(0): 0), as a manifest gives it that lists the patches last; every value is
    read.
    """
    headers = HeaderCache(store, JOB)
    running = load_newest(store, JOB, headers)
    refs = write_patches(headers, running, {"w": ids(*suspects)}, "objects/compact-00000009-me", "me")
    after = running.extended(zip(refs, headers.get(refs), strict=True), Manifest())
    return {block: value(store, after, block) for block in suspects}


def value(store: MemoryStore, running: RunningCheckpoint, block: int) -> int:
    (origin,) = running.origins("w", ids(block))
    if origin.index < 0:
        return 0
    ref, header = running.objects[origin.index], running.headers[origin.index]
    payload, clock = read_blocks(store, ref, header, JOB, "w", ids(block)), origin.group.clock
    assert payload.values.tolist() == [clock or 3.0] * 2
    assert payload.slots["velocity"].tolist() == [-clock] * 2
    assert payload.steps.tolist() == [clock]
    assert origin.group.watermark == ({"w@1": 10 * clock} if clock else {})
    return clock


def test_only_damaged_blocks_are_found(store: MemoryStore) -> None:
    rot(store, write(store, 1, [0, 2, 4, 6]), 1)
    headers = HeaderCache(store, JOB)
    running = load_newest(store, JOB, headers)
    assert unreadable_blocks(headers, running, "w", ids(0, 1, 2, 3, 4, 6)).tolist() == [2]
    key = running.objects[0].key
    store.objects[store._full_key(key)] = store.get(key)[: -RECORD - 1]
    assert unreadable_blocks(headers, running, "w", ids(0, 2, 4, 6)).tolist() == [2, 4, 6]
    store.delete(key)
    assert unreadable_blocks(headers, running, "w", ids(0, 2, 4, 6)).tolist() == [0, 2, 4, 6]
    store.down = store._root.down = True
    with pytest.raises(StoreUnavailable):
        unreadable_blocks(headers, running, "w", ids(0))


def test_damaged_blocks_have_the_newest_copy_that_can_be_read(store: MemoryStore) -> None:
    first, second = write(store, 1, [0, 1, 2, 3]), write(store, 2, [1, 2])
    third = write(store, 3, [0, 1, 2, 3, 5], drop=2)  # which older manifests alone name copies of
    for block in range(5):
        rot(store, third, block)
    rot(store, second, 1)
    rot(store, first, 3)
    assert patched(store, 0, 1, 2, 3, 5) == {0: 1, 1: 2, 2: 1, 3: 0, 5: 0}


def test_a_copy_newer_than_the_named_one_does_not_come_back(store: MemoryStore) -> None:
    """A recovery that passed a manifest over has had reported as lost what only that manifest contains."""
    write(store, 1, [0, 1])
    rot(store, write(store, 2, [0, 1]), 0)
    newest = write(store, 3, [0, 1])
    seal = load_newest(store, JOB).manifest
    create_manifest(store, replace(seal, number=4, passed_over=(3,), objects=seal.objects[:-1]))
    assert store.get(newest)
    assert patched(store, 0, 1) == {0: 1, 1: 2}


def test_what_can_be_read_needs_no_patch(store: MemoryStore) -> None:
    write(store, 1, [0, 1])
    before = set(store.objects)
    assert patched(store, 0, 1, 7) == {0: 1, 1: 1, 7: 0}
    assert set(store.objects) == before


def test_an_object_that_is_gone_is_replaced_as_a_whole(store: MemoryStore) -> None:
    write(store, 1, [0, 1, 2])
    headers = HeaderCache(store, JOB)
    running = load_newest(store, JOB, headers)
    second = write(store, 2, [0, 1])
    running = load_newest(store, JOB, headers)
    store.delete(second)
    refs = write_patches(headers, running, {"w": ids(0, 1, 2)}, "objects/compact-00000003-me", "me")
    assert [(ref.blocks, ref.clock) for ref in refs] == [(2, 1)]
