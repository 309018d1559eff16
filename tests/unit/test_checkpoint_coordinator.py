"""Rounds: when they run, who takes part, who misses; and who has committed when a put is lost."""

from __future__ import annotations

import numpy as np
import pytest

from scar.v1.checkpoint_pb2 import Manifest
from scar_checkpoint.coordinator import Coordinator
from scar_checkpoint.rounds import Abandon, Commit, Copy, Done, Finish, Measure
from scar_runtime.objects import object_key
from scar_runtime.running import RunningCheckpoint
from tests.unit.checkpoint_play import A, B, C, Play, entry, epoch_of, job_with

# --- the course of a round -------------------------------------------------------------------------------------------


def test_a_round_goes_from_distances_to_finish() -> None:
    play = Play()
    asked = play.take(Measure)
    assert [(one.shard, one.epoch, one.round, one.min_clock, one.skip) for one in asked] == [
        (A, 1, 1, 2, False),
        (B, 1, 1, 2, False),
    ]
    play.measure(asked[0])
    assert play.actions == []
    play.now += 0.5
    play.measure(asked[1], far={B.key: 2.0})
    copies = play.take(Copy)
    assert [(one.shard, one.epoch, one.round) for one in copies] == [(A, 1, 1), (B, 1, 1)]
    assert (copies[0].decision.threshold, copies[0].decision.count) == (2.0, 3)
    play.save(copies[0], [])
    play.now += 0.25
    ref = play.save(copies[1], [1, 3, 5])
    manifest = play.commit()
    assert (manifest.number, manifest.parent, manifest.job, manifest.author) == (1, 0, "job", "me")
    assert (manifest.epoch, manifest.round, manifest.selection, manifest.clock, manifest.full) == (1, 1, "priority", 2, False)
    assert list(manifest.objects) == [ref]
    (done,) = play.take(Done)
    summary = done.summary
    assert (done.result, summary.manifest, summary.blocks_total, summary.blocks_saved, summary.bytes) == (
        "committed",
        1,
        12,
        3,
        100,
    )
    assert (summary.select_seconds, summary.copy_seconds, summary.commit_seconds, summary.missed) == (0.5, 0.001, 0.25, ())
    assert play.finish() == {"ps-0": False, "ps-1": True}
    assert [one.min_clock for one in play.take(Measure)] == [4, 4]
    assert play.core.age(play.now + 5) == 5.0


def test_where_acknowledgements_wait_for_rounds_no_round_waits_for_a_clock() -> None:
    """A clock is finished by acknowledged pushes: it would never come."""
    play = Play(job_with(fraction=1.0, period=1, recovery="stateless", consistency="asp"))
    assert [one.min_clock for one in play.actions if isinstance(one, Measure)] == [0, 0]
    play.round(clock=0)
    assert play.take(Measure) == [], "a moment of rest between rounds"
    play.later(0.1)
    assert [one.min_clock for one in play.take(Measure)] == [0, 0]


def test_a_job_without_a_manifest_waits_for_its_first_clocks_and_needs_no_round() -> None:
    play = Play(job_with(fraction=0.5, period=8))
    assert [one.min_clock for one in play.take(Measure)] == [4, 4]
    assert play.core.age(play.now) == -1.0
    assert play.core.running.manifest.number == 0


def test_nothing_begins_without_shards_or_leadership() -> None:
    core = Coordinator(job_with(), "me")
    assert core.adopted(epoch_of(1, A), 0.0) == []
    assert core.tick(1.0) == []
    assert len(core.lead(RunningCheckpoint(core.job), 0, -1.0, 1.0)) == 1
    waiting = Coordinator(job_with(), "me")
    assert waiting.lead(RunningCheckpoint(waiting.job), 0, -1.0, 0.0) == []
    assert waiting.adopted(epoch_of(1), 0.0) == []


def test_a_manifest_lists_its_parents_live_objects_first() -> None:
    play = Play()
    first = play.round({A.name: [0, 2], B.name: [1]})
    second = play.round({A.name: [0], B.name: [1, 3]})
    assert [ref.key for ref in second.objects] == [first.objects[0].key, object_key(1, A.key, 2), object_key(1, B.key, 2)]
    assert (second.number, second.parent) == (2, 1)


def test_a_round_without_any_change_commits_nothing() -> None:
    play = Play()
    play.measure(*play.take(Measure), far={A.key: 0.0, B.key: 0.0})
    (done,) = play.take(Done)
    assert (done.result, done.summary.manifest, done.summary.error) == (
        "unchanged",
        0,
        "nothing has changed since it was saved",
    )
    assert play.take(Copy) == []
    assert play.finish() == {"ps-0": False, "ps-1": False}
    assert [one.min_clock for one in play.take(Measure)] == [4, 4]
    assert play.core.problem == ""


@pytest.mark.parametrize(("selection", "skip"), [("priority", False), ("round", True), ("random", True), ("full", True)])
def test_only_priority_asks_for_distances(selection: str, skip: bool) -> None:
    assert [one.skip for one in Play(job_with(selection)).take(Measure)] == [skip, skip]


def test_round_robin_goes_on_where_the_last_committed_round_ended() -> None:
    play = Play(job_with("round", fraction=0.25))
    play.measure(*play.take(Measure))
    assert {one.decision.first for one in play.take(Copy)} == {0}
    play.do(play.core.refused(1, A.key, "store down", False, play.now))
    play.do(play.core.refused(1, B.key, "store down", False, play.now))
    play.finish()
    play.later(1.0)
    play.round({A.name: [0, 2], B.name: [1]})
    play.measure(*play.take(Measure))
    assert {one.decision.first for one in play.take(Copy)} == {3}


# --- shards that miss ------------------------------------------------------------------------------------------------


def test_a_silent_shard_misses_the_round() -> None:
    play = Play()
    asked = play.take(Measure)
    play.later(1000.0)  # nobody's clock is there yet: no deadline runs
    play.measure(asked[0])
    play.later(29.0)
    assert play.take(Copy) == []
    play.later(1.0)
    (copy,) = play.take(Copy)
    assert copy.shard == A
    play.measure(asked[1])  # too late
    play.save(copy, [0])
    play.commit()
    assert play.take(Done)[0].summary.missed == ("ps-1",)
    assert play.finish() == {"ps-0": True}


def test_a_shard_that_is_too_slow_to_save_is_told_that_it_does_not_count() -> None:
    play = Play()
    play.measure(*play.take(Measure))
    copies = play.take(Copy)
    play.save(copies[0], [0])
    play.later(30.0)
    play.save(copies[1], [1])
    assert [ref.owner for ref in play.commit().objects] == [A.key]
    assert play.finish() == {"ps-0": True, "ps-1": False}


def test_a_shard_that_cannot_yet_is_asked_again() -> None:
    play = Play()
    asked = play.take(Measure)
    for wait in (0.2, 0.4, 0.8):
        play.do(play.core.refused(1, B.key, "has no epoch", True, play.now))
        assert play.take(Measure) == []
        play.later(wait)
        (again,) = play.take(Measure)
        assert again == asked[1]
    play.measure(asked[0])
    play.do(play.core.refused(1, B.key, "has no epoch", True, play.now))
    play.later(1.6)
    play.measure(*play.take(Measure))
    assert len(play.take(Copy)) == 2


def test_after_the_others_have_answered_a_refusal_is_final_soon() -> None:
    play = Play()
    asked = play.take(Measure)
    play.measure(asked[0])
    play.now += 1.5
    play.do(play.core.refused(1, B.key, "refused", True, play.now))
    assert [one.shard for one in play.take(Copy)] == [A]


def test_a_refusal_that_will_not_pass_misses_the_round_at_once() -> None:
    play = Play()
    play.measure(play.take(Measure)[0])
    play.do(play.core.refused(1, B.key, "a bug", False, play.now))
    assert [one.shard for one in play.take(Copy)] == [A]


def test_when_no_shard_can_save_the_round_fails_and_is_repeated_ever_more_slowly() -> None:
    play = Play()
    for number, wait in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 15.0), (7, 15.0)):
        asked = play.take(Measure)
        assert {(one.round, one.min_clock) for one in asked} == {(number, 2)}
        play.measure(*asked)
        for copy in play.take(Copy):
            play.do(play.core.refused(number, copy.shard.key, "the store does not answer", False, play.now))
        assert play.core.problem == "ps-0: the store does not answer; ps-1: the store does not answer"
        assert play.take(Done)[0].result == "failed"
        assert play.finish() == {"ps-0": False, "ps-1": False}
        play.take(Abandon)
        play.later(wait - 0.01)
        assert play.actions == []
        play.later(0.01)
    play.round()
    assert play.core.problem == ""


def test_a_foreign_object_is_not_accepted() -> None:
    play = Play()
    play.measure(*play.take(Measure))
    copies = play.take(Copy)
    play.do(play.core.saved(1, A.key, entry("objects/x", [0], 2, C.key), 0.0, play.now))
    play.save(copies[1], [1])
    assert [ref.owner for ref in play.commit().objects] == [B.key]


def test_the_next_round_waits_until_every_shard_has_heard_of_the_end() -> None:
    play = Play()
    play.measure(*play.take(Measure))
    for copy, block in zip(play.take(Copy), (0, 1), strict=True):
        play.save(copy, [block])
    play.commit()
    first, second = play.take(Finish)
    play.do(play.core.finished(1, first.shard.key, play.now))
    assert play.take(Measure) == []
    play.later(5.0)
    assert len(play.take(Measure)) == 2
    play.do(play.core.finished(1, second.shard.key, play.now))


# --- who committed? --------------------------------------------------------------------------------------------------


def committing() -> tuple[Play, Commit]:
    play = Play()
    play.round()
    play.measure(*play.take(Measure), clock=4)
    for copy in play.take(Copy):
        play.save(copy, [4 if copy.shard == A else 5], clock=4)
    (action,) = play.take(Commit)
    assert action.running.manifest.number == 2
    play.take(Done)
    return play, action


def test_our_own_manifest_under_the_number_means_that_the_put_had_succeeded() -> None:
    play, action = committing()
    play.do(play.core.lost(action.round, action.running, 2, play.now))
    assert play.take(Done)[0].result == "committed"
    assert play.finish() == {"ps-0": True, "ps-1": True}
    assert {one.min_clock for one in play.take(Measure)} == {6}


def test_behind_another_coordinators_manifest_the_round_fails_and_we_go_on_from_it() -> None:
    play, action = committing()
    theirs = play.core.running.extended(
        [entry("objects/theirs", [0, 1], 9, C.key)], Manifest(number=2, author="rival", round=8, clock=9)
    )
    theirs.manifest.objects.extend(theirs.objects)
    play.do(play.core.lost(action.round, theirs, 2, play.now))
    assert "another coordinator has committed manifest 2" in play.take(Done)[0].summary.error
    assert play.finish() == {"ps-0": False, "ps-1": False}
    play.later(0.5)
    assert {(one.round, one.min_clock) for one in play.take(Measure)} == {(9, 11)}
    play.measure(*[Measure(shard, 1, 9, 11, False) for shard in (A, B)], clock=11)
    for copy in play.take(Copy):
        play.save(copy, [2], clock=11)
    manifest = play.commit()
    assert (manifest.number, manifest.parent, manifest.round) == (3, 2, 9)
    assert "objects/theirs" in [ref.key for ref in manifest.objects]


def test_an_older_put_of_ours_that_arrived_late_becomes_the_parent() -> None:
    play, action = committing()
    late = play.core.running.extended(
        [entry("objects/late", [7], 3, A.key)], Manifest(number=2, parent=1, author="me", round=action.round - 1, clock=3)
    )
    play.do(play.core.lost(action.round, late, 2, play.now))
    manifest = play.commit()
    assert (manifest.number, manifest.parent, manifest.round) == (3, 2, action.round)
    assert [ref.key for ref in manifest.objects][2] == "objects/late"
    assert play.finish() == {"ps-0": True, "ps-1": True}


def test_a_store_that_does_not_answer_fails_the_round_and_its_age_grows() -> None:
    play, action = committing()
    play.do(play.core.failed(action.round, "the store does not answer", play.now))
    assert play.core.problem == "the store does not answer"
    assert play.finish() == {"ps-0": False, "ps-1": False}
    assert play.core.age(play.now + 60) == 60.0
    play.later(0.5)
    assert play.round(clock=4).number == 2


def test_a_new_leader_goes_on_from_the_newest_manifest() -> None:
    running = RunningCheckpoint(job_with()).extended(
        [entry("objects/x", [0], 40, A.key)], Manifest(number=6, round=9, clock=40)
    )
    core = Coordinator(job_with(), "me")
    core.lead(running, 8, 12.5, 100.0)  # manifests 7 and 8 are damaged
    asked = [one for one in core.adopted(epoch_of(5, A), 100.0) if isinstance(one, Measure)]
    assert [(one.epoch, one.round, one.min_clock) for one in asked] == [(5, 10, 42)]
    assert core.age(101.0) == 13.5
    core.measured(10, A.key, 42, [("w", np.arange(4, dtype=np.uint32), np.ones(4, np.float32))], 101.0)
    actions = core.saved(10, A.key, entry("objects/y", [1], 42, A.key), 0.0, 101.0)
    (commit,) = [one for one in actions if isinstance(one, Commit)]
    assert (commit.running.manifest.number, commit.running.manifest.parent) == (9, 6)


def test_answers_of_former_rounds_change_nothing() -> None:
    play = Play()
    play.round()
    play.take(Done)
    play.take(Abandon)
    play.take(Measure)
    for actions in (
        play.core.measured(1, A.key, 9, [], play.now),
        play.core.refused(1, A.key, "x", True, play.now),
        play.core.saved(1, A.key, None, 0.0, play.now),
        play.core.failed(1, "x", play.now),
        play.core.finished(1, A.key, play.now),
        play.core.measured(2, C.key, 9, [], play.now),
    ):
        assert actions == []
    assert play.core.problem == ""
