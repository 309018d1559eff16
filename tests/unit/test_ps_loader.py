"""Loads of an epoch: none is forgotten, whatever happens to a call, to the store or to a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scar.blocks import BlockState, Ids
from scar.errors import DeadlineExceeded, StoreUnavailable
from scar.placement import BlockSource, Epoch
from scar_ps import loader as module
from scar_ps.apply_thread import ApplyThread
from scar_ps.core import ownership
from scar_ps.core.actions import AnnounceEpoch, CheckStore, JoinCluster, ShardAction, StartLoad
from scar_ps.core.block_data import BlockContents, BlockLoad
from scar_ps.core.events import BlocksLoaded, Event, LoadFailed, ShardTick, StatusRequested
from scar_ps.core.loads import UnreadableLoad
from scar_ps.core.ownership import BlockOwnership
from scar_ps.core.status import ShardSummary
from scar_ps.epoch_sync import EpochSync
from scar_ps.loader import Loader
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.store import open_store
from scar_runtime.store.directory import DirectoryStore
from scar_runtime.store.layout import numbered, object_key
from tests.unit.ps_support import DrivenShard, first_epoch, group, ids, job, next_epoch, started, values

SPEC = job()
SECONDS = 10.0


class Following:
    """A shard with its apply thread, its loader and what hands in epochs."""

    def __init__(self, folder: Path, shard: DrivenShard) -> None:
        liveness = ProgressMonitor(60.0)
        liveness.renew_lease(liveness.now(), confirmed=True)
        self.shard, self.stopped = shard, threading.Event()
        self.store = open_store(f"file://{folder}")
        self.failures: list[BaseException] = []
        self.apply = ApplyThread(self.handle, liveness, self.failures.append)
        self.loader = Loader(shard.state, self.store, 2, self.failures.append)
        self.epochs = EpochSync(shard.state, self.apply, self.store)
        self.apply.carry_out = {
            StartLoad: lambda action: self.loader.start_load(action, self.apply),
            AnnounceEpoch: lambda _: None,
            CheckStore: lambda _: None,
            JoinCluster: lambda _: None,
        }
        self.thread = threading.Thread(target=self.apply.run, args=(self.stopped,), daemon=True)
        self.thread.start()

    def handle(self, event: Event, now: float) -> list[ShardAction]:
        return self.shard.core.handle(event, now)

    @property
    def problem(self) -> str:
        return self.status().problem

    def status(self) -> ShardSummary:
        return self.apply.call(StatusRequested(), SECONDS)  # type: ignore[no-any-return]

    def loaded(self) -> None:
        """Wait until nothing loads."""
        self.until(lambda: not self.shard.ownership.loading_blocks)

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(1000):
            if done():
                return
            self.stopped.wait(0.01)
        raise AssertionError(f"{self.shard.ownership.loading_blocks} blocks load: {self.problem}")

    def close(self) -> None:
        self.loader.close()
        self.stopped.set()
        self.thread.join(SECONDS)


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[[DrivenShard], Following]]:
    made: list[Following] = []

    def make(shard: DrivenShard) -> Following:
        made.append(Following(tmp_path, shard))
        return made[-1]

    yield make
    for one in made:
        one.close()


def gained() -> tuple[DrivenShard, Epoch]:
    """A shard with half of the blocks, and the epoch that gives it the others."""
    shard, epoch = started(SPEC, {"w": ids(0, 1, 2)})
    mine = ids(3, 4, 5)
    return shard, next_epoch(epoch, {"w": mine}, moved=[group("w", mine, source=BlockSource.INITIAL)])


def test_an_adoption_that_takes_longer_than_its_caller_waits_still_loads(follow, monkeypatch):
    shard, epoch = gained()
    adopt = BlockOwnership.adopt_epoch

    def slow(self: BlockOwnership, *arguments: Any) -> Any:
        found = adopt(self, *arguments)
        scene.stopped.wait(0.2)  # copying what stays may take longer than the caller's deadline
        return found

    monkeypatch.setattr(BlockOwnership, "adopt_epoch", slow)
    scene = follow(shard)
    while shard.number < epoch.number:
        with suppress(DeadlineExceeded):  # recovery asks again
            scene.epochs.adopt_epoch(epoch, SPEC, 0.05)
    scene.loaded()
    assert scene.failures == []


def test_a_store_that_is_away_loses_no_load(follow, monkeypatch):
    shard, epoch = gained()
    scene = follow(shard)
    with monkeypatch.context() as away:
        away.setattr(scene.store, "under", _away)
        scene.epochs.adopt_epoch(epoch, SPEC, SECONDS)
        scene.until(lambda: "the store is away" in scene.problem)
        assert shard.number == epoch.number
        assert shard.ownership.loading_blocks == 3
    scene.loaded()
    assert scene.failures == []
    assert scene.problem == ""


def _away(prefix: str) -> None:
    raise StoreUnavailable("the store is away")


def test_each_load_is_made_once_however_often_it_is_asked_for(follow, monkeypatch):
    read, made, go = module.read_load, list[BlockLoad](), threading.Event()

    def counted(spec, headers, load):
        made.append(load)
        go.wait(SECONDS)
        return read(spec, headers, load)

    monkeypatch.setattr(module, "read_load", counted)
    shard, epoch = gained()
    scene = follow(shard)
    for _ in range(3):
        scene.epochs.adopt_epoch(epoch, SPEC, SECONDS)
        scene.apply.call(ShardTick(leased=True), SECONDS)
    go.set()
    scene.loaded()
    assert [load.ids.tolist() for load in made] == [[3, 4, 5]]
    assert shard.ownership.loads == ()


def test_a_load_that_ends_while_the_apply_thread_is_busy_is_installed(follow, monkeypatch):
    """However long it is busy: nobody waits for it to take the load, so nobody gives up."""
    shard, epoch = gained()
    scene = follow(shard)
    read, busy, ended = module.read_load, threading.Event(), threading.Event()

    def read_while_busy(spec, headers, load):
        busy.wait(SECONDS)
        ended.set()
        return read(spec, headers, load)

    def summarize(event: StatusRequested) -> None:
        busy.set()
        ended.wait(SECONDS)
        scene.stopped.wait(0.1)

    monkeypatch.setattr(module, "read_load", read_while_busy)
    scene.epochs.adopt_epoch(epoch, SPEC, SECONDS)
    monkeypatch.setitem(shard.core._handlers, StatusRequested, summarize)
    scene.apply.post(StatusRequested())
    scene.loaded()
    assert scene.failures == []  # a busy apply thread is no reason to end the process


def test_a_load_that_fails_is_tried_again_after_a_pause_that_grows():
    shard, epoch = gained()
    (load,) = shard.adopt(epoch, SPEC)
    pauses = []
    for _ in range(7):
        shard.handle(LoadFailed(load, "the store is away"))
        failed = shard.now
        while not shard.started_loads():
            shard.now += 0.05
            shard.handle(ShardTick(leased=True))
        pauses.append(round(shard.now - failed, 2))
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], abs=0.051)


def test_a_load_that_moved_on_is_wanted_no_more():
    shard, epoch = gained()
    shard.adopt(epoch, SPEC)
    assert [load.epoch for load in shard.ownership.loads] == [2]
    again = next_epoch(epoch, moved=[group("w", ids(3, 4, 5), source=BlockSource.INITIAL)])
    shard.adopt(again, SPEC)
    assert [load.epoch for load in shard.ownership.loads] == [3]
    shard.adopt(next_epoch(again, lost={"w": ids(3, 4, 5)}), SPEC)
    assert shard.ownership.loads == ()


def test_blocks_that_have_moved_on_are_no_problem_any_more(follow, monkeypatch):
    shard, epoch = gained()
    scene = follow(shard)
    monkeypatch.setattr(module, "read_load", lambda *_: _away(""))
    scene.epochs.adopt_epoch(epoch, SPEC, SECONDS)
    scene.until(lambda: "3 blocks of table w cannot be loaded" in scene.problem)
    scene.epochs.adopt_epoch(next_epoch(epoch, lost={"w": ids(3, 4, 5)}), SPEC, SECONDS)
    scene.until(lambda: scene.problem == "")
    assert shard.ownership.loads == ()


def test_a_shard_that_has_just_started_has_nothing_to_load(follow):
    scene = follow(DrivenShard(first_epoch(SPEC).shards[0]))
    scene.apply.call(ShardTick(leased=True), SECONDS)
    assert scene.shard.ownership.loads == ()
    assert scene.failures == []


def saved(scene: Following, number: int, blocks: Ids, value: float) -> str:
    """Manifest ``number`` with one object that has this value in these blocks; returns its key."""
    store = scene.store.under(SPEC.name)
    saved_group = BlockState("w", blocks, number, {}, "ps-1@1")
    payload = BlockPayload(np.full(2 * len(blocks), value, "f4"), {}, np.zeros(len(blocks), np.int64))
    encoded, key = EncodedObject(SPEC, [(saved_group, payload)]), object_key(1, "ps-1@1", number)
    store.put_pieces(key, encoded.pieces())
    ref = object_ref(key, encoded, [saved_group], "ps-1@1", 1, number)
    create_manifest(store, Manifest(number=number, job=SPEC.name, objects=(ref,)))
    return key


def test_pieces_of_a_load_read_their_manifest_together(follow, monkeypatch):
    """A request to the store for each piece, which a recovery would wait for."""
    monkeypatch.setattr(ownership, "LOAD_BYTES", 4)
    threads, read, made = 2, module.read_manifest, list[int]()

    def counted(store, number):
        made.append(number)
        return read(store, number)

    monkeypatch.setattr(module, "read_manifest", counted)
    shard, epoch = started(SPEC, {"w": ids(0)})
    scene = follow(shard)
    mine = ids(1, 2, 3, 4, 5)
    restored = replace(group("w", mine), object_key=saved(scene, 1, mine, 7.0))
    scene.epochs.adopt_epoch(next_epoch(epoch, {"w": mine}, moved=[restored], manifest=1), SPEC, SECONDS)
    assert len(shard.ownership.loads) > 2
    scene.loaded()
    assert values(shard) == [0.0] * 2 + [7.0] * 10
    assert 1 <= len(made) <= threads


def test_a_load_that_an_epoch_has_cut_down_is_over_with_the_one_before():
    shard, epoch = gained()
    (load,) = shard.adopt(epoch, SPEC)
    (rest,) = shard.adopt(next_epoch(epoch, lost={"w": ids(5)}), SPEC)
    assert [rest] == list(shard.ownership.loads)
    assert rest.ids.tolist() == [3, 4]
    shard.handle(BlocksLoaded(load, BlockContents(np.full(6, 7, np.float32))))
    assert shard.ownership.loads == ()
    assert shard.ownership.loading_blocks == 0


def reported(scene: Following) -> Sequence[UnreadableLoad]:
    scene.until(lambda: bool(scene.status().unreadable))
    return scene.status().unreadable


@pytest.mark.usefixtures("digest_per_block")
def test_just_the_damaged_blocks_are_reported_and_come_from_elsewhere(follow):
    shard, epoch = started(SPEC, {"w": ids(0, 1, 2)})
    scene = follow(shard)
    mine = ids(3, 4, 5)
    bad, good = saved(scene, 1, mine, 7.0), saved(scene, 2, mine, 6.0)
    path = Path(scene.store.url.removeprefix("file://")) / SPEC.name / bad
    path.write_bytes(path.read_bytes()[:-1] + b"x")  # the last block
    restored = replace(group("w", mine), object_key=bad)
    epoch = next_epoch(epoch, {"w": mine}, moved=[restored], manifest=1)
    scene.epochs.adopt_epoch(epoch, SPEC, SECONDS)
    (found,) = reported(scene)
    assert (found.load.table, found.load.manifest, found.load.object_key) == ("w", 1, bad)
    assert found.ids.tolist() == [5]
    assert "block 5 of table w is damaged" in found.reason
    elsewhere = replace(group("w", ids(5), former=None), object_key=good)
    scene.epochs.adopt_epoch(next_epoch(epoch, moved=[elsewhere], manifest=2), SPEC, SECONDS)
    scene.loaded()
    assert values(shard) == [0.0] * 6 + [7.0] * 4 + [6.0] * 2
    assert scene.status().unreadable == []


def test_what_is_gone_is_reported_as_a_whole(follow):
    shard, epoch = started(SPEC, {"w": ids(0, 1, 2)})
    scene = follow(shard)
    key = saved(scene, 1, ids(3, 4), 7.0)
    scene.store.under(SPEC.name).delete(numbered("manifests", 1))
    restored = replace(group("w", ids(3, 4)), object_key=key)
    scene.epochs.adopt_epoch(next_epoch(epoch, {"w": ids(3, 4)}, moved=[restored], manifest=1), SPEC, SECONDS)
    (found,) = reported(scene)
    assert found.ids.tolist() == [3, 4]
    assert "does not exist" in found.reason


def test_a_garbled_read_is_no_damage(follow, monkeypatch):
    shard, epoch = started(SPEC, {"w": ids(0, 1, 2)})
    scene = follow(shard)
    key = saved(scene, 1, ids(3, 4), 7.0)
    read, garbled, seen = DirectoryStore.get_range, list[str](), list[object]()

    def once(self: DirectoryStore, name: str, start: int, length: int) -> bytes:
        raw = read(self, name, start, length)
        if start == 0 or garbled:
            return raw
        garbled.append(name)
        return bytes(len(raw))

    monkeypatch.setattr(DirectoryStore, "get_range", once)
    restored = replace(group("w", ids(3, 4)), object_key=key)
    scene.epochs.adopt_epoch(next_epoch(epoch, {"w": ids(3, 4)}, moved=[restored], manifest=1), SPEC, SECONDS)
    for _ in range(1000):
        seen += scene.status().unreadable
        if not shard.ownership.loading_blocks:
            break
        scene.stopped.wait(0.01)
    assert (garbled, seen, shard.ownership.loading_blocks) == ([key], [], 0)
