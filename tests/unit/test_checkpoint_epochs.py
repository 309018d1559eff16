"""Rounds and what changes under them: epochs, full rounds, triggered rounds, compactions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scar_checkpoint import coordinator as module
from scar_checkpoint.retention import compact_key
from scar_checkpoint.rounds import Abandon, Copy, Done, Finish, Measure, Rewrite, Ticket
from scar_runtime.objects import object_key
from scar_runtime.running import RunningCheckpoint
from tests.unit.checkpoint_play import BLOCKS, A, B, C, Play, entry, epoch_of, job_with

# --- epochs ----------------------------------------------------------------------------------------------------------


def test_a_new_epoch_before_the_copy_starts_the_round_again() -> None:
    play = Play()
    play.measure(play.take(Measure)[0])
    play.do(play.core.adopted(epoch_of(2, A, C), play.now))
    assert play.take(Abandon) == [Abandon(1)]
    assert [(one.shard, one.epoch, one.round) for one in play.take(Measure)] == [(A, 2, 2), (C, 2, 2)]


@pytest.mark.parametrize("saved_first", [True, False])
def test_objects_of_shards_that_left_are_dropped_and_the_rest_is_committed(saved_first: bool) -> None:
    play = Play(shards=(A, B, C))
    play.measure(*play.take(Measure))
    one, two, three = play.take(Copy)
    if saved_first:
        play.save(two, [1])
    play.do(play.core.adopted(epoch_of(2, A, C), play.now))
    if not saved_first:
        play.save(two, [1])
    play.save(one, [0])
    play.save(three, [])
    manifest = play.commit()
    assert ([ref.owner for ref in manifest.objects], manifest.epoch) == ([A.key], 2)
    assert play.take(Done)[0].summary.missed == ("ps-1",)
    assert play.finish() == {"ps-0": True, "ps-2": False}


def test_when_all_savers_left_the_round_fails() -> None:
    play = Play()
    play.measure(*play.take(Measure))
    play.do(play.core.adopted(epoch_of(2, C), play.now))
    assert play.take(Done)[0].summary.error == "ps-0: it left the cluster; ps-1: it left the cluster"
    assert play.finish() == {}
    play.later(0.5)
    assert [one.shard for one in play.take(Measure)] == [C]


def test_a_rollback_voids_the_round_and_sets_the_clock_back() -> None:
    play = Play()
    play.round()
    play.measure(*play.take(Measure), clock=50)
    for copy in play.take(Copy):
        play.save(copy, [copy.shard.name == B.name], clock=50)
    play.commit()
    play.finish()
    assert {one.min_clock for one in play.take(Measure)} == {52}
    play.do(play.core.adopted(epoch_of(2, A, B, rollback=True, clock=2), play.now))
    asked = play.take(Measure)
    assert {one.min_clock for one in asked} == {4}
    play.measure(*asked, clock=4)
    play.take(Done)
    play.do(play.core.adopted(epoch_of(3, A, B, rollback=True, clock=2), play.now))
    assert play.take(Done)[0].summary.error == "the job was rolled back"
    assert play.finish() == {"ps-0": False, "ps-1": False}


# --- full ------------------------------------------------------------------------------------------------------------


EVEN, ODD = list(range(0, BLOCKS, 2)), list(range(1, BLOCKS, 2))


def test_a_full_round_runs_every_period_and_is_consistent() -> None:
    play = Play(job_with("full", period=8))
    asked = play.take(Measure)
    assert {one.min_clock for one in asked} == {8}
    play.measure(*asked, clock=8)
    for copy in play.take(Copy):
        play.save(copy, EVEN if copy.shard == A else ODD, clock=8)
    manifest = play.commit()
    assert (manifest.full, len(manifest.objects)) == (True, 2)
    play.finish()
    assert {one.min_clock for one in play.take(Measure)} == {16}


@pytest.mark.parametrize(("consistency", "full"), [("bsp", False), ("ssp", True), ("asp", True)])
def test_bsp_shards_at_different_clocks_are_no_consistent_state(consistency: str, full: bool) -> None:
    play = Play(job_with("full", consistency=consistency))
    play.measure(*play.take(Measure), clock=8)
    for copy in play.take(Copy):
        play.save(copy, EVEN if copy.shard == A else ODD, clock=8 + (copy.shard == B))
    assert play.commit().full is full
    play.finish()
    assert {one.min_clock for one in play.take(Measure)} == {16 if full else 9}


def test_a_block_that_nobody_saved_makes_a_full_round_partial() -> None:
    play = Play(job_with("full"))
    play.measure(*play.take(Measure), clock=8)
    for copy in play.take(Copy):
        play.save(copy, EVEN[:-1] if copy.shard == A else ODD, clock=8)
    assert not play.commit().full
    play.finish()
    assert play.take(Measure) == []
    play.later(module.BACKOFF)
    assert {one.min_clock for one in play.take(Measure)} == {9}


def test_a_partial_round_is_never_full() -> None:
    play = Play(job_with("priority", fraction=1.0))
    assert not play.round({A.name: EVEN, B.name: ODD}).full


# --- triggered rounds ------------------------------------------------------------------------------------------------


def test_a_trigger_runs_now_with_its_own_selection_and_leaves_the_rhythm_alone() -> None:
    play = Play()
    play.take(Measure)
    play.do(play.core.trigger(Ticket(7, "full", 0.0), play.now))
    assert play.take(Abandon) == [Abandon(1)]
    asked = play.take(Measure)
    assert {(one.round, one.min_clock, one.skip) for one in asked} == {(2, 0, True)}
    play.measure(*asked, clock=1)
    for copy in play.take(Copy):
        play.save(copy, [0], clock=1)
    play.commit()
    (done,) = play.take(Done)
    assert (done.tickets, done.summary.manifest) == ((7,), 1)
    play.finish()
    assert {one.min_clock for one in play.take(Measure)} == {2}


def test_triggers_queue_behind_the_round_under_way() -> None:
    play = Play()
    play.measure(play.take(Measure)[0])
    play.do(play.core.trigger(Ticket(1, "", 0.5), play.now))
    play.do(play.core.trigger(Ticket(2, "", 0.0), play.now))
    play.do(play.core.refused(1, B.key, "x", False, play.now))
    play.save(play.take(Copy)[0], [0])
    play.commit()
    assert play.take(Done)[0].tickets == ()
    play.finish()
    play.measure(*play.take(Measure))
    assert {one.decision.count for one in play.take(Copy)} == {6}
    for shard in (A, B):
        play.do(play.core.refused(2, shard.key, "full disk", False, play.now))
    (done,) = play.take(Done)
    assert (done.tickets, done.result, done.summary.error) == ((1,), "failed", "ps-0: full disk; ps-1: full disk")
    play.finish()
    assert {one.min_clock for one in play.take(Measure)} == {0}  # the second ticket does not wait for the backoff


def test_a_trigger_survives_a_new_epoch_and_ends_when_no_shard_answers() -> None:
    play = Play()
    play.do(play.core.trigger(Ticket(1, "", 0.0), play.now))
    play.take(Measure)
    play.do(play.core.adopted(epoch_of(2, A, C), play.now))
    assert {(one.round, one.min_clock) for one in play.take(Measure)} == {(3, 0)}
    play.later(30.0)
    (done,) = play.take(Done)
    assert done.tickets == (1,)
    assert "no answer within 30 s" in done.summary.error


def test_resigning_ends_everything_that_waits() -> None:
    play = Play()
    play.measure(*play.take(Measure))
    play.do(play.core.trigger(Ticket(1, "", 0.0), play.now))
    play.take(Copy)
    play.do(play.core.resign(play.now))
    assert play.take(Abandon) == [Abandon(1)]
    assert [(done.result, done.tickets) for done in play.take(Done)] == [("failed", ()), ("failed", (1,))]
    assert {one.shard.name: one.committed for one in play.take(Finish)} == {"ps-0": False, "ps-1": False}
    play.later(100.0)
    assert play.actions == []


# --- compaction in a manifest ----------------------------------------------------------------------------------------


def rewrite_of(running: RunningCheckpoint, blocks: list[int]) -> Rewrite:
    number = running.manifest.number
    keys = frozenset(ref.key for ref in running.objects)
    ref, header = entry(compact_key(number, "me"), blocks, 2, A.key)
    return Rewrite(number, keys, keys, ref, header)


def test_a_compaction_is_listed_by_the_next_manifest() -> None:
    play = Play()
    play.round({A.name: [0, 2], B.name: [1]})
    play.core.compacted(rewrite_of(play.core.running, [0, 1, 2]))
    manifest = play.round({A.name: [0], B.name: [3]})
    assert [ref.key for ref in manifest.objects] == [compact_key(1, "me"), object_key(1, A.key, 2), object_key(1, B.key, 2)]
    assert play.core.rewrite is None


def test_a_compaction_that_does_not_fit_is_left_out() -> None:
    play = Play()
    play.round({A.name: [0, 2], B.name: [1]})
    incomplete = rewrite_of(play.core.running, [0, 1])
    play.core.compacted(incomplete)
    assert len(play.round({A.name: [4], B.name: [3]}).objects) == 4
    play.core.compacted(replace(rewrite_of(play.core.running, [0, 1, 2, 3, 4]), manifest=-7))
    assert len(play.round({A.name: [6], B.name: [5]}).objects) == 6


def test_a_compaction_whose_blocks_were_all_saved_anew_does_not_wait_for_ever() -> None:
    play = Play()
    play.round({A.name: [0], B.name: [1]})
    play.core.compacted(rewrite_of(play.core.running, [0, 1]))
    assert len(play.round({A.name: [0], B.name: [1]}).objects) == 2
    assert play.core.rewrite is None


def test_resigning_while_nothing_happens_is_no_failure() -> None:
    play = Play()
    play.do(play.core.resign(play.now))
    assert play.take(Abandon) == [Abandon(1)]
    assert play.take(Done) == []
    assert list(play.core.recent) == []


def test_a_shard_that_is_about_to_go_is_saved_alone() -> None:
    play = Play()
    play.take(Measure)
    play.do(play.core.trigger(Ticket(1, "priority", 1.0, B.key), play.now))
    (asked,) = play.take(Measure)
    assert (asked.shard, asked.min_clock) == (B, 0), "it waits for no clock and for nobody else"
    play.measure(asked)
    (copy,) = play.take(Copy)
    assert copy.shard == B


def test_a_shard_that_has_gone_already_cannot_be_saved() -> None:
    play = Play()
    play.take(Measure)
    play.do(play.core.trigger(Ticket(1, "priority", 0.0, C.key), play.now))
    (done,) = play.take(Done)
    assert (done.result, done.tickets) == ("failed", (1,))
    assert C.key in done.summary.error
    assert len(play.take(Measure)) == 2, "the periodic round goes on"
