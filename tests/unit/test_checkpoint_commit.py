"""Who has committed when a put is lost or another coordinator was faster; late answers; the story."""

from __future__ import annotations

import numpy as np
import pytest

from scar.event_log import EventRing, describe_fields, name_of
from scar_checkpoint.core.coordinator import Coordinator
from scar_checkpoint.core.events import (
    AbandonRound,
    BlocksSaved,
    CommitFailed,
    CommitManifest,
    CopyBlocks,
    DistancesMeasured,
    EpochAdopted,
    LeadershipGained,
    ManifestTaken,
    MeasureDistances,
    RoundDone,
    ShardFinished,
    ShardRefused,
)
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.top_keys import KeyRange
from tests.unit.checkpoint_play import BLOCKS, A, B, C, Play, entry, epoch_of, job_with

NOTHING = np.zeros(KeyRange().size, np.int64)


def committing() -> tuple[Play, CommitManifest]:
    play = Play()
    play.round()
    play.measure(*play.take(MeasureDistances), clock=4)
    for copy in play.take(CopyBlocks):
        play.save(copy, [4 if copy.shard == A else 5], clock=4)
    (action,) = play.take(CommitManifest)
    assert action.running.manifest.number == 2
    play.take(RoundDone)
    return play, action


def test_our_own_manifest_under_the_number_means_that_the_put_had_succeeded() -> None:
    play, action = committing()
    play.do(ManifestTaken(action.round, action.running, 2))
    assert play.take(RoundDone)[0].result == "committed"
    assert play.finish() == {"ps-0": True, "ps-1": True}
    assert {one.min_clock for one in play.take(MeasureDistances)} == {6}


def test_behind_another_coordinators_manifest_the_round_fails_and_we_go_on_from_it() -> None:
    play, action = committing()
    theirs = play.core.chain.running.extended(
        [entry("objects/theirs", [0, 1], 9, C.key)], Manifest(number=2, author="rival", round=8, clock=9)
    )
    play.do(ManifestTaken(action.round, theirs, 2))
    assert "another coordinator has committed manifest 2" in play.take(RoundDone)[0].summary.error
    assert "another coordinator" in play.core.problem
    assert play.finish() == {"ps-0": False, "ps-1": False}
    play.later(0.5)
    assert {(one.round, one.min_clock) for one in play.take(MeasureDistances)} == {(9, 11)}
    play.measure(*[MeasureDistances(shard, 1, 9, 11, False, 60.0) for shard in (A, B)], clock=11)
    for copy in play.take(CopyBlocks):
        play.save(copy, [2], clock=11)
    manifest = play.commit()
    assert (manifest.number, manifest.parent, manifest.round) == (3, 2, 9)
    assert "objects/theirs" in [ref.key for ref in manifest.objects]


def test_no_round_follows_a_copy_before_the_epoch_that_it_was_made_for() -> None:
    """What shards hold until then is what the epoch takes back: a job would go forward to it later."""
    play, action = committing()
    seal = play.core.chain.running.extended(
        [], Manifest(number=2, parent=1, author="recovery", round=action.round, clock=3, sealed_for=2)
    )
    play.do(ManifestTaken(action.round, seal, 2))
    assert play.take(RoundDone)[0].result == "failed"
    assert play.core.problem == "", "nobody has to do anything about it"
    play.finish()
    play.later(30.0)
    assert not play.take(MeasureDistances)
    play.do(EpochAdopted(epoch_of(2, A, B)))
    play.later(0.5)
    assert {one.epoch for one in play.take(MeasureDistances)} == {2}


def test_an_older_put_of_ours_that_arrived_late_becomes_the_parent() -> None:
    play, action = committing()
    late = play.core.chain.running.extended(
        [entry("objects/late", [7], 3, A.key)],
        Manifest(number=2, parent=1, author="me", round=action.round - 1, clock=3),
    )
    play.do(ManifestTaken(action.round, late, 2))
    manifest = play.commit()
    assert (manifest.number, manifest.parent, manifest.round) == (3, 2, action.round)
    assert [ref.key for ref in manifest.objects][2] == "objects/late"
    assert play.finish() == {"ps-0": True, "ps-1": True}


def test_a_store_that_does_not_answer_fails_the_round_and_its_age_grows() -> None:
    play, action = committing()
    play.do(CommitFailed(action.round, "the store does not answer"))
    assert play.core.problem == "the store does not answer"
    assert play.finish() == {"ps-0": False, "ps-1": False}
    assert play.core.chain.age(play.now + 60) == 60.0
    play.later(0.5)
    assert play.round(clock=4).number == 2


def test_a_new_leader_goes_on_from_the_newest_manifest() -> None:
    running = RunningCheckpoint(job_with()).extended(
        [entry("objects/x", [0], 40, A.key)], Manifest(number=6, round=9, clock=40)
    )
    core = Coordinator(job_with(), "me")
    core.handle(LeadershipGained(running, 8, 12.5), 100.0)  # manifests 7 and 8 are damaged
    actions = core.handle(EpochAdopted(epoch_of(5, A)), 100.0)
    asked = [one for one in actions if isinstance(one, MeasureDistances)]
    assert [(one.epoch, one.round, one.min_clock) for one in asked] == [(5, 10, 42)]
    assert core.chain.age(101.0) == 13.5
    one_changed = np.bincount([1016], minlength=KeyRange().size)
    core.handle(DistancesMeasured(10, A.key, 42, 4, one_changed), 101.0)
    actions = core.handle(BlocksSaved(10, A.key, entry("objects/y", [1], 42, A.key), 0.0), 101.0)
    (commit,) = [one for one in actions if isinstance(one, CommitManifest)]
    assert (commit.running.manifest.number, commit.running.manifest.parent) == (9, 6)


@pytest.mark.parametrize("partly", [False, True])
def test_what_shards_take_for_saved_and_nobody_can_read_is_saved_again_by_rounds_of_all(partly: bool) -> None:
    """At once, until one was missed by no shard; then rounds are what the job says."""
    play = Play()
    running = RunningCheckpoint(play.job)
    if partly:
        found = [entry("objects/x", [0], 40, A.key)]
        running = running.extended(found, Manifest(number=3, round=9, clock=40))
        running.unreadable = ["objects/y"]
    else:
        running.passed_over = [3, 2]
    play.core = Coordinator(play.job, "me", timeout=30.0)
    play.actions = []
    play.do(LeadershipGained(running, 3, -1.0))
    play.do(EpochAdopted(epoch_of(1, A, B)))
    first, second = play.take(MeasureDistances)
    assert (first.skip, first.min_clock) == (True, 0), "whatever the distances are"
    play.measure(first)
    play.do(ShardRefused(second.round, B.key, "it has no time", False))
    [copy] = play.take(CopyBlocks)
    assert (copy.selection.selection, copy.selection.count) == ("full", BLOCKS)
    play.save(copy, [0, 2, 4])
    manifest = play.commit()
    assert (manifest.number, manifest.passed_over) == (4, () if partly else (2, 3))
    play.finish()
    play.later(1.0)
    again = play.take(MeasureDistances)
    assert {one.skip for one in again} == {True}, "a shard has missed the first one"
    play.measure(*again, clock=3)
    for copy in play.take(CopyBlocks):
        play.save(copy, [0, 2, 4] if copy.shard == A else [1, 3], 3)
    assert play.commit().passed_over == ()
    play.finish()
    play.later(1.0)
    assert {one.skip for one in play.take(MeasureDistances)} == {False}


def test_what_cannot_be_read_keeps_no_acknowledgement_waiting_for_a_clock() -> None:
    """It comes after them, where they wait for rounds."""
    play = Play(job_with(fraction=1.0, period=1, recovery="stateless", consistency="asp"))
    running = RunningCheckpoint(play.job)
    running.passed_over = [3]
    play.core = Coordinator(play.job, "me", timeout=30.0)
    play.actions = []
    play.do(LeadershipGained(running, 3, -1.0))
    play.do(EpochAdopted(epoch_of(1, A, B)))
    first, second = play.take(MeasureDistances)
    play.measure(first, clock=7)
    play.do(ShardRefused(second.round, B.key, "no block is in place", False))
    [copy] = play.take(CopyBlocks)
    play.save(copy, [0, 2, 4], 7)
    play.commit()
    play.finish()
    play.later(1.0)
    assert [one.min_clock for one in play.take(MeasureDistances)] == [0, 0]


def test_answers_of_former_rounds_change_nothing() -> None:
    play = Play()
    play.round()
    play.take(RoundDone)
    play.take(AbandonRound)
    play.take(MeasureDistances)
    for event in (
        DistancesMeasured(1, A.key, 9, 0, NOTHING),
        ShardRefused(1, A.key, "x", True),
        BlocksSaved(1, A.key, None, 0.0),
        CommitFailed(1, "x"),
        ShardFinished(1, A.key),
        DistancesMeasured(2, C.key, 9, 0, NOTHING),
    ):
        assert play.do(event) == []
    assert play.core.problem == ""


def test_a_story_replays() -> None:
    """A round that commits, one that fails at a shard, a retry, a rival's manifest, a new epoch."""
    play, action = committing()
    play.do(ManifestTaken(action.round, action.running, 2))
    play.finish()
    play.do(EpochAdopted(epoch_of(2, A, B, C)))
    asked = play.take(MeasureDistances)
    play.measure(asked[-1])
    play.do(ShardRefused(asked[-2].round, asked[-2].shard.key, "has no epoch", True))
    play.later(0.3)
    play.later(31.0)
    play.assert_story_replays()


def test_the_story_says_why_a_round_failed_and_holds_no_distances() -> None:
    play = Play(job_with(fraction=0.5))
    play.core.story = EventRing()
    play.measure(*play.take(MeasureDistances), far={B.key: 0.0})  # the six of A are chosen at the first look
    for copy in play.take(CopyBlocks):
        play.do(ShardRefused(copy.round, copy.shard.key, "full disk", False))
    entries = play.core.story.entries()
    assert [name_of(entry.event) for entry in entries] == [
        "DistancesMeasured",
        "DistancesMeasured",
        "ShardRefused",
        "ShardRefused",
    ]
    assert [entry.facts["waiting_for"] for entry in entries[:3]] == [["ps-1"], [], ["ps-1"]]
    assert ("blocks", "6") in describe_fields(entries[0].event)
    assert entries[3].facts["retry_in"] == 0.5
    (done,) = [action for action in entries[3].actions if isinstance(action, RoundDone)]
    assert done.summary.error == "ps-0: full disk; ps-1: full disk"
