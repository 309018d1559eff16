"""Rounds and what changes under them: epochs, full rounds, triggered rounds, compactions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar_checkpoint.core.events import (
    AbandonRound,
    CopyBlocks,
    EpochAdopted,
    FinishRound,
    LeadershipLost,
    MeasureDistances,
    ObjectsCompacted,
    RoundDone,
    RoundTriggered,
    ShardRefused,
)
from scar_checkpoint.core.round_schedule import BACKOFF
from scar_checkpoint.core.rounds import Rewrite, RoundTicket
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.top_keys import block_keys
from scar_runtime.store.layout import compact_key, object_key
from tests.unit.checkpoint_play import BLOCKS, A, B, C, Play, entry, epoch_of, job_with

# --- epochs
# ----------------------------------------------------------------------------------------------------------


def test_a_new_epoch_before_the_copy_starts_the_round_again() -> None:
    play = Play()
    play.measure(play.take(MeasureDistances)[0])
    play.do(EpochAdopted(epoch_of(2, A, C)))
    assert play.take(AbandonRound) == [AbandonRound(1)]
    assert [(one.shard, one.epoch, one.round) for one in play.take(MeasureDistances)] == [
        (A, 2, 2),
        (C, 2, 2),
    ]


@pytest.mark.parametrize("saved_first", [True, False])
def test_objects_of_shards_that_left_are_dropped_and_the_rest_is_committed(saved_first: bool) -> None:
    play = Play(shards=(A, B, C))
    play.measure(*play.take(MeasureDistances))
    one, two, three = play.take(CopyBlocks)
    if saved_first:
        play.save(two, [1])
    play.do(EpochAdopted(epoch_of(2, A, C)))
    if not saved_first:
        play.save(two, [1])
    play.save(one, [0])
    play.save(three, [])
    manifest = play.commit()
    assert ([ref.owner for ref in manifest.objects], manifest.epoch) == ([A.key], 2)
    assert play.take(RoundDone)[0].summary.missed == ("ps-1",)
    assert play.finish() == {"ps-0": True, "ps-2": False}


def test_when_all_savers_left_the_round_fails() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances))
    play.do(EpochAdopted(epoch_of(2, C)))
    assert play.take(RoundDone)[0].summary.error == "ps-0: it left the cluster; ps-1: it left the cluster"
    assert play.finish() == {}
    play.later(0.5)
    assert [one.shard for one in play.take(MeasureDistances)] == [C]


def test_a_rollback_voids_the_round_and_sets_the_clock_back() -> None:
    play = Play()
    play.round()
    play.measure(*play.take(MeasureDistances), clock=50)
    for copy in play.take(CopyBlocks):
        play.save(copy, [copy.shard.name == B.name], clock=50)
    play.commit()
    play.finish()
    assert {one.min_clock for one in play.take(MeasureDistances)} == {52}
    play.do(EpochAdopted(epoch_of(2, A, B, rollback=True, clock=2)))
    asked = play.take(MeasureDistances)
    assert {one.min_clock for one in asked} == {4}
    play.measure(*asked, clock=4)
    play.take(RoundDone)
    play.do(EpochAdopted(epoch_of(3, A, B, rollback=True, clock=2)))
    assert play.take(RoundDone)[0].summary.error == "the job was rolled back"
    assert play.finish() == {"ps-0": False, "ps-1": False}


# --- full
# ------------------------------------------------------------------------------------------------------------


EVEN, ODD = list(range(0, BLOCKS, 2)), list(range(1, BLOCKS, 2))


def test_a_full_round_runs_every_period_and_is_consistent() -> None:
    play = Play(job_with("full", period=8))
    asked = play.take(MeasureDistances)
    assert {one.min_clock for one in asked} == {8}
    play.measure(*asked, clock=8)
    for copy in play.take(CopyBlocks):
        play.save(copy, EVEN if copy.shard == A else ODD, clock=8)
    manifest = play.commit()
    assert (manifest.full, len(manifest.objects)) == (True, 2)
    play.finish()
    assert {one.min_clock for one in play.take(MeasureDistances)} == {16}


@pytest.mark.parametrize(("consistency", "full"), [("bsp", False), ("ssp", True), ("asp", True)])
def test_bsp_shards_at_different_clocks_are_no_consistent_state(consistency: str, full: bool) -> None:
    play = Play(job_with("full", consistency=consistency))
    play.measure(*play.take(MeasureDistances), clock=8)
    for copy in play.take(CopyBlocks):
        play.save(copy, EVEN if copy.shard == A else ODD, clock=8 + (copy.shard == B))
    assert play.commit().full is full
    play.finish()
    assert {one.min_clock for one in play.take(MeasureDistances)} == {16 if full else 9}


def test_a_block_that_nobody_saved_makes_a_full_round_partial() -> None:
    play = Play(job_with("full"))
    play.measure(*play.take(MeasureDistances), clock=8)
    for copy in play.take(CopyBlocks):
        play.save(copy, EVEN[:-1] if copy.shard == A else ODD, clock=8)
    assert not play.commit().full
    play.finish()
    assert play.take(MeasureDistances) == []
    play.later(BACKOFF)
    assert {one.min_clock for one in play.take(MeasureDistances)} == {9}


def test_a_partial_round_is_never_full() -> None:
    play = Play(job_with("priority", fraction=1.0))
    assert not play.round({A.name: EVEN, B.name: ODD}).full


# --- triggered rounds
# ------------------------------------------------------------------------------------------------


def test_a_trigger_runs_now_with_its_own_selection_and_leaves_the_rhythm_alone() -> None:
    play = Play()
    play.take(MeasureDistances)
    play.do(RoundTriggered(RoundTicket(7, "full", 0.0)))
    assert play.take(AbandonRound) == [AbandonRound(1)]
    asked = play.take(MeasureDistances)
    assert {(one.round, one.min_clock, one.skip) for one in asked} == {(2, 0, True)}
    play.measure(*asked, clock=1)
    for copy in play.take(CopyBlocks):
        play.save(copy, [0], clock=1)
    play.commit()
    (done,) = play.take(RoundDone)
    assert (done.tickets, done.summary.manifest) == ((7,), 1)
    play.finish()
    assert {one.min_clock for one in play.take(MeasureDistances)} == {2}


def test_triggers_queue_behind_the_round_under_way() -> None:
    play = Play()
    play.measure(play.take(MeasureDistances)[0])
    play.do(RoundTriggered(RoundTicket(1, "", 0.5)))
    play.do(RoundTriggered(RoundTicket(2, "", 0.0)))
    play.do(ShardRefused(1, B.key, "x", False))
    play.save(play.take(CopyBlocks)[0], [0])
    play.commit()
    assert play.take(RoundDone)[0].tickets == ()
    play.finish()
    play.measure(*play.take(MeasureDistances))
    sixth = block_keys(play.job, "w", np.array([5], np.uint32), np.float32([1.0]))
    assert {one.selection.threshold for one in play.take(CopyBlocks)} == {int(sixth[0])}, "half of twelve"
    for shard in (A, B):
        play.do(ShardRefused(2, shard.key, "full disk", False))
    (done,) = play.take(RoundDone)
    assert (done.tickets, done.result, done.summary.error) == (
        (1,),
        "failed",
        "ps-0: full disk; ps-1: full disk",
    )
    play.finish()
    # the second ticket does not wait for the backoff
    assert {one.min_clock for one in play.take(MeasureDistances)} == {0}


def test_a_trigger_survives_a_new_epoch_and_ends_when_no_shard_answers() -> None:
    play = Play()
    play.do(RoundTriggered(RoundTicket(1, "", 0.0)))
    play.take(MeasureDistances)
    play.do(EpochAdopted(epoch_of(2, A, C)))
    assert {(one.round, one.min_clock) for one in play.take(MeasureDistances)} == {(3, 0)}
    play.later(30.0)
    (done,) = play.take(RoundDone)
    assert done.tickets == (1,)
    assert "no answer within 30 s" in done.summary.error


def test_resigning_ends_everything_that_waits() -> None:
    play = Play()
    play.measure(*play.take(MeasureDistances))
    play.do(RoundTriggered(RoundTicket(1, "", 0.0)))
    play.take(CopyBlocks)
    play.do(LeadershipLost())
    assert play.take(AbandonRound) == [AbandonRound(1)]
    assert [(done.result, done.tickets) for done in play.take(RoundDone)] == [
        ("failed", ()),
        ("failed", (1,)),
    ]
    assert {one.shard.name: one.committed for one in play.take(FinishRound)} == {"ps-0": False, "ps-1": False}
    play.later(100.0)
    assert play.actions == []


# --- compaction in a manifest
# ----------------------------------------------------------------------------------------


def rewrite_of(running: RunningCheckpoint, blocks: list[int]) -> Rewrite:
    number = running.manifest.number
    keys = frozenset(ref.key for ref in running.objects)
    ref, header = entry(compact_key(number, "me"), blocks, 2, A.key)
    return Rewrite(number, keys, keys, ref, header)


def test_a_compaction_is_listed_by_the_next_manifest() -> None:
    play = Play()
    play.round({A.name: [0, 2], B.name: [1]})
    play.do(ObjectsCompacted(rewrite_of(play.core.chain.running, [0, 1, 2])))
    manifest = play.round({A.name: [0], B.name: [3]})
    assert [ref.key for ref in manifest.objects] == [
        compact_key(1, "me"),
        object_key(1, A.key, 2),
        object_key(1, B.key, 2),
    ]
    assert play.core.chain.rewrite is None


def test_a_compaction_that_does_not_fit_is_left_out() -> None:
    play = Play()
    play.round({A.name: [0, 2], B.name: [1]})
    incomplete = rewrite_of(play.core.chain.running, [0, 1])
    play.do(ObjectsCompacted(incomplete))
    assert len(play.round({A.name: [4], B.name: [3]}).objects) == 4
    play.do(ObjectsCompacted(replace(rewrite_of(play.core.chain.running, [0, 1, 2, 3, 4]), manifest=-7)))
    assert len(play.round({A.name: [6], B.name: [5]}).objects) == 6


def test_a_compaction_whose_blocks_were_all_saved_again_does_not_wait_for_ever() -> None:
    play = Play()
    play.round({A.name: [0], B.name: [1]})
    play.do(ObjectsCompacted(rewrite_of(play.core.chain.running, [0, 1])))
    assert len(play.round({A.name: [0], B.name: [1]}).objects) == 2
    assert play.core.chain.rewrite is None


def test_resigning_while_nothing_happens_is_no_failure() -> None:
    play = Play()
    play.do(LeadershipLost())
    assert play.take(AbandonRound) == [AbandonRound(1)]
    assert play.take(RoundDone) == []
    assert list(play.core.recent) == []


def test_a_shard_that_is_about_to_go_is_saved_alone() -> None:
    play = Play()
    play.take(MeasureDistances)
    play.do(RoundTriggered(RoundTicket(1, "priority", 1.0, B.key)))
    (asked,) = play.take(MeasureDistances)
    assert (asked.shard, asked.min_clock) == (B, 0), "it waits for no clock and for nobody else"
    play.measure(asked)
    (copy,) = play.take(CopyBlocks)
    assert copy.shard == B


def test_a_shard_that_has_gone_already_cannot_be_saved() -> None:
    play = Play()
    play.take(MeasureDistances)
    play.do(RoundTriggered(RoundTicket(1, "priority", 0.0, C.key)))
    (done,) = play.take(RoundDone)
    assert (done.result, done.tickets) == ("failed", (1,))
    assert C.key in done.summary.error
    assert len(play.take(MeasureDistances)) == 2, "the periodic round goes on"


@pytest.mark.parametrize(("finished", "full"), [(0, False), (1, True)])
def test_after_the_last_push_every_block_is_a_consistent_state_whatever_the_shards_count(
    finished: int, full: bool
) -> None:
    play = Play(job_with(consistency="bsp"))
    play.do(EpochAdopted(epoch_of(2, A, B, finished=finished)))
    play.do(RoundTriggered(RoundTicket(1, "full", 1.0)))
    play.measure(*play.take(MeasureDistances)[-2:])
    for copy, clock in zip(play.take(CopyBlocks), (7, 8), strict=True):
        play.save(copy, range(copy.shard.name == B.name, BLOCKS, 2), clock)
    assert play.commit().full == full


def test_after_a_round_that_worked_a_failure_waits_as_short_as_the_first_one() -> None:
    play = Play()

    def fail() -> float:
        play.measure(*play.take(MeasureDistances))
        for copy in play.take(CopyBlocks):
            play.do(ShardRefused(copy.round, copy.shard.key, "the store is away", False))
        play.finish()
        return play.core.schedule.not_before - play.now

    assert fail() == BACKOFF
    play.later(BACKOFF)
    assert fail() == 2 * BACKOFF
    play.later(2 * BACKOFF)
    play.round()
    assert fail() == BACKOFF
