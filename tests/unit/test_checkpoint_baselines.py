"""The coordinator lists what objects of changed rows need, and takes none of others (docs/adr/029)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar_checkpoint.core.events import BlocksSaved, CopyBlocks, MeasureDistances, ObjectsCompacted, RoundDone
from scar_checkpoint.core.rounds import Rewrite, SavedObject
from scar_runtime.checkpoint import running_checkpoint
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.store.layout import object_key
from tests.unit.checkpoint_play import A, B, Play, entry, job_with


def changed(copy: CopyBlocks, ids: list[int], baseline: str, clock: int = 4) -> SavedObject:
    """The object of a shard that has changed rows of these blocks."""
    key = object_key(copy.epoch, copy.shard.key, copy.round)
    ref, header = entry(key, ids, clock, copy.shard.key, copy.round)
    counts = np.ones(len(ids), np.int64)
    sections = (replace(header.sections[0], counts=counts, baseline=ObjectRef(baseline)),)
    return ref, ObjectHeader(sections)


def saving() -> tuple[Play, list[CopyBlocks], list[str]]:
    """In the second round; keys of what the first has saved of each shard."""
    play = Play()
    manifest = play.round({A.name: [0, 2], B.name: [1]})
    play.measure(*play.take(MeasureDistances), clock=4)
    return play, play.take(CopyBlocks), [ref.key for ref in manifest.objects]


def test_a_shard_hears_which_of_its_objects_are_listed() -> None:
    _, copies, (of_a, of_b) = saving()
    assert [(copy.shard, copy.baselines) for copy in copies] == [(A, (of_a,)), (B, (of_b,))]


@pytest.mark.parametrize("selection", ["full", "round", "random"])
def test_a_round_that_does_not_look_at_changes_saves_whole_blocks(selection: str) -> None:
    play = Play(job_with(selection, 1.0 if selection == "full" else 0.5))
    play.measure(*play.take(MeasureDistances))
    assert [copy.baselines for copy in play.take(CopyBlocks)] == [None, None]


def test_an_object_stays_listed_while_one_has_its_changes() -> None:
    play, copies, keys = saving()
    play.do(BlocksSaved(copies[0].round, A.key, changed(copies[0], [0, 2], keys[0]), 0.0))
    play.save(copies[1], [1], clock=4)
    manifest = play.commit()
    assert manifest.objects[0].key == keys[0]
    assert keys[1] not in [ref.key for ref in manifest.objects]
    assert play.finish() == {A.name: True, B.name: True}


def test_a_shard_that_has_the_changes_of_what_is_not_listed_misses_the_round() -> None:
    play, copies, _ = saving()
    play.do(BlocksSaved(copies[0].round, A.key, changed(copies[0], [0], "objects/gone"), 0.0))
    play.save(copies[1], [1], clock=4)
    manifest = play.commit()
    assert [ref.owner for ref in manifest.objects] == [A.key, B.key], "the first is that of the round before"
    assert play.take(RoundDone)[-1].summary.missed == (A.name,)
    assert play.finish() == {A.name: False, B.name: True}


def test_a_compaction_does_not_drop_what_the_round_builds_on() -> None:
    play, copies, keys = saving()
    ref, header = entry("objects/compact", [0, 2, 1], 2, "me@aa")
    play.do(ObjectsCompacted(Rewrite(1, frozenset(keys), frozenset(keys), ref, header)))
    play.do(BlocksSaved(copies[0].round, A.key, changed(copies[0], [0], keys[0]), 0.0))
    play.save(copies[1], [1], clock=4)
    listed = [one.key for one in play.commit().objects]
    assert keys[0] in listed
    assert "objects/compact" not in listed


def test_a_compaction_that_nothing_needs_the_old_objects_of_is_listed() -> None:
    play, copies, keys = saving()
    ref, header = entry("objects/compact", [0, 2, 1], 2, "me@aa")
    play.do(ObjectsCompacted(Rewrite(1, frozenset(keys), frozenset(keys), ref, header)))
    play.save(copies[0], [0], clock=4)
    play.save(copies[1], [1], clock=4)
    listed = [one.key for one in play.commit().objects]
    assert "objects/compact" in listed
    assert not set(keys) & set(listed)


def listed(*objects: tuple[str, list[int], int, str]) -> RunningCheckpoint:
    """Of objects with keys, blocks, stored bytes, and the key of their baseline ("": whole). A whole block
    has 12 bytes.
    """
    running = RunningCheckpoint(job_with())
    for key, ids, size, baseline in objects:
        ref, header = entry(key, ids, 2, A.key)
        if baseline:
            section = replace(header.sections[0], counts=np.ones(len(ids), np.int64))
            header = ObjectHeader((replace(section, baseline=ObjectRef(baseline)),))
        running.append(replace(ref, bytes=size), header)
    return running


@pytest.fixture
def one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_checkpoint, "FEW", 1)


@pytest.mark.usefixtures("one_is_enough")
def test_changes_are_not_rewritten_whole_where_that_takes_more_than_it_gives_back() -> None:
    every = [*range(12)]
    few_left = ("b", every, 144, ""), ("c", [0, 1, 2, 3], 30, "b"), ("d", [0, 1], 20, "b")
    assert listed(*few_left).plan_compaction() == [], "24 bytes in place of the 30 of c, and they soon go"
    larger = (
        ("b", every, 144, ""),
        ("c", [0, 1, 2, 3], 97, "b"),
        ("d", [0, 1, 2], 20, "b"),
        ("e", [4], 97, "b"),
    )
    assert listed(*larger).plan_compaction() == [1, 3]


@pytest.mark.usefixtures("one_is_enough")
def test_what_has_changes_of_a_mostly_dead_object_is_rewritten_and_then_that_goes() -> None:
    whole = ("b", [*range(8)], 96, "")
    newer = ("n", [2, 3, 4, 5, 6, 7], 72, "")
    running = listed(whole, ("c", [0], 5, "b"), ("d", [1], 5, "b"), newer)
    assert running.live().tolist() == [0, 1, 1, 6]
    assert running.plan_compaction() == [1, 2]
    assert running.baselines() == {"b"}
    ref, header = entry("compact", [0, 1], 2, "me@aa")
    after = running.rewritten({"c", "d"}, {"b", "c", "d", "n"}, ref, header)
    assert [one.key for one in after.objects] == ["n", "compact"]


@pytest.mark.usefixtures("one_is_enough")
def test_an_object_of_which_others_stay_that_have_its_changes_is_not_rewritten() -> None:
    whole = ("b", [*range(12)], 144, "")
    newer = ("n", [*range(2, 11)], 108, "")
    running = listed(whole, ("c", [0], 5, "b"), ("d", [1], 5, "b"), newer)
    assert running.live().tolist() == [1, 1, 1, 9]
    assert running.plan_compaction() == [0, 1, 2], "all of it"
    assert running.plan_compaction(limit=24) == [], "not without d, as that needs the rest"
