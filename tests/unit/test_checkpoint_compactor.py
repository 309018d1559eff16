"""What may be deleted, and what a compaction writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar.blocks import BlockState
from scar.tables import Job
from scar_checkpoint.compactor import Compactor
from scar_checkpoint.core.retention import garbage_objects
from scar_checkpoint.garbage_collector import GarbageCollector
from scar_runtime.checkpoint import running_checkpoint as running_module
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import create_manifest, read_manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import (
    BlockPayload,
    EncodedObject,
    ObjectHeader,
    ObjectSection,
    object_ref,
)
from scar_runtime.checkpoint.running_checkpoint import load_newest, load_running
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import MANIFESTS, compact_key, numbered, object_key
from tests.unit.checkpoint_play import BLOCKS, A, B, job_with

# --- what may be collected
# -------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_garbage_is_never_what_a_remaining_manifest_names_or_a_coming_one_may_name(
    named: list[list[int]], keep: int, ahead: int
) -> None:
    def key(number: int) -> str:
        return object_key(1, "ps-0@aa", number)

    manifests = {
        number: Manifest(
            number=number, round=number + 3, objects=tuple(ObjectRef(key=key(one)) for one in objects)
        )
        for number, objects in enumerate(named, 1)
    }
    remaining = dict(list(manifests.items())[-keep:])
    newest = max(remaining)
    coming = [key(newest + 3 + step) for step in range(1, ahead + 1)] + [
        compact_key(newest, "rival"),
        "notes/by-a-person",
    ]
    found = garbage_objects([*map(key, range(newest + 4)), *coming], remaining)
    assert not {ref.key for manifest in remaining.values() for ref in manifest.objects} & set(found)
    assert not set(coming) & set(found)
    expected = {key(one) for one in range(newest + 4)} - {
        ref.key for manifest in remaining.values() for ref in manifest.objects
    }
    assert set(found) == expected
    assert garbage_objects([compact_key(newest - 17, "rival")], remaining) == (
        [compact_key(newest - 17, "rival")] if newest > 17 else []
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}").under("job")


def write(store: Store, job: Job, number: int, ids: list[int], full: bool = False) -> None:
    """Round ``number``: one object, one manifest after its parent."""
    array = np.array(ids, np.uint32)
    group = BlockState("w", array, number, {"w@1": number}, A.key)
    encoded = EncodedObject(
        job, [(group, BlockPayload(np.full(len(ids), number, "f4"), {}, np.zeros(len(ids), np.int64)))]
    )
    key = object_key(1, A.key, number)
    store.put_pieces(key, encoded.pieces())
    running = load_running(store, job, number - 1)
    after = running.extended(
        [
            (
                object_ref(key, encoded, [group], A.key, 1, number),
                ObjectHeader((ObjectSection(group),)),
            )
        ],
        Manifest(number=number, parent=number - 1, job=job.name, round=number, full=full),
    )
    create_manifest(store, replace(after.manifest, objects=tuple(after.objects)))


def collector_of(store: Store, job: Job, clock: list[float]) -> GarbageCollector:
    return GarbageCollector(store, job, HeaderCache(store, job), 30.0, now=lambda: clock[0])


def test_the_last_manifests_stay_restorable_and_the_rest_goes_after_its_grace(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 8):
        write(store, job, number, [number % 3])
    store.put(object_key(1, B.key, 6), b"of a round that failed")
    store.put(object_key(1, B.key, 8), b"of the round under way")
    collector = collector_of(store, job, clock)
    assert collector.collect_garbage(protected={1}) == [object_key(1, B.key, 6)]
    clock[0] = 29.0
    assert collector.collect_garbage(protected={1}) == []
    clock[0] = 31.0
    deleted = collector.collect_garbage(protected={1})
    assert deleted == [
        numbered(MANIFESTS, 2),
        numbered(MANIFESTS, 3),
        numbered(MANIFESTS, 4),
        object_key(1, A.key, 2),
    ]
    for number in (1, 5, 6, 7):
        running = load_running(store, job, number)
        for origin in running.origins("w", np.arange(3, dtype=np.uint32)):
            if origin.index >= 0:
                read_blocks(
                    store,
                    running.objects[origin.index],
                    running.headers[origin.index],
                    job,
                    "w",
                    origin.group.ids,
                )
    assert object_key(1, B.key, 8) in store.list("objects/")
    collector.collect_garbage(protected=set())
    clock[0] = 62.0
    assert collector.collect_garbage(protected=set()) == [numbered(MANIFESTS, 1), object_key(1, A.key, 1)]


def test_damaged_manifests_do_not_count_as_restorable(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 7):
        write(store, job, number, [number])
    store.put(numbered(MANIFESTS, 6), b"damaged")
    collector = collector_of(store, job, clock)
    collector.collect_garbage(set())
    clock[0] = 31.0
    assert collector.collect_garbage(set()) == [numbered(MANIFESTS, 1), numbered(MANIFESTS, 2)]
    assert load_newest(store, job).manifest.number == 5
    assert object_key(1, A.key, 6) in store.list("objects/")


def test_copies_that_recoveries_make_push_no_state_out(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 6):
        write(store, job, number, [number])
    for number in range(6, 20):  # the store let manifests be created, and no epoch
        copy = replace(read_manifest(store, 5), number=number, parent=number - 1, author="recovery")
        create_manifest(store, copy)
    collector = collector_of(store, job, clock)
    collector.collect_garbage(set())
    clock[0] = 31.0
    collector.collect_garbage(set())
    left = [int(key[-8:]) for key in store.list("manifests/")]
    assert {read_manifest(store, number).round for number in left} == {3, 4, 5}
    assert left[-3:] == [17, 18, 19], "a number that somebody may try to take again"
    assert len(left) == 5


def test_where_no_manifest_can_be_read_nothing_is_deleted(store: Store) -> None:
    job, clock = job_with(), [0.0]
    write(store, job, 1, [1])
    store.put(numbered(MANIFESTS, 1), b"damaged")
    assert collector_of(store, job, clock).collect_garbage(protected={1}) == []
    assert store.list("objects/") == [object_key(1, A.key, 1)]


def test_a_job_that_rolls_back_keeps_its_newest_consistent_manifest(store: Store) -> None:
    job, clock = job_with("full", recovery="full"), [0.0]
    for number in range(1, 9):
        write(store, job, number, [*range(BLOCKS)], full=number in (1, 3))
    collector = collector_of(store, job, clock)
    collector.collect_garbage(set())
    clock[0] = 31.0
    collector.collect_garbage(set())
    assert store.list("manifests/") == [numbered(MANIFESTS, number) for number in (3, 6, 7, 8)]
    assert store.list("objects/") == [object_key(1, A.key, number) for number in (3, 6, 7, 8)]


def test_a_written_compaction_holds_every_live_block(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 5):
        write(store, job, number, [number, 8, 9, 10, 11])
    collector = collector_of(store, job, clock)
    compactor = Compactor(store, job, "me@aa")
    running = load_newest(store, job)
    assert compactor.compact_objects(running, 1) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_module, "FEW", 3)
        rewrite = compactor.compact_objects(running, 1)
    assert rewrite is not None
    assert rewrite.old == {object_key(1, A.key, number) for number in (1, 2, 3)}
    after = rewrite.apply_to(running, 4)
    assert after is not None
    assert [ref.key for ref in after.objects] == [object_key(1, A.key, 4), compact_key(4, "me@aa")]
    for block in range(BLOCKS):
        ids = np.array([block], np.uint32)
        (before,), (now,) = running.origins("w", ids), after.origins("w", ids)
        assert (before.group.clock, before.group.watermark, before.group.owner) == (
            now.group.clock,
            now.group.watermark,
            now.group.owner,
        )
        if now.index >= 0:
            ref, header = after.objects[now.index], after.headers[now.index]
            assert read_blocks(store, ref, header, job, "w", ids).values.tolist() == [now.group.clock]
    assert collector.collect_garbage(set()) == []
    assert read_manifest(store, 4).number == 4
