"""Jobs and epochs in the store; where lost blocks come back from; epochs as members ask for them."""

import threading

import numpy as np
import pytest

from scar.codec import job_to_proto
from scar.errors import AlreadyExists, CorruptCheckpoint, InvalidRequest, JobExists, JobNotFound
from scar.placement import Source
from scar.tables import Checkpoint, Job, Table, given
from scar.v1 import types_pb2
from scar.v1.checkpoint_pb2 import Manifest
from scar_recovery.archive import Archive, Jobs
from scar_recovery.chronicle import Chronicle
from scar_recovery.plans import Saved, sources
from scar_runtime.objects import Group, Payload, encode_object, object_key, object_ref
from scar_runtime.records import create_record, numbered
from tests.framework.recovery import MemoryStore

JOB = Job("test", [Table("a", (8, 2)), Table("b", 4)], shards=2)


def test_job_is_created_once() -> None:
    store = MemoryStore()
    jobs = Jobs(store, "scar")
    assert jobs.current() is None
    jobs.declare(JOB, {}, resume=False)
    assert jobs.current() is None
    jobs.run(JOB)
    current = Jobs(store, "scar").current()
    assert current is not None
    assert job_to_proto(current) == job_to_proto(JOB)
    assert Jobs(store, "other").current() is None
    jobs.declare(JOB, {}, resume=False)  # its first answer was lost, and nothing has begun
    create_record(store.under("test"), "epochs/00000001", types_pb2.Epoch(number=1, job="test"))
    with pytest.raises(JobExists):
        jobs.declare(JOB, {}, resume=False)
    jobs.declare(JOB, {}, resume=True)
    with pytest.raises(JobExists, match="another description"):
        jobs.declare(Job("test", [Table("a", (9, 2))], shards=2), {}, resume=True)
    with pytest.raises(JobNotFound):
        jobs.declare(Job("new", JOB.tables), {}, resume=True)


def test_given_arrays_are_durable_before_the_job_exists() -> None:
    store = MemoryStore()
    job = Job("test", [Table("a", (2, 2), init=given(np.ones((2, 2), np.float32)))])
    raw = np.ones(4, np.float32).tobytes()
    with pytest.raises(InvalidRequest):
        Jobs(store, "scar").declare(job, {"a": raw[:-1]}, resume=False)
    assert "test/job" not in store.objects
    Jobs(store, "scar").declare(job, {"a": raw}, resume=False)
    assert store.objects["test/init/a"] == raw
    assert list(store.objects).index("test/init/a") < list(store.objects).index("test/job")


def save(store: MemoryStore, number: int, ids: list[int], clock: int, full: bool = False) -> None:
    """A manifest with all older objects and one that holds these blocks of table a."""
    group = Group("a", np.array(ids, np.uint32), clock, {"w@1": 10 * clock}, "ps-0@1")
    payload = Payload(np.zeros(2 * len(ids), np.float32), {}, np.zeros(len(ids), np.int64))
    encoded = encode_object(JOB, [(group, payload)])
    key = object_key(1, "ps-0@1", number)
    job_store = store.under("test")
    job_store.put(key, list(encoded.parts))
    older = Manifest()
    if number > 1:
        from scar_runtime.running import read_manifest

        older = read_manifest(job_store, number - 1)
    refs = [*older.objects, object_ref(key, encoded, [group], "ps-0@1", 1, number)]
    manifest = Manifest(number=number, parent=number - 1, job="test", clock=clock, full=full, objects=refs)
    create_record(job_store, numbered("manifests", number), manifest)


def test_lost_blocks_come_from_their_newest_object() -> None:
    store = MemoryStore()
    archive = Archive(store, JOB)
    nothing = archive.saved(full=False)
    assert (nothing.manifest, nothing.clock) == (0, 0)
    save(store, 1, [0, 1, 2, 3], 5)
    save(store, 2, [2, 6], 7)
    saved = archive.saved(full=False)
    assert (saved.manifest, saved.clock) == (2, 7)
    groups = [group for _, group in sources(JOB, {"ps-1@1": np.array([1, 2, 7, 9]), "ps-0@1": np.array([0, 3])}, saved)]
    found = {(g.former_owner, g.table, tuple(g.ids.tolist())): (g.source, g.clock, g.watermark.get("w@1", 0)) for g in groups}
    assert found == {
        ("ps-0@1", "a", (0, 3)): (Source.OBJECT, 5, 50),
        ("ps-1@1", "a", (1,)): (Source.OBJECT, 5, 50),
        ("ps-1@1", "a", (2,)): (Source.OBJECT, 7, 70),
        ("ps-1@1", "a", (7,)): (Source.INITIAL, 0, 0),
        ("ps-1@1", "b", (1,)): (Source.INITIAL, 0, 0),
    }
    assert {g.object_key for g in groups if g.source == Source.OBJECT} == {object_key(1, "ps-0@1", n) for n in (1, 2)}


def test_full_recovery_takes_the_newest_consistent_manifest() -> None:
    store = MemoryStore()
    archive = Archive(store, Job("test", JOB.tables, recovery="full", checkpoint=Checkpoint(selection="full")))
    save(store, 1, [0, 1], 5, full=True)
    save(store, 2, [2], 7)
    assert archive.saved(full=True).manifest == 1
    assert archive.saved(full=False).manifest == 2


def test_saved_is_one_request_when_it_is_warm() -> None:
    store = MemoryStore()
    save(store, 1, [0, 1], 5)
    archive = Archive(store, JOB)
    archive.warm()
    before = store.fuse.steps
    archive.saved(full=False)
    assert store.fuse.steps - before == 1


def test_create_tells_who_was_first() -> None:
    archive = Archive(MemoryStore(), JOB)
    mine = types_pb2.Epoch(number=1, job="test", author="me")
    assert archive.create_epoch(mine) is mine
    assert archive.create_epoch(types_pb2.Epoch(number=1, job="test", author="other")).author == "me"
    assert archive.has_epoch(1)
    assert not archive.has_epoch(2)


def test_a_round_that_is_being_committed_cannot_change_what_was_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    save(store, 1, [0, 1], clock=3)
    archive = Archive(store, JOB)
    sealed = archive.sealed(False, "recovery")
    assert sealed.manifest == 2, "the number that the round wanted"
    assert [origin.clock for origin in sealed.origins("a", np.array([0], np.uint32))] == [3]
    with pytest.raises(AlreadyExists):
        save(store, 2, [0], clock=4)
    read, faster = archive.saved, [lambda: save(store, 3, [1], clock=5)]

    def overtaken(full: bool) -> Saved:
        found = read(full)
        if faster:
            faster.pop()()
        return found

    monkeypatch.setattr(archive, "saved", overtaken)
    sealed = archive.sealed(False, "recovery")
    assert sealed.manifest == 4, "a round was faster, and is part of it"
    assert [origin.clock for origin in sealed.origins("a", np.array([1], np.uint32))] == [5]


def test_what_was_never_saved_is_sealed_too() -> None:
    archive = Archive(MemoryStore(), JOB)
    sealed = archive.sealed(False, "recovery")
    assert sealed.manifest == 1
    assert [origin.object_key for origin in sealed.origins("a", np.arange(8, dtype=np.uint32))] == [""]


def test_epoch_of_another_job_is_refused() -> None:
    store = MemoryStore()
    create_record(store.under("test"), "epochs/00000001", types_pb2.Epoch(number=1, job="other"))
    with pytest.raises(CorruptCheckpoint):
        Archive(store, JOB).epoch(1)


def chronicle(newest: int) -> Chronicle:
    """Epochs 1 to ``newest``; only the last is in memory."""
    found = Chronicle(lambda number: types_pb2.Epoch(number=number))
    found.append(types_pb2.Epoch(number=newest))
    return found


def test_epochs_come_in_order_without_gaps() -> None:
    epochs = chronicle(5)
    assert [epoch.number for epoch in epochs.after(0, 0)] == [5]
    assert [epoch.number for epoch in epochs.after(2, 0)] == [3, 4, 5]
    assert epochs.after(5, 0) == []
    assert epochs.after(9, 0) == []


def test_waits_for_the_next_epoch() -> None:
    epochs = chronicle(5)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.extend(epoch.number for epoch in epochs.after(5, 10.0)))
    waiting.start()
    epochs.append(types_pb2.Epoch(number=6))
    waiting.join(5.0)
    assert found == [6]


def test_closed_chronicle_holds_nobody() -> None:
    epochs = chronicle(5)
    epochs.close()
    assert epochs.after(5, 30.0) == []
