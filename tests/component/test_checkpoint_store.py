"""The checkpoint coordinator and its store: outages, lost answers, rivals, and keeping it small."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scar.errors import ObjectNotFound, StoreFull, StoreUnavailable
from scar.v1 import checkpoint_pb2 as pb
from scar_checkpoint import maintenance, round_driver
from scar_runtime.checkpoint import running_checkpoint as running_module
from scar_runtime.checkpoint.manifest_codec import create_manifest, read_manifest
from scar_runtime.checkpoint.running_checkpoint import load_newest, load_running, newest_manifest
from scar_runtime.store.layout import MANIFESTS, numbered
from scar_runtime.store.records import create_record
from tests.component.checkpoint_scene import BLOCKS, Flaky, Scene, job_with, restored, scenes
from tests.component.processes import eventually


@pytest.fixture
def scene_of(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    with scenes(tmp_path) as make:
        yield make


# --- the store
# -------------------------------------------------------------------------------------------------------


def test_while_the_store_is_down_rounds_fail_say_so_and_resume(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    for shard in scene.shards:
        shard.store = flaky
    stub = scene.lead(flaky)
    scene.train(1)
    scene.committed(1)
    flaky.error = StoreUnavailable("the store does not answer")
    scene.train(2)

    def status() -> pb.CheckpointStatus:
        return stub.Status(pb.CheckpointStatusRequest(), timeout=20)

    eventually(lambda: "the store does not answer" in status().problem)
    old = status()
    assert old.manifest == 1
    eventually(lambda: status().age > old.age)
    # what was not committed is not in the cache
    assert all((shard.cache == 1).sum() >= 2 for shard in scene.shards)
    flaky.error = StoreFull("the disk is full")
    eventually(lambda: "the disk is full" in status().problem)
    flaky.error = None
    scene.committed(2)
    eventually(lambda: status().problem == "")


def test_a_coordinator_that_starts_while_the_store_is_down_waits_for_it(
    scene_of: Callable[..., Scene],
) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    flaky.error = StoreUnavailable("the store does not answer")
    stub = scene.lead(flaky)
    scene.train(1)
    eventually(
        lambda: "the store does not answer" in stub.Status(pb.CheckpointStatusRequest(), timeout=20).problem
    )
    flaky.error = None
    scene.committed(1)


def test_a_put_whose_answer_was_lost_is_recognised(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    written = threading.Event()

    def lose(key: str) -> None:
        if key.startswith("manifests/") and not written.is_set():
            written.set()
            raise StoreUnavailable("the answer was lost")

    flaky.after_create = lose
    stub = scene.lead(flaky)
    scene.train(1)
    assert written.wait(60)
    eventually(lambda: scene.store.list("manifests/") == [numbered(MANIFESTS, number) for number in (1, 2)])
    second = load_newest(scene.store, scene.job).manifest
    assert (second.parent, second.author) == (1, "c" * 12)
    eventually(lambda: stub.Status(pb.CheckpointStatusRequest(), timeout=20).problem == "")


def test_rounds_go_on_from_a_seal_that_can_be_read_in_part(
    scene_of: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery has put blocks back by it. Going on from the manifest before would bring back what the
    ledger has given up.
    """
    monkeypatch.setattr(round_driver, "DAMAGE_SECONDS", 0)
    scene = scene_of()
    flaky = Flaky(scene.store)
    given_up: set[str] = set()

    def seal(key: str) -> None:
        if key == numbered(MANIFESTS, 3) and not given_up:
            first, second = (read_manifest(scene.store, number) for number in (1, 2))
            given_up.update({ref.key for ref in second.objects} - {ref.key for ref in first.objects})
            damaged = replace(first.objects[0], key="objects/e00000001-ps-9@9-r00000001")
            scene.store.put(damaged.key, b"cut")
            create_manifest(
                scene.store,
                replace(second, number=3, parent=2, author="recovery", objects=(*first.objects, damaged)),
            )

    flaky.before_create = seal
    scene.lead(flaky)
    for clock in (1, 2, 3, 4):
        scene.train(clock)
        scene.committed(clock)
    fourth = read_manifest(scene.store, 4)
    assert given_up
    assert (fourth.parent, fourth.author) == (3, "c" * 12)
    assert not given_up & {ref.key for ref in fourth.objects}


def test_a_lost_race_goes_on_from_the_rivals_manifest(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    rival = pb.Manifest(number=1, job="job", author="rival", round=30, clock=1)

    def first(key: str) -> None:
        if key == numbered(MANIFESTS, 1) and not scene.store.list("manifests/"):
            create_record(scene.store, key, rival)

    flaky.before_create = first
    stub = scene.lead(flaky)
    scene.train(1)
    eventually(lambda: newest_manifest(scene.store) is not None)
    scene.train(2)
    manifest = scene.committed(2)
    assert (manifest.parent, manifest.author, manifest.round > 30) == (1, "c" * 12, True)
    errors = [one.error for one in stub.Status(pb.CheckpointStatusRequest(), timeout=20).recent]
    assert "another coordinator has committed manifest 1" in errors


# --- keeping the store small
# -----------------------------------------------------------------------------------------


def test_old_manifests_and_dead_objects_go_and_the_last_ones_stay_whole(
    scene_of: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "FEW", 2)
    scene = scene_of(job_with(fraction=0.5, period=2, keep=2))
    scene.lead()
    draw, compacted = np.random.default_rng(5), []
    for clock in range(1, 25):
        for shard in scene.shards:
            shard.values[draw.permutation(len(shard.ids))[:4]] = clock
            shard.train(clock, slice(0, 1))
        compacted += [ref.key for ref in scene.committed(clock).objects if "compact" in ref.key]
    want = [numbered(MANIFESTS, number) for number in (23, 24)]
    eventually(
        lambda: scene.store.list("manifests/")[-2:] == want and len(scene.store.list("manifests/")) <= 3
    )
    eventually(lambda: any(shard.finished[-1] == (24, True) for shard in scene.shards))
    for number in (23, 24):
        restored(load_running(scene.store, scene.job, number), scene.store)
    cache = np.empty(BLOCKS)
    for shard in scene.shards:
        cache[shard.ids] = shard.cache
    assert restored(load_newest(scene.store, scene.job), scene.store) == cache.tolist()
    assert compacted
    assert len(scene.store.list("objects/")) < 24


def test_a_damaged_block_stops_its_compaction_and_no_deleting(
    scene_of: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "FEW", 2)
    scene = scene_of(job_with(fraction=0.5, period=2, keep=2))
    flaky, damaged = Flaky(scene.store), threading.Event()

    def damage(key: str, start: int, length: int) -> bytes:
        raw = scene.store.get_range(key, start, length)
        if not start:
            return raw  # headers are whole, so that its manifest is restorable as far as anybody knows
        damaged.set()
        return bytes(byte ^ 1 for byte in raw)

    monkeypatch.setattr(flaky, "get_range", damage)
    scene.lead(flaky)
    draw = np.random.default_rng(5)
    for clock in range(1, 25):
        for shard in scene.shards:
            shard.values[draw.permutation(len(shard.ids))[:4]] = clock
            shard.train(clock, slice(0, 1))
        scene.committed(clock)
    assert damaged.wait(60), "no compaction has read a block"
    eventually(lambda: len(scene.store.list("manifests/")) == 2, what="the last K manifests alone")


def test_a_manifest_that_an_epoch_restores_from_is_kept(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of(job_with(fraction=1.0, period=1, keep=1))
    scene.lead()
    scene.train(1)
    scene.committed(1)
    scene.recovery.announce(scene.shards, manifest=1)
    for clock in range(2, 7):
        scene.train(clock)
        scene.committed(clock)
    eventually(lambda: len(scene.store.list("manifests/")) == 2)
    assert scene.store.list("manifests/")[0] == numbered(MANIFESTS, 1)
    assert restored(load_running(scene.store, scene.job, 1), scene.store) == [1.0] * BLOCKS
    with pytest.raises(ObjectNotFound):
        load_running(scene.store, scene.job, 2)


def test_a_manifest_from_which_a_slow_load_still_reads_is_kept(
    scene_of: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LOADING_SECONDS", 0.0)
    scene = scene_of(job_with(fraction=1.0, period=1, keep=1))
    scene.lead()
    scene.train(1)
    scene.committed(1)
    scene.recovery.announce(scene.shards, manifest=1)
    scene.recovery.announce(scene.shards, restoring=(1,))
    for clock in range(2, 7):
        scene.train(clock)
        scene.committed(clock)
    eventually(lambda: len(scene.store.list("manifests/")) == 2)
    assert restored(load_running(scene.store, scene.job, 1), scene.store) == [1.0] * BLOCKS
    scene.recovery.announce(scene.shards)
    eventually(lambda: len(scene.store.list("manifests/")) == 1, what="nobody loads any more")
