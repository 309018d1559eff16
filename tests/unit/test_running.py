"""The running checkpoint: the newest object wins, compaction and pruning change nothing that a reader can
see.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar.blocks import BlockState
from scar.errors import CorruptCheckpoint, ObjectNotFound, StoreError
from scar.tables import Job, Table, momentum, rows
from scar_runtime.checkpoint import header_cache
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
from scar_runtime.checkpoint.running_checkpoint import (
    RunningCheckpoint,
    load_newest,
    load_readable,
    load_running,
    newest_manifest,
)
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import numbered

BLOCKS = (12, 5)
JOB = Job(
    "job", [Table("a", (BLOCKS[0], 2), rule=momentum(0.1)), Table("b", (BLOCKS[1] * 3 - 1,), blocks=rows(3))]
)
Held = dict[str, list[int]]

ROUNDS = st.lists(
    st.fixed_dictionaries(
        {"a": st.sets(st.integers(0, BLOCKS[0] - 1)), "b": st.sets(st.integers(0, BLOCKS[1] - 1))}
    ).map(lambda held: {table: sorted(ids) for table, ids in held.items()}),
    max_size=12,
)


def entry(number: int, held: Held, size: int = 1000) -> tuple[ObjectRef, ObjectHeader]:
    """An object of one round that holds these blocks; never stored."""
    groups = [
        BlockState(table, np.array(ids, np.uint32), number, {"w@1": number}, f"ps-{number}@aa")
        for table, ids in held.items()
        if ids
    ]
    header = ObjectHeader(tuple(ObjectSection(group) for group in groups))
    return ObjectRef(key=f"objects/{number}", bytes=size, round=number, blocks=header.blocks), header


def everything(running: RunningCheckpoint) -> dict[tuple[str, int], tuple[int, str]]:
    """Block -> clock and owner that a reader gets, by the origins."""
    found = {}
    for table in running.job.tables:
        for origin in running.origins(table.name, np.arange(table.blocks, dtype=np.uint32)):
            for block in origin.group.ids:
                assert (table.name, int(block)) not in found
                found[table.name, int(block)] = (origin.group.clock, origin.group.owner)
    assert len(found) == running.job.blocks
    return found


def by_hand(history: list[Held]) -> dict[tuple[str, int], tuple[int, str]]:
    found = {(table.name, block): (0, "") for table in JOB.tables for block in range(table.blocks)}
    for number, held in enumerate(history, 1):
        for table, ids in held.items():
            found |= {(table, block): (number, f"ps-{number}@aa") for block in ids}
    return found


@given(ROUNDS)
def test_the_newest_object_wins_with_and_without_pruning(history: list[Held]) -> None:
    listed, pruned = RunningCheckpoint(JOB), RunningCheckpoint(JOB)
    for number, held in enumerate(history, 1):
        listed.append(*entry(number, held))
        pruned = pruned.extended([entry(number, held)], Manifest(number=number))
    assert everything(listed) == everything(pruned) == by_hand(history)
    assert pruned.manifest.number == len(history)
    assert int(listed.live().sum()) == sum(clock > 0 for clock, _ in by_hand(history).values())
    dead = {listed.objects[index].key for index in np.flatnonzero(listed.live() == 0)}
    assert [ref.key for ref in pruned.objects] == [ref.key for ref in listed.objects if ref.key not in dead]
    assert (pruned.live() > 0).all()


def compacted(running: RunningCheckpoint, picked: list[int]) -> tuple[ObjectRef, ObjectHeader]:
    """What a compaction of these objects writes."""
    groups = []
    for table in running.job.tables:
        origins = running.origins(table.name, np.arange(table.blocks, dtype=np.uint32))
        groups += [origin.group for origin in origins if origin.index in picked]
    header = ObjectHeader(tuple(ObjectSection(group) for group in groups))
    return ObjectRef(key="objects/compact", bytes=10, blocks=header.blocks), header


@given(ROUNDS, ROUNDS, st.data())
def test_compaction_changes_nothing_for_a_reader(
    history: list[Held], later: list[Held], data: st.DataObject
) -> None:
    base = RunningCheckpoint(JOB)
    for number, held in enumerate(history, 1):
        base = base.extended([entry(number, held)], Manifest(number=number))
    count = len(base.objects)
    picked = sorted(data.draw(st.sets(st.integers(0, count - 1)))) if count else []
    ref, header = compacted(base, picked)
    now = base
    # rounds that were committed while the compaction was written
    for number, held in enumerate(later, len(history) + 1):
        now = now.extended([entry(number, held)], Manifest(number=number))
    after = now.rewritten(
        {base.objects[index].key for index in picked}, {one.key for one in base.objects}, ref, header
    )
    assert everything(after) == everything(now) == by_hand(history + later)
    assert not {base.objects[index].key for index in picked} & {one.key for one in after.objects}
    assert (after.live() > 0).all()


def test_a_rewritten_object_stands_behind_older_ones_that_hold_the_same_blocks() -> None:
    base = RunningCheckpoint(JOB)
    for number, held in enumerate([{"a": [0, 1]}, {"a": [1]}, {"a": [2]}], 1):
        base.append(*entry(number, held))
    after = base.rewritten(
        {"objects/2", "objects/3"}, {ref.key for ref in base.objects}, *compacted(base, [1, 2])
    )
    assert [ref.key for ref in after.objects] == ["objects/1", "objects/compact"]
    assert everything(after) == everything(base)


def test_compaction_that_would_drop_a_block_is_refused() -> None:
    base = RunningCheckpoint(JOB)
    for number, held in enumerate([{"a": [0, 1]}, {"a": [1, 2], "b": [0]}], 1):
        base.append(*entry(number, held))
    ref, header = compacted(base, [0])
    with pytest.raises(CorruptCheckpoint, match="just the blocks"):
        base.rewritten({"objects/1", "objects/2"}, {"objects/1", "objects/2"}, ref, header)
    with pytest.raises(CorruptCheckpoint, match="just the blocks"):  # block 1 would be an older one
        base.rewritten({"objects/2"}, {"objects/1", "objects/2"}, ref, header)


def test_compaction_brings_nothing_back_that_a_recovery_went_behind() -> None:
    base = RunningCheckpoint(JOB)
    for number, held in enumerate([{"a": [0, 1]}, {"a": [1, 2]}, {"a": [2]}], 1):
        base.append(*entry(number, held))
    ref, header = compacted(base, [1, 2])
    # a recovery found the header of objects/2 damaged: it put block 1 back from objects/1, and sealed that
    sealed = RunningCheckpoint(JOB)
    sealed.append(*entry(1, {"a": [0, 1]}))
    sealed.append(*entry(3, {"a": [2]}))
    with pytest.raises(CorruptCheckpoint, match="just the blocks"):
        sealed.rewritten({"objects/2", "objects/3"}, {one.key for one in base.objects}, ref, header)


def test_compaction_takes_mostly_dead_objects_within_its_limit() -> None:
    job = Job("job", [Table("a", (100,), dtype="float64")])  # 16 bytes a record
    running = RunningCheckpoint(job)
    for number in range(1, 10):
        running.append(*entry(number, {"a": [*range(10 * number, 10 * number + 10)]}, size=160))
    assert running.plan_compaction() == []
    newest = [block for number in range(1, 9) for block in range(10 * number, 10 * number + 10 - number)]
    running.append(*entry(10, {"a": newest}, size=16 * len(newest)))
    assert running.live().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10, len(newest)]
    assert running.live_bytes().tolist() == [16 * count for count in running.live()]
    assert running.plan_compaction() == []  # only four are mostly dead
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_module, "FEW", 4)
        assert running.plan_compaction() == [0, 1, 2, 3]
        assert running.plan_compaction(limit=16 * 6) == [0, 1, 2]
        assert running.plan_compaction(limit=16) == []
        patch.setattr(running_module, "FEW", 5)
        patch.setattr(running_module, "MANY", 9)
        assert running.plan_compaction() == [0, 1, 2, 3, 4]


def test_coverage() -> None:
    running = RunningCheckpoint(JOB)
    running.append(*entry(1, {"a": [*range(12)]}))
    running.append(*entry(2, {"b": [*range(5)]}))
    assert running.covered_by({"objects/1", "objects/2"})
    assert not running.covered_by({"objects/2"})
    running.append(*entry(3, {"a": [1]}))
    assert not running.covered_by({"objects/1", "objects/2"})


# --- in a store
# ------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}").under("job")


def save(store: Store, number: int, held: Held, full: bool = False, job: Job = JOB) -> Manifest:
    """One object and a manifest that names it after the parent's."""
    groups = []
    for table, ids in held.items():
        spec, array = job.table(table), np.array(ids, np.uint32)
        values = np.full(int(spec.layout.sizes[array].sum()), number, spec.dtype)
        group = BlockState(table, array, number, {"w@1": number}, "ps-0@aa")
        groups.append(
            (group, BlockPayload(values, dict.fromkeys(spec.rule.slots, values), np.full(len(array), number)))
        )
    encoded = EncodedObject(job, groups)
    store.put_pieces(f"objects/{number}", encoded.pieces())
    ref = object_ref(f"objects/{number}", encoded, [group for group, _ in groups], "ps-0@aa", 1, number)
    parent = read_manifest(store, number - 1).objects if number > 1 else []
    manifest = Manifest(
        number=number, parent=number - 1, job=job.name, round=number, full=full, objects=(*parent, ref)
    )
    create_manifest(store, manifest)
    return manifest


def test_loading_reads_each_header_once(store: Store) -> None:
    for number, held in enumerate([{"a": [0, 1], "b": [4]}, {"a": [1]}], 1):
        save(store, number, held)
    headers = HeaderCache(store, JOB)
    running = load_running(store, JOB, 2, headers)
    assert running.manifest.number == 2
    assert running.sources("a", np.arange(4, dtype=np.uint32)).tolist() == [0, 1, -1, -1]
    (first, second) = running.origins("a", np.array([0, 1], np.uint32))
    payload = read_blocks(
        store, running.objects[second.index], running.headers[second.index], JOB, "a", second.group.ids
    )
    assert payload.values.tolist() == [2, 2]
    assert (first.group.clock, dict(second.group.watermark)) == (1, {"w@1": 2})
    store.delete("objects/1")
    assert len(load_running(store, JOB, read_manifest(store, 2), headers).objects) == 2
    headers.keep({"objects/2"})
    with pytest.raises(ObjectNotFound, match="objects/1"):
        load_running(store, JOB, 2, headers)


def test_no_manifest_means_initial_values(store: Store) -> None:
    assert newest_manifest(store) is None
    for running in (load_newest(store, JOB), load_running(store, JOB, 0)):
        assert running.manifest.number == 0
        assert all(origin.index == -1 for origin in running.origins("a", np.arange(12, dtype=np.uint32)))


def test_a_damaged_manifest_or_object_falls_back(store: Store) -> None:
    for number in range(1, 5):
        save(store, number, {"a": [number]}, full=number == 2)
    damage(store, "manifests/00000004")
    newest = newest_manifest(store)
    assert newest is not None
    assert newest.number == 3
    damage(store, "objects/3")
    assert load_newest(store, JOB).manifest.number == 2
    consistent = newest_manifest(store, full=True)
    assert consistent is not None
    assert consistent.number == load_newest(store, JOB, full=True).manifest.number == 2
    store.delete("objects/1")
    with pytest.raises(CorruptCheckpoint, match="00000004"):
        load_newest(store, JOB)
    for number in (1, 2, 3):
        damage(store, numbered("manifests", number))
    with pytest.raises(CorruptCheckpoint, match="00000004"):
        newest_manifest(store)


def test_a_manifest_by_a_newer_version_is_not_passed_over(store: Store) -> None:
    save(store, 1, {"a": [1]})
    store.put("manifests/00000002", store.get("manifests/00000001").replace(b"scar2", b"scar9"))
    for load in (lambda: newest_manifest(store), lambda: load_newest(store, JOB)):
        with pytest.raises(StoreError, match="newer SCAR"):
            load()


def damage(store: Store, key: str) -> None:
    data = bytearray(store.get(key))
    data[len(data) // 4] ^= 4
    store.put(key, bytes(data))


def test_an_object_with_a_damaged_header_holds_nothing(store: Store) -> None:
    for number, held in enumerate([[1, 2, 3], [2, 3], [3]], 1):
        save(store, number, {"a": held})
    damage(store, "objects/2")
    running = load_readable(store, JOB, HeaderCache(store, JOB), seconds=0)
    assert (running.manifest.number, running.passed_over) == (3, [])
    assert running.unreadable == ["objects/2"]
    newest = [running.origins("a", np.array([block], np.uint32))[0].group.clock for block in (1, 2, 3)]
    assert newest == [1, 1, 3]
    store.delete("objects/1")
    damage(store, "objects/3")
    with pytest.raises((CorruptCheckpoint, ObjectNotFound)):
        load_readable(store, JOB, HeaderCache(store, JOB), seconds=0)


@pytest.mark.parametrize(("reads", "found"), [(4, []), (10**9, ["objects/2"])])
def test_damage_has_to_last(
    store: Store, monkeypatch: pytest.MonkeyPatch, reads: int, found: list[str]
) -> None:
    """What is garbled on its way for a moment is not given up."""
    save(store, 1, {"a": [1]})
    save(store, 2, {"a": [2]})
    left = [reads]
    read = header_cache.read_header

    def garbled(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
        if ref.key == "objects/2" and left[0] > 0:
            left[0] -= 1
            raise CorruptCheckpoint("<html>502</html>")
        return read(store, ref, job)

    monkeypatch.setattr(header_cache, "read_header", garbled)
    monkeypatch.setattr(running_module, "REREAD_SECONDS", 0.001)
    assert load_readable(store, JOB, HeaderCache(store, JOB), seconds=0.5).unreadable == found


def test_a_block_at_its_initial_value_is_covered_by_nothing() -> None:
    running = RunningCheckpoint(JOB)
    running.append(*entry(1, {"a": [*range(12)], "b": [0, 1, 2, 3]}))
    assert not running.covered_by({"objects/1"})
