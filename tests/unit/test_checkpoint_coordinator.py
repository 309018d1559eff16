"""Rounds: when they run, who takes part, who misses; and who has committed when a put is lost."""

from __future__ import annotations

import numpy as np
import pytest

from scar_checkpoint.core.coordinator import Coordinator
from scar_checkpoint.core.events import (
    AbandonRound,
    BlocksSaved,
    ClockTicked,
    CopyBlocks,
    CountKeys,
    DistancesMeasured,
    EpochAdopted,
    FinishRound,
    LeadershipGained,
    LeadershipLost,
    MeasureDistances,
    ReadCheckpoint,
    ReadFailed,
    RoundDone,
    ShardFinished,
    ShardRefused,
)
from scar_checkpoint.core.takeover import RETRY_SECONDS
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.selection import above
from scar_runtime.checkpoint.top_keys import KeyRange, block_keys
from scar_runtime.store.layout import object_key
from tests.unit.checkpoint_play import A, B, C, Play, entry, epoch_of, job_with

# --- the course of a round
# -------------------------------------------------------------------------------------------


def test_a_round_goes_from_distances_to_finish() -> None:
    play = Play()
    asked = play.take(MeasureDistances)
    assert [(one.shard, one.epoch, one.round, one.min_clock, one.skip) for one in asked] == [
        (A, 1, 1, 2, False),
        (B, 1, 1, 2, False),
    ]
    play.measure(asked[0])
    assert play.actions == []
    play.now += 0.5
    play.measure(asked[1], far={B.key: 2.0})
    copies = play.take(CopyBlocks)
    assert [(one.shard, one.epoch, one.round) for one in copies] == [(A, 1, 1), (B, 1, 1)]
    (third,) = block_keys(play.job, "w", np.array([5], np.uint32), np.float32([2.0]))
    assert copies[0].selection == copies[1].selection == above(int(third))
    play.save(copies[0], [])
    play.now += 0.25
    ref = play.save(copies[1], [1, 3, 5])
    manifest = play.commit()
    assert (manifest.number, manifest.parent, manifest.job, manifest.author) == (1, 0, "job", "me")
    assert (manifest.epoch, manifest.round, manifest.selection, manifest.clock, manifest.full) == (
        1,
        1,
        "priority",
        2,
        False,
    )
    assert list(manifest.objects) == [ref]
    (done,) = play.take(RoundDone)
    summary = done.summary
    assert (done.result, summary.manifest, summary.blocks_total, summary.blocks_saved, summary.bytes) == (
        "committed",
        1,
        12,
        3,
        100,
    )
    assert (summary.select_seconds, summary.copy_seconds, summary.commit_seconds, summary.missed) == (
        0.5,
        0.001,
        0.25,
        (),
    )
    assert play.finish() == {"ps-0": False, "ps-1": True}
    assert [one.min_clock for one in play.take(MeasureDistances)] == [4, 4]
    assert play.core.chain.age(play.now + 5) == 5.0


def test_where_acknowledgements_wait_for_rounds_no_round_waits_for_a_clock() -> None:
    """A clock is finished by acknowledged pushes: it would never come."""
    play = Play(job_with(fraction=1.0, period=1, recovery="stateless", consistency="asp"))
    assert [one.min_clock for one in play.actions if isinstance(one, MeasureDistances)] == [0, 0]
    play.round(clock=0)
    assert play.take(MeasureDistances) == [], "a moment of rest between rounds"
    play.later(0.1)
    assert [one.min_clock for one in play.take(MeasureDistances)] == [0, 0]


def test_a_job_without_a_manifest_waits_for_its_first_clocks_and_needs_no_round() -> None:
    play = Play(job_with(fraction=0.5, period=8))
    assert [one.min_clock for one in play.take(MeasureDistances)] == [4, 4]
    assert play.core.chain.age(play.now) == -1.0
    assert play.core.chain.running.manifest.number == 0


def test_nothing_begins_without_shards_or_leadership() -> None:
    core = Coordinator(job_with(), "me")
    assert core.handle(EpochAdopted(epoch_of(1, A)), 0.0) == []
    assert core.handle(ClockTicked(), 1.0) == [ReadCheckpoint()]
    assert len(core.handle(LeadershipGained(RunningCheckpoint(core.job), 0, -1.0), 1.0)) == 1
    waiting = Coordinator(job_with(), "me")
    assert waiting.handle(LeadershipGained(RunningCheckpoint(waiting.job), 0, -1.0), 0.0) == []
    assert waiting.handle(EpochAdopted(epoch_of(1)), 0.0) == []


def test_a_leader_reads_the_checkpoint_until_the_store_lets_it() -> None:
    core = Coordinator(job_with(), "me")
    assert core.handle(ClockTicked(), 0.0) == [ReadCheckpoint()]
    assert core.handle(ClockTicked(), 0.1) == []  # one at a time
    assert core.handle(ReadFailed("the store is away"), 9.0) == []
    assert core.problem == "the store is away"
    assert core.handle(ClockTicked(), 9.1) == []
    assert core.handle(ClockTicked(), 9.0 + RETRY_SECONDS) == [ReadCheckpoint()]
    core.handle(LeadershipGained(RunningCheckpoint(core.job), 0, -1.0), 10.0)
    assert (core.leading, core.problem) == (True, "")
    assert core.handle(ClockTicked(), 20.0) == []


def test_who_leads_no_more_reads_nothing() -> None:
    core = Coordinator(job_with(), "me")
    core.handle(LeadershipLost(), 0.0)
    assert core.handle(ClockTicked(), 1.0) == []


def test_a_manifest_lists_its_parents_live_objects_first() -> None:
    play = Play()
    first = play.round({A.name: [0, 2], B.name: [1]})
    second = play.round({A.name: [0], B.name: [1, 3]})
    assert [ref.key for ref in second.objects] == [
        first.objects[0].key,
        object_key(1, A.key, 2),
        object_key(1, B.key, 2),
    ]
    assert (second.number, second.parent) == (2, 1)


def test_a_round_without_any_change_commits_nothing() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances), far={A.key: 0.0, B.key: 0.0})
    (done,) = play.take(RoundDone)
    assert (done.result, done.summary.manifest, done.summary.error) == (
        "unchanged",
        0,
        "nothing has changed since it was saved",
    )
    assert done.summary.unchanged
    assert play.take(CopyBlocks) == []
    assert play.finish() == {"ps-0": False, "ps-1": False}
    assert [one.min_clock for one in play.take(MeasureDistances)] == [4, 4]
    assert play.core.problem == ""


@pytest.mark.parametrize("selection", ["priority", "full"])
def test_a_round_that_finds_all_blocks_being_loaded_says_so(selection: str) -> None:
    """At the start of a job: what is not in place has not been saved either."""
    play = Play(job_with(selection))
    for one in play.take(MeasureDistances):
        play.do(DistancesMeasured(one.round, one.shard.key, 2, 0, np.zeros(KeyRange().size, np.int64)))
    for copy in play.take(CopyBlocks):
        play.save(copy, [])
    (done,) = play.take(RoundDone)
    assert (done.result, done.summary.error) == (
        "unchanged",
        "no block is in place yet: wait until they are loaded",
    )
    assert not done.summary.unchanged


@pytest.mark.parametrize(
    ("selection", "skip"), [("priority", False), ("round", True), ("random", True), ("full", True)]
)
def test_only_priority_asks_for_distances(selection: str, skip: bool) -> None:
    assert [one.skip for one in Play(job_with(selection)).take(MeasureDistances)] == [skip, skip]


def test_round_robin_goes_on_where_the_last_committed_round_ended() -> None:
    play = Play(job_with("round", fraction=0.25))
    play.measure(*play.take(MeasureDistances))
    assert {one.selection.first for one in play.take(CopyBlocks)} == {0}
    play.do(ShardRefused(1, A.key, "store down", False))
    play.do(ShardRefused(1, B.key, "store down", False))
    play.finish()
    play.later(1.0)
    play.round({A.name: [0, 2], B.name: [1]})
    play.measure(*play.take(MeasureDistances))
    assert {one.selection.first for one in play.take(CopyBlocks)} == {3}


# --- the search for the threshold
# -------------------------------------------------------------------------------------------


def searching(far: dict[str, float] | None = None) -> tuple[Play, list[CountKeys]]:
    """Both shards have measured, and are asked for finer counts, since more blocks are equally far than are
    wanted.
    """
    play = Play()
    play.counting = False
    play.measure(*play.take(MeasureDistances), far=far)
    return play, play.take(CountKeys)


def test_finer_counts_are_asked_for_until_the_threshold_is_known() -> None:
    play, asked = searching()
    depths = []
    while asked:
        assert [one.shard for one in asked] == [A, B]
        depths.append(asked[0].within.depth)
        for one in asked:
            assert play.take(CopyBlocks) == []
            play.count(one)
        asked = play.take(CountKeys)
    assert depths == [1, 2, 3, 4]
    (third,) = block_keys(play.job, "w", np.array([2], np.uint32), np.float32([1.0]))
    assert {copy.selection for copy in play.take(CopyBlocks)} == {above(int(third))}


def test_a_shard_that_does_not_count_misses_the_round() -> None:
    play, asked = searching()
    play.counting = True
    play.count(asked[0])
    play.later(31.0)
    (copy,) = play.take(CopyBlocks)
    assert copy.shard == A
    play.count(asked[1])  # too late
    play.save(copy, [0])
    play.commit()
    assert play.take(RoundDone)[0].summary.missed == ("ps-1",)
    assert play.finish() == {"ps-0": True, "ps-1": False}, "it has a round open, and hears of its end"


def test_when_nobody_counts_the_round_fails() -> None:
    play, asked = searching()
    for one in asked:
        play.do(ShardRefused(one.round, one.shard.key, "no such round", True))
    assert play.take(RoundDone)[0].result == "failed"
    assert play.take(CopyBlocks) == []


def test_a_late_count_of_an_earlier_question_is_not_added_to_a_later_one() -> None:
    play, asked = searching({A.key: 1.6, B.key: 1.6})
    for one in asked:
        play.count(one)
    again = play.take(CountKeys)
    assert [one.within.depth for one in again] == [2, 2]
    play.count(asked[0])
    play.counting = True
    for one in again:
        play.count(one)
    (third,) = block_keys(play.job, "w", np.array([2], np.uint32), np.float32([1.6]))
    assert {copy.selection for copy in play.take(CopyBlocks)} == {above(int(third))}


def test_a_new_epoch_in_the_middle_of_the_search_begins_the_round_again() -> None:
    play, _ = searching()
    play.do(EpochAdopted(epoch_of(2, A, B)))
    assert [(one.epoch, one.round) for one in play.take(MeasureDistances)] == [(2, 2), (2, 2)]


# --- shards that miss
# ------------------------------------------------------------------------------------------------


def test_a_silent_shard_misses_the_round() -> None:
    play = Play()
    asked = play.take(MeasureDistances)
    play.later(1000.0)  # nobody's clock is there yet: no deadline runs
    play.measure(asked[0])
    play.later(29.0)
    assert play.take(CopyBlocks) == []
    play.later(1.0)
    (copy,) = play.take(CopyBlocks)
    assert copy.shard == A
    play.measure(asked[1])  # too late
    play.save(copy, [0])
    play.commit()
    assert play.take(RoundDone)[0].summary.missed == ("ps-1",)
    assert play.finish() == {"ps-0": True}


def test_a_shard_that_is_too_slow_to_save_is_told_that_it_does_not_count() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances))
    copies = play.take(CopyBlocks)
    play.save(copies[0], [0])
    play.later(30.0)
    play.save(copies[1], [1])
    assert [ref.owner for ref in play.commit().objects] == [A.key]
    assert play.finish() == {"ps-0": True, "ps-1": False}


def test_a_shard_that_cannot_yet_is_asked_again() -> None:
    play = Play()
    asked = play.take(MeasureDistances)
    for wait in (0.2, 0.4, 0.8):
        play.do(ShardRefused(1, B.key, "has no epoch", True))
        assert play.take(MeasureDistances) == []
        play.later(wait)
        (again,) = play.take(MeasureDistances)
        assert again == asked[1]
    play.measure(asked[0])
    play.do(ShardRefused(1, B.key, "has no epoch", True))
    play.later(1.6)
    play.measure(*play.take(MeasureDistances))
    assert len(play.take(CopyBlocks)) == 2


def test_after_the_others_have_answered_a_refusal_is_final_soon() -> None:
    play = Play()
    asked = play.take(MeasureDistances)
    play.measure(asked[0])
    play.now += 1.5
    play.do(ShardRefused(1, B.key, "refused", True))
    assert [one.shard for one in play.take(CopyBlocks)] == [A]


def test_a_refusal_that_will_not_pass_misses_the_round_at_once() -> None:
    play = Play()
    play.measure(play.take(MeasureDistances)[0])
    play.do(ShardRefused(1, B.key, "a bug", False))
    assert [one.shard for one in play.take(CopyBlocks)] == [A]


def test_when_no_shard_can_save_the_round_fails_and_is_repeated_ever_more_slowly() -> None:
    play = Play()
    for number, wait in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 15.0), (7, 15.0)):
        asked = play.take(MeasureDistances)
        assert {(one.round, one.min_clock) for one in asked} == {(number, 2)}
        play.measure(*asked)
        for copy in play.take(CopyBlocks):
            play.do(ShardRefused(number, copy.shard.key, "the store does not answer", False))
        assert play.core.problem == "ps-0: the store does not answer; ps-1: the store does not answer"
        assert play.take(RoundDone)[0].result == "failed"
        assert play.finish() == {"ps-0": False, "ps-1": False}
        play.take(AbandonRound)
        play.later(wait - 0.01)
        assert play.actions == []
        play.later(0.01)
    play.round()
    assert play.core.problem == ""


def test_a_foreign_object_is_not_accepted() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances))
    copies = play.take(CopyBlocks)
    play.do(BlocksSaved(1, A.key, entry("objects/x", [0], 2, C.key), 0.0))
    play.save(copies[1], [1])
    assert [ref.owner for ref in play.commit().objects] == [B.key]


def test_each_shard_hears_which_object_the_manifest_names() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances))
    first, second = play.take(CopyBlocks)
    kept = play.save(first, [0])
    play.save(second, [])
    play.commit()
    told = {one.shard: (one.committed, one.object_key) for one in play.take(FinishRound)}
    assert kept is not None
    assert told == {first.shard: (True, kept.key), second.shard: (False, "")}


def test_the_next_round_waits_until_every_shard_has_heard_of_the_end() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances))
    for copy, block in zip(play.take(CopyBlocks), (0, 1), strict=True):
        play.save(copy, [block])
    play.commit()
    first, second = play.take(FinishRound)
    play.do(ShardFinished(1, first.shard.key))
    assert play.take(MeasureDistances) == []
    play.later(5.0)
    assert len(play.take(MeasureDistances)) == 2
    play.do(ShardFinished(1, second.shard.key))
