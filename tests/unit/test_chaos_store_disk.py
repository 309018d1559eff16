"""Faults of the disk do what they say, and can be taken back where they should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import CorruptCheckpoint, ObjectNotFound, StoreUnavailable
from scar_chaos.core.counting_job import make_job
from scar_chaos.restore import restore_tables
from scar_chaos.targets.store_disk import StoreDisk
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.checkpoint.running_checkpoint import load_newest
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import MANIFESTS, numbered, object_key

JOB = make_job()
HOARD = """
import sys
input()
with open(sys.argv[1], "w") as file:
    file.write("x")
"""


@pytest.fixture
def disk(tmp_path: Path) -> StoreDisk:
    made = StoreDisk(tmp_path)
    made.create_link()
    return made


@pytest.fixture
def store(disk: StoreDisk, tmp_path: Path) -> Store:
    """With one manifest that holds all of table "rows"."""
    store = open_store(f"file://{tmp_path / 'store'}").under(JOB.name)
    group = BlockState("rows", np.arange(24, dtype=np.uint32), 3, {}, "ps-0@1")
    ref = save_rows(store, 1, group, 5)
    create_manifest(store, Manifest(number=1, job=JOB.name, round=1, objects=(ref,)))
    return store


def save_rows(store: Store, number: int, group: BlockState, value: int) -> ObjectRef:
    """An object with this value in all elements of the group."""
    values = np.full(3 * len(group.ids), value, JOB.table("rows").dtype)
    encoded = EncodedObject(JOB, [(group, BlockPayload(values, {}, np.zeros(len(group.ids), np.int64)))])
    key = object_key(1, "ps-0@1", number)
    store.put_pieces(key, encoded.pieces())
    return object_ref(key, encoded, [group], "ps-0@1", 1, number)


def test_the_store_goes_away_and_comes_back(disk: StoreDisk, store: Store) -> None:
    disk.take_away()
    with pytest.raises(StoreUnavailable):
        load_newest(store, JOB)
    disk.bring_back()
    disk.bring_back()
    assert len(load_newest(store, JOB).objects) == 1


@pytest.mark.parametrize("kind", ["corrupt_objects", "truncate_objects"])
def test_damage_is_found_by_its_checksum_and_known(disk: StoreDisk, store: Store, kind: str) -> None:
    getattr(disk, kind)(store, JOB)
    with pytest.raises(CorruptCheckpoint):
        restore_tables(store, JOB)
    assert len(disk.damaged) == 1
    assert (
        restore_tables(store, JOB, disk.damaged)["rows"] == 0
    ).all()  # x(0) in place of what cannot be read


def test_an_object_that_was_removed_is_done_without_when_every_manifest_names_it(store: Store) -> None:
    (older,) = load_newest(store, JOB).manifest.objects
    newer = save_rows(store, 2, BlockState("rows", np.arange(4, dtype=np.uint32), 4, {}, "ps-0@1"), 7)
    create_manifest(store, Manifest(number=2, job=JOB.name, round=2, objects=(older, newer)))
    store.delete(older.key)
    with pytest.raises(ObjectNotFound):
        restore_tables(store, JOB)
    rows = restore_tables(store, JOB, {older.key})["rows"]
    assert rows.tolist() == [7] * 4 + [0] * 20


def test_garbled_records_are_as_they_were_afterwards(disk: StoreDisk, store: Store) -> None:
    disk.garble_records(store, JOB)
    with pytest.raises(CorruptCheckpoint):
        load_newest(store, JOB)
    disk.restore_records()
    assert load_newest(store, JOB).manifest.number == 1


def test_what_was_written_over_garbage_stays(disk: StoreDisk, store: Store) -> None:
    disk.garble_records(store, JOB)
    store.put(numbered(MANIFESTS, 1), b"newer")
    disk.restore_records()
    assert store.get(numbered(MANIFESTS, 1)) == b"newer"


@pytest.mark.parametrize("freed", [False, True])
def test_on_a_full_disk_nothing_can_be_written_until_it_is_freed(
    disk: StoreDisk, tmp_path: Path, freed: bool
) -> None:
    writer = [sys.executable, "-c", HOARD, str(tmp_path / "file")]
    with subprocess.Popen(
        writer, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        disk.fill_up([process.pid])
        if freed:
            disk.free_space()
        _, problem = process.communicate("\n", timeout=30)
    assert ("File too large" in problem) is not freed
    assert process.returncode == (0 if freed else 1)
