"""Jobs and epochs in the store; where lost blocks come back from; epochs as members ask for them."""

import threading

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import (
    AlreadyExists,
    CorruptCheckpoint,
    Fenced,
    InvalidRequest,
    JobExists,
    JobNotFound,
    ObjectNotFound,
)
from scar.placement import BlockSource
from scar.tables import Checkpoint, Job, Table, given
from scar.v1 import types_pb2
from scar.wire.codec import job_to_proto
from scar_recovery import recovery_store
from scar_recovery.core.block_sources import find_sources
from scar_recovery.epoch_log import EpochLog
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from scar_recovery.recovery_store import RecoveryStore, SavedBlocks, kept_epochs
from scar_runtime.checkpoint import lost_checkpoint
from scar_runtime.checkpoint.initial_arrays import read_initial
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest, read_manifest
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.store.layout import numbered, object_key
from scar_runtime.store.records import create_record
from tests.framework.recovery import MemoryStore

JOB = Job("test", [Table("a", (8, 2)), Table("b", 4)], shards=2)


def test_job_is_created_once() -> None:
    store = MemoryStore()
    jobs = JobRegistry(store, "scar")
    assert jobs.find_running_job() is None
    jobs.declare_job(JOB, GivenArrays(), resume=False)
    assert jobs.find_running_job() is None
    jobs.record_run(JOB)
    current = JobRegistry(store, "scar").find_running_job()
    assert current is not None
    assert job_to_proto(current) == job_to_proto(JOB)
    assert JobRegistry(store, "other").find_running_job() is None
    jobs.declare_job(JOB, GivenArrays(), resume=False)  # its first answer was lost, and nothing has begun
    create_record(store.under("test"), "epochs/00000001", types_pb2.Epoch(number=1, job="test"))
    with pytest.raises(JobExists):
        jobs.declare_job(JOB, GivenArrays(), resume=False)
    jobs.declare_job(JOB, GivenArrays(), resume=True)
    with pytest.raises(JobExists, match="another description"):
        jobs.declare_job(Job("test", [Table("a", (9, 2))], shards=2), GivenArrays(), resume=True)
    with pytest.raises(JobNotFound):
        jobs.declare_job(Job("new", JOB.tables), GivenArrays(), resume=True)


def test_given_arrays_are_durable_before_the_job_exists() -> None:
    store = MemoryStore()
    job = Job("test", [Table("a", (2, 2), init=given(np.ones((2, 2), np.float32)))])
    raw = np.ones(4, np.float32).tobytes()
    with pytest.raises(InvalidRequest):
        JobRegistry(store, "scar").declare_job(job, GivenArrays({"a": raw[:-1]}), resume=False)
    assert "test/job" not in store.objects
    declared = JobRegistry(store, "scar").declare_job(job, GivenArrays({"a": raw}), resume=False)
    key = f"test/{declared.tables[0].init.key}"
    assert store.objects[key] == raw
    assert list(store.objects).index(key) < list(store.objects).index("test/job")


def test_a_job_keeps_the_arrays_with_which_it_began() -> None:
    store = MemoryStore()
    jobs = JobRegistry(store, "scar")
    job = Job("test", [Table("a", (2, 2), init=given(np.ones((2, 2), np.float32)))])
    begun = np.ones(4, np.float32).tobytes()
    other = np.zeros(4, np.float32).tobytes()
    jobs.declare_job(job, GivenArrays({"a": begun}), resume=False)
    jobs.declare_job(job, GivenArrays({"a": begun}), resume=False)  # its first answer was lost
    with pytest.raises(JobExists):
        jobs.declare_job(job, GivenArrays({"a": other}), resume=False)
    resumed = jobs.declare_job(job, GivenArrays({"a": other}), resume=True)
    ids = np.arange(2, dtype=np.uint32)
    assert read_initial(store.under("test"), resumed.tables[0], ids).tolist() == [1.0] * 4
    store.objects[f"test/{resumed.tables[0].init.key}"] = other
    with pytest.raises(CorruptCheckpoint, match="not the array"):
        read_initial(store.under("test"), resumed.tables[0], ids)


def save(store: MemoryStore, number: int, ids: list[int], clock: int, full: bool = False) -> None:
    """A manifest with all older objects and one that holds these blocks of table a."""
    group = BlockState("a", np.array(ids, np.uint32), clock, {"w@1": 10 * clock}, "ps-0@1")
    payload = BlockPayload(np.zeros(2 * len(ids), np.float32), {}, np.zeros(len(ids), np.int64))
    encoded = EncodedObject(JOB, [(group, payload)])
    key = object_key(1, "ps-0@1", number)
    job_store = store.under("test")
    job_store.put_pieces(key, encoded.pieces())
    older = Manifest()
    if number > 1:
        older = read_manifest(job_store, number - 1)
    refs = [*older.objects, object_ref(key, encoded, [group], "ps-0@1", 1, number)]
    manifest = Manifest(
        number=number, parent=number - 1, job="test", clock=clock, full=full, objects=tuple(refs)
    )
    create_manifest(job_store, manifest)


def test_lost_blocks_come_from_their_newest_object() -> None:
    store = MemoryStore()
    archive = RecoveryStore(store, JOB)
    nothing = archive.newest_saved(full=False)
    assert (nothing.manifest, nothing.clock) == (0, 0)
    save(store, 1, [0, 1, 2, 3], 5)
    save(store, 2, [2, 6], 7)
    saved = archive.newest_saved(full=False)
    assert (saved.manifest, saved.clock) == (2, 7)
    lost = {"ps-1@1": np.array([1, 2, 7, 9]), "ps-0@1": np.array([0, 3])}
    groups = [group for _, group in find_sources(JOB, lost, saved)]
    found = {
        (g.former_owner, g.table, tuple(g.ids.tolist())): (g.source, g.clock, g.watermark.get("w@1", 0))
        for g in groups
    }
    assert found == {
        ("ps-0@1", "a", (0, 3)): (BlockSource.OBJECT, 5, 50),
        ("ps-1@1", "a", (1,)): (BlockSource.OBJECT, 5, 50),
        ("ps-1@1", "a", (2,)): (BlockSource.OBJECT, 7, 70),
        ("ps-1@1", "a", (7,)): (BlockSource.INITIAL, 0, 0),
        ("ps-1@1", "b", (1,)): (BlockSource.INITIAL, 0, 0),
    }
    assert {g.object_key for g in groups if g.source == BlockSource.OBJECT} == {
        object_key(1, "ps-0@1", n) for n in (1, 2)
    }


def test_full_recovery_takes_the_newest_consistent_manifest() -> None:
    store = MemoryStore()
    archive = RecoveryStore(
        store, Job("test", JOB.tables, recovery="full", checkpoint=Checkpoint(selection="full"))
    )
    save(store, 1, [0, 1], 5, full=True)
    save(store, 2, [2], 7)
    assert archive.newest_saved(full=True).manifest == 1
    assert archive.newest_saved(full=False).manifest == 2


def test_saved_is_one_request_when_it_is_warm() -> None:
    store = MemoryStore()
    save(store, 1, [0, 1], 5)
    archive = RecoveryStore(store, JOB)
    archive.prefetch_manifests()
    before = store.fuse.steps
    archive.newest_saved(full=False)
    assert store.fuse.steps - before == 1


def test_create_tells_who_was_first() -> None:
    archive = RecoveryStore(MemoryStore(), JOB)
    mine = types_pb2.Epoch(number=1, job="test", author="me")
    assert archive.create_epoch(mine) is mine
    assert archive.create_epoch(types_pb2.Epoch(number=1, job="test", author="other")).author == "me"
    assert archive.has_epoch(1)
    assert not archive.has_epoch(2)


def test_a_round_that_is_being_committed_cannot_change_what_was_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    save(store, 1, [0, 1], clock=3)
    archive = RecoveryStore(store, JOB)
    sealed = archive.seal_checkpoint(False, "recovery", 2)
    assert sealed.manifest == 2, "the number that the round wanted"
    assert [group.state.clock for group in sealed.saved_groups("a", np.array([0], np.uint32))] == [3]
    with pytest.raises(AlreadyExists):
        save(store, 2, [0], clock=4)
    read, faster = archive._load_newest, [lambda: save(store, 3, [1], clock=5)]

    def overtaken(full: bool) -> tuple[int, SavedBlocks]:
        found = read(full)
        if faster:
            faster.pop()()
        return found

    monkeypatch.setattr(archive, "_load_newest", overtaken)
    sealed = archive.seal_checkpoint(False, "recovery", 2)
    assert sealed.manifest == 4, "a round was faster, and is part of it"
    assert [group.state.clock for group in sealed.saved_groups("a", np.array([1], np.uint32))] == [5]


@pytest.mark.parametrize("reads", [1, 2, 9])
def test_one_garbled_read_takes_nothing_back(reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that is whole in the store is the newest again as soon as it can be read."""
    store = MemoryStore()
    for number in (1, 2, 3):
        save(store, number, [0, number], clock=number)
    archive, left = RecoveryStore(store, JOB), [reads]
    get = MemoryStore.get

    def garbled(self: MemoryStore, key: str) -> bytes:
        if key == numbered("manifests", 3) and left[0]:
            left[0] -= 1
            return b"<html>502</html>"
        return get(self, key)

    monkeypatch.setattr(MemoryStore, "get", garbled)
    assert archive.newest_saved(full=False).manifest == (3 if reads == 1 else 2)
    left[0] = 0
    assert archive.newest_saved(full=False).manifest == 3
    sealed = archive.seal_checkpoint(False, "recovery", 2)
    assert (sealed.manifest, sealed.clock) == (4, 3)


def test_every_leader_knows_that_a_manifest_was_passed_over() -> None:
    """The copy says so itself, as its author may be gone before it has created an epoch."""
    store = MemoryStore()
    for number in (1, 2):
        save(store, number, [0, number], clock=number)
    assert not RecoveryStore(store, JOB).seal_checkpoint(False, "recovery", 2).passed_over
    save(store, 4, [0, 3], clock=4)
    store.objects["test/" + numbered("manifests", 4)] = b"cut"
    assert RecoveryStore(store, JOB).seal_checkpoint(False, "recovery", 2).manifest == 5
    again = RecoveryStore(store, JOB).newest_saved(full=False)
    assert (again.manifest, again.passed_over) == (5, True)
    save(store, 6, [0, 3], clock=6)
    assert not RecoveryStore(store, JOB).newest_saved(full=False).passed_over


def test_a_damaged_header_costs_the_blocks_of_its_object_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to cost the whole manifest, and all before it that name the object."""
    monkeypatch.setattr(recovery_store, "DAMAGE_SECONDS", 0)
    store = MemoryStore()
    for number in (1, 2, 3):
        save(store, number, [0, number] if number < 3 else [3], clock=number, full=True)
    cut = object_key(1, "ps-0@1", 2)
    store.objects[f"test/{cut}"] = store.objects[f"test/{cut}"][:20]
    archive = RecoveryStore(store, JOB)
    found = archive.seal_checkpoint(False, "recovery", 2)
    assert (found.manifest, found.passed_over) == (4, True), "shards take blocks for saved that are not"
    clocks = [found.saved_groups("a", np.array([block], np.uint32))[0].state.clock for block in (0, 1, 2, 3)]
    assert clocks == [1, 1, 0, 3]
    seal = read_manifest(store.under("test"), 4)
    assert cut not in {ref.key for ref in seal.objects}
    assert (seal.full, seal.passed_over) == (False, (3,))
    again = RecoveryStore(store, JOB).newest_saved(full=False)
    assert (again.manifest, again.passed_over) == (4, True)


def rot(store: MemoryStore, number: int) -> None:
    """The last block of this round's object."""
    key = f"test/{object_key(1, 'ps-0@1', number)}"
    store.objects[key] = store.objects[key][:-1] + b"x"


@pytest.mark.usefixtures("digest_per_block")
def test_sealed_suspects_can_be_read() -> None:
    store = MemoryStore()
    for number in (1, 2, 3):
        save(store, number, [0, number], clock=number)
    rot(store, 3)
    archive, block = RecoveryStore(store, JOB), np.array([3], np.uint32)
    key = object_key(1, "ps-0@1", 3)
    assert archive.find_unreadable(3, key, "a", np.array([0, 3], np.uint32)).tolist() == [3]
    assert archive.find_unreadable(7, key, "a", block).tolist() == [3], "its manifest is gone"
    assert archive.find_unreadable(2, key, "a", block).tolist() == [3], "its manifest does not name it"
    sealed = archive.seal_checkpoint(False, "recovery", 2, {"a": np.array([0, 3], np.uint32)})
    assert sealed.manifest == 4
    assert [group.state.clock for group in sealed.saved_groups("a", np.array([0], np.uint32))] == [3], (
        "it was whole"
    )
    (group,) = sealed.saved_groups("a", block)
    state = group.state
    assert (state.clock, dict(state.watermark), "compact" in group.object_key) == (0, {}, True)
    assert len(archive.find_unreadable(4, group.object_key, "a", block)) == 0
    again = archive.seal_checkpoint(False, "recovery", 2, {"a": np.array([0, 3], np.uint32)})
    assert again.saved_groups("a", block)[0].object_key == group.object_key, "it is written once"


def test_a_header_that_was_damaged_after_it_was_read_counts_as_the_store_has_it() -> None:
    store = MemoryStore()
    for number in (1, 2):
        save(store, number, [0, number], clock=number)
    archive, blocks = RecoveryStore(store, JOB), np.array([0, 2], np.uint32)
    archive.prefetch_manifests()
    key = object_key(1, "ps-0@1", 2)
    store.objects[f"test/{key}"] = b"x" + store.objects[f"test/{key}"][1:]
    assert archive.find_unreadable(2, key, "a", blocks).tolist() == [0, 2], "a shard cannot load from it"
    sealed = archive.seal_checkpoint(False, "recovery", 2, {"a": blocks})
    states = [sealed.saved_groups("a", np.array([block], np.uint32))[0] for block in (0, 2)]
    assert [state.state.clock for state in states] == [1, 0]
    assert all(not len(archive.find_unreadable(3, state.object_key, "a", blocks[:1])) for state in states[:1])


def test_a_consistent_state_with_a_damaged_block_is_none() -> None:
    store = MemoryStore()
    archive = RecoveryStore(
        store, Job("test", JOB.tables, recovery="full", checkpoint=Checkpoint(selection="full"))
    )
    for number in (1, 2):
        save(store, number, [0, 1], number, full=True)
    rot(store, 2)
    assert archive.seal_checkpoint(True, "recovery", 2).manifest == 3, "a copy of 2"
    sealed = archive.seal_checkpoint(True, "recovery", 2, {"a": np.array([0, 1], np.uint32)})
    assert (sealed.manifest, sealed.clock) == (4, 1), "a copy of 1"
    assert archive.newest_saved(full=True).manifest == archive.newest_saved(full=False).manifest == 4
    seal = read_manifest(store.under("test"), 4)
    assert (seal.full, seal.parent) == (True, 3)
    rot(store, 1)
    blocks = np.array([0, 1], np.uint32)
    sealed = archive.seal_checkpoint(True, "recovery", 2, {"a": blocks})
    assert [group.object_key for group in sealed.saved_groups("a", blocks)] == [""], "x(0)"


@pytest.mark.parametrize("full", [False, True])
def test_a_checkpoint_of_which_nothing_can_be_read_is_waited_for_and_then_given_up(
    full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    policy = {"recovery": "full", "checkpoint": Checkpoint(selection="full")} if full else {}
    archive = RecoveryStore(store, Job("test", JOB.tables, **policy))
    monkeypatch.setattr(recovery_store, "DAMAGE_SECONDS", 0.0)
    clock = [100.0]
    monkeypatch.setattr(lost_checkpoint.time, "monotonic", lambda: clock[0])
    for number in (1, 2):
        save(store, number, [0, 1], number, full=True)
        cut = f"test/{object_key(1, 'ps-0@1', number)}"
        store.objects[cut] = store.objects[cut][:20]
    if full:
        save(store, 3, [0, 1], 3)  # no consistent state, and whole
    before = len(store.objects)
    for _ in range(3):
        with pytest.raises(CorruptCheckpoint):
            archive.seal_checkpoint(full, "recovery", 2)
        clock[0] += 9.0
    assert len(store.objects) == before, "attempts that fail leave nothing behind"
    clock[0] += 9.0
    sealed = archive.seal_checkpoint(full, "recovery", 2)
    assert sealed.passed_over, "shards take blocks for saved that are not"
    ids = np.arange(8, dtype=np.uint32)
    assert [group.object_key for group in sealed.saved_groups("a", ids)] == [""], "x(0)"


def test_what_was_never_saved_is_sealed_too() -> None:
    store = MemoryStore()
    archive = RecoveryStore(store, JOB)
    sealed = archive.seal_checkpoint(False, "recovery", 2)
    assert sealed.manifest == 1
    assert read_manifest(store.under("test"), 1).sealed_for == 2
    assert [group.object_key for group in sealed.saved_groups("a", np.arange(8, dtype=np.uint32))] == [""]


def fill(archive: RecoveryStore, numbers: range, shards: int = 1) -> types_pb2.Epoch:
    for number in numbers:
        epoch = types_pb2.Epoch(number=number, job="test", author="me", shards=[types_pb2.Member()] * shards)
        assert archive.create_epoch(epoch) is epoch
    return epoch


def test_old_epochs_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    archive = RecoveryStore(store, JOB)
    monkeypatch.setattr("scar_recovery.recovery_store.EPOCHS_MOST", 20)
    archive.collect_epochs(fill(archive, range(1, 51)))
    assert store.list("test/epochs/") == [f"test/epochs/{number:08d}" for number in range(31, 51)]
    assert [epoch.number for epoch in archive.read_recent_epochs()] == [47, 48, 49, 50]


def test_the_last_epoch_in_which_blocks_had_owners_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar_recovery.recovery_store.EPOCHS_MOST", 20)
    archive = RecoveryStore(MemoryStore(), JOB)
    fill(archive, range(1, 4))
    archive.collect_epochs(fill(archive, range(4, 60), shards=0))
    assert archive.read_recent_epochs()[0].number == 3


def test_large_epochs_are_fewer() -> None:
    assert kept_epochs(200) == 1000
    assert kept_epochs(2 << 20) == 32
    assert kept_epochs(1 << 30) == 16


def test_a_leader_that_slept_until_its_number_was_collected_is_deposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scar_recovery.recovery_store.EPOCHS_MOST", 20)
    store = MemoryStore()
    mine, theirs = RecoveryStore(store, JOB), RecoveryStore(store, JOB)
    fill(mine, range(1, 3))
    for number in range(3, 60):
        newest = theirs.create_epoch(
            types_pb2.Epoch(number=number, job="test", author="other", shards=[types_pb2.Member()])
        )
    theirs.collect_epochs(newest)
    assert not mine.has_epoch(2)
    late = mine.create_epoch(types_pb2.Epoch(number=3, job="test", author="me"))
    assert (late.number, late.author) == (59, "other")


def test_epoch_of_another_job_is_refused() -> None:
    store = MemoryStore()
    create_record(store.under("test"), "epochs/00000001", types_pb2.Epoch(number=1, job="other"))
    with pytest.raises(CorruptCheckpoint):
        RecoveryStore(store, JOB).read_epoch(1)


def chronicle(newest: int) -> EpochLog:
    """Epochs 1 to ``newest``; only the last is in memory."""
    found = EpochLog(lambda number: types_pb2.Epoch(number=number))
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


def test_who_has_missed_what_is_not_kept_any_more_starts_anew() -> None:
    def read(number: int) -> types_pb2.Epoch:
        raise ObjectNotFound(f"epochs/{number:08d}")

    epochs = EpochLog(read)
    epochs.append(types_pb2.Epoch(number=50))
    with pytest.raises(Fenced):
        epochs.after(3, 0)
    assert [epoch.number for epoch in epochs.after(0, 0)] == [50]


def test_closed_chronicle_holds_nobody() -> None:
    epochs = chronicle(5)
    epochs.close()
    assert epochs.after(5, 30.0) == []
