"""The coordinator's decisions, driven by hand: events and a made-up clock in, actions out; and what may be collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar.placement import Epoch, Member, Role
from scar.tables import Checkpoint, Job, Table
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.ps_pb2 import ObjectRef
from scar_checkpoint import coordinator as module
from scar_checkpoint.coordinator import Coordinator
from scar_checkpoint.keeper import Keeper
from scar_checkpoint.retention import compact_key, garbage
from scar_checkpoint.rounds import Abandon, Action, Commit, Copy, Done, Finish, Measure, Rewrite, Ticket
from scar_runtime import running as running_module
from scar_runtime.objects import Group, ObjectHeader, Payload, Section, encode_object, object_key, object_ref, read_blocks
from scar_runtime.records import create_record, numbered
from scar_runtime.running import MANIFESTS, Headers, RunningCheckpoint, load_newest, load_running, read_manifest
from scar_runtime.selection import Report
from scar_runtime.store import Store, open_store

A, B, C = (Member(Role.SHARD, f"ps-{n}", f"{n:012x}", f"127.0.0.1:{n}") for n in range(3))
BLOCKS = 12
Kind = TypeVar("Kind", bound=Action)


def job_with(selection: str = "priority", fraction: float = 0.25, period: int = 8, **rest: Any) -> Job:
    return Job("job", [Table("w", (BLOCKS,))], checkpoint=Checkpoint(selection, fraction, period), **rest)


def epoch_of(number: int, *shards: Member, **rest: Any) -> Epoch:
    return Epoch(number, "author", "job", shards, (), {"w": np.zeros(BLOCKS, np.uint16)}, **rest)


class Play:
    """A coordinator that leads from x(0) over two shards, at time 100; collects the actions of every event."""

    def __init__(self, job: Job | None = None, shards: Sequence[Member] = (A, B), number: int = 0) -> None:
        self.job = job or job_with()
        self.core = Coordinator(self.job, "me", timeout=30.0)
        self.now = 100.0
        self.actions: list[Action] = []
        self.do(self.core.lead(RunningCheckpoint(self.job), number, -1.0, self.now))
        self.do(self.core.adopted(epoch_of(1, *shards), self.now))

    def do(self, actions: list[Action]) -> None:
        self.actions += actions

    def take(self, kind: type[Kind]) -> list[Kind]:
        """The actions of this kind so far, each once."""
        found = [action for action in self.actions if isinstance(action, kind)]
        self.actions = [action for action in self.actions if not isinstance(action, kind)]
        return found

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.core.tick(self.now))

    def measure(self, *asked: Measure, clock: int = 2, far: dict[str, float] | None = None) -> None:
        """These shards answer: A holds the even blocks, B the odd ones, C none; all distances are 1 unless ``far`` says."""
        for one in asked:
            first = {A.key: 0, B.key: 1}.get(one.shard.key, BLOCKS)
            ids = np.arange(first, BLOCKS, 2, dtype=np.uint32)
            values = np.full(len(ids), (far or {}).get(one.shard.key, 1.0), np.float32)
            report: Report = ("w", ids, values)
            self.do(self.core.measured(one.round, one.shard.key, clock, [report], self.now))

    def save(self, copy: Copy, ids: Sequence[int], clock: int = 2) -> ObjectRef | None:
        """This shard's object of these blocks is durable."""
        if not ids:
            self.do(self.core.saved(copy.round, copy.shard.key, None, 0.001, self.now))
            return None
        ref, header = entry(object_key(copy.epoch, copy.shard.key, copy.round), ids, clock, copy.shard.key, copy.round)
        self.do(self.core.saved(copy.round, copy.shard.key, (ref, header), 0.001, self.now))
        return ref

    def commit(self) -> Manifest:
        (action,) = self.take(Commit)
        self.do(self.core.committed(action.round, action.running, self.now))
        return action.running.manifest

    def finish(self) -> dict[str, bool]:
        """All shards hear the end: name -> committed."""
        told = self.take(Finish)
        for one in told:
            self.do(self.core.finished(one.round, one.shard.key, self.now))
        return {one.shard.name: one.committed for one in told}

    def round(self, ids: dict[str, list[int]] | None = None, clock: int = 2) -> Manifest:
        """A whole round that goes well."""
        self.measure(*self.take(Measure), clock=clock)
        for copy in self.take(Copy):
            self.save(copy, (ids or {A.name: [0], B.name: [1]}).get(copy.shard.name, []), clock)
        manifest = self.commit()
        self.finish()
        return manifest


def entry(key: str, ids: Sequence[int], clock: int, owner: str, number: int = 1) -> tuple[ObjectRef, ObjectHeader]:
    group = Group("w", np.array(ids, np.uint32), clock, {}, owner)
    header = ObjectHeader((Section(group, 0, np.zeros(len(ids), np.uint32)),))
    return ObjectRef(key=key, bytes=100, owner=owner, round=number, blocks=len(ids), clock=clock), header


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


# --- what may be collected -------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 4))
def test_garbage_is_never_what_a_remaining_manifest_names_or_a_coming_one_may_name(
    named: list[list[int]], keep: int, ahead: int
) -> None:
    def key(number: int) -> str:
        return object_key(1, "ps-0@aa", number)

    manifests = {
        number: Manifest(number=number, round=number + 3, objects=[ObjectRef(key=key(one)) for one in objects])
        for number, objects in enumerate(named, 1)
    }
    remaining = dict(list(manifests.items())[-keep:])
    newest = max(remaining)
    coming = [key(newest + 3 + step) for step in range(1, ahead + 1)] + [compact_key(newest, "rival"), "notes/by-a-person"]
    found = garbage([*map(key, range(newest + 4)), *coming], remaining)
    assert not {ref.key for manifest in remaining.values() for ref in manifest.objects} & set(found)
    assert not set(coming) & set(found)
    expected = {key(one) for one in range(newest + 4)} - {
        ref.key for manifest in remaining.values() for ref in manifest.objects
    }
    assert set(found) == expected
    assert garbage([compact_key(newest - 17, "rival")], remaining) == (
        [compact_key(newest - 17, "rival")] if newest > 17 else []
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}").under("job")


def write(store: Store, job: Job, number: int, ids: list[int], full: bool = False) -> None:
    """Round ``number``: one object, one manifest after its parent."""
    array = np.array(ids, np.uint32)
    group = Group("w", array, number, {"w@1": number}, A.key)
    encoded = encode_object(job, [(group, Payload(np.full(len(ids), number, "f4"), {}, np.zeros(len(ids), np.int64)))])
    key = object_key(1, A.key, number)
    store.put(key, encoded.parts)
    running = load_running(store, job, number - 1)
    after = running.extended(
        [(object_ref(key, encoded, [group], A.key, 1, number), ObjectHeader((Section(group, 0, array),)))],
        Manifest(number=number, parent=number - 1, job=job.name, round=number, full=full),
    )
    after.manifest.objects.extend(after.objects)
    create_record(store, numbered(MANIFESTS, number), after.manifest)


def keeper_of(store: Store, job: Job, clock: list[float]) -> Keeper:
    return Keeper(store, job, "me@aa", Headers(store, job), 30.0, now=lambda: clock[0])


def test_the_last_manifests_stay_restorable_and_the_rest_goes_after_its_grace(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 8):
        write(store, job, number, [number % 3])
    store.put(object_key(1, B.key, 6), b"of a round that failed")
    store.put(object_key(1, B.key, 8), b"of the round under way")
    keeper = keeper_of(store, job, clock)
    assert keeper.collect(protected={1}) == [object_key(1, B.key, 6)]
    clock[0] = 29.0
    assert keeper.collect(protected={1}) == []
    clock[0] = 31.0
    deleted = keeper.collect(protected={1})
    assert deleted == [numbered(MANIFESTS, 2), numbered(MANIFESTS, 3), numbered(MANIFESTS, 4), object_key(1, A.key, 2)]
    for number in (1, 5, 6, 7):
        running = load_running(store, job, number)
        for origin in running.origins("w", np.arange(3, dtype=np.uint32)):
            if origin.index >= 0:
                read_blocks(store, running.objects[origin.index], running.headers[origin.index], job, "w", origin.group.ids)
    assert object_key(1, B.key, 8) in store.list("objects/")
    keeper.collect(protected=set())
    clock[0] = 62.0
    assert keeper.collect(protected=set()) == [numbered(MANIFESTS, 1), object_key(1, A.key, 1)]


def test_damaged_manifests_do_not_count_as_restorable(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 7):
        write(store, job, number, [number])
    store.put(numbered(MANIFESTS, 6), b"damaged")
    keeper = keeper_of(store, job, clock)
    keeper.collect(set())
    clock[0] = 31.0
    assert keeper.collect(set()) == [numbered(MANIFESTS, 1), numbered(MANIFESTS, 2)]
    assert load_newest(store, job).manifest.number == 5
    assert object_key(1, A.key, 6) in store.list("objects/")


def test_a_job_that_rolls_back_keeps_its_newest_consistent_manifest(store: Store) -> None:
    job, clock = job_with("full", recovery="full"), [0.0]
    for number in range(1, 9):
        write(store, job, number, [*range(BLOCKS)], full=number in (1, 3))
    keeper = keeper_of(store, job, clock)
    keeper.collect(set())
    clock[0] = 31.0
    keeper.collect(set())
    assert store.list("manifests/") == [numbered(MANIFESTS, number) for number in (3, 6, 7, 8)]
    assert store.list("objects/") == [object_key(1, A.key, number) for number in (3, 6, 7, 8)]


def test_a_written_compaction_holds_every_live_block(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 5):
        write(store, job, number, [number, 8, 9, 10, 11])
    keeper = keeper_of(store, job, clock)
    running = load_newest(store, job)
    assert keeper.compact(running, 1) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_module, "FEW", 3)
        rewrite = keeper.compact(running, 1)
    assert rewrite is not None
    assert rewrite.old == {object_key(1, A.key, number) for number in (1, 2, 3)}
    after = rewrite.applied(running, 4)
    assert after is not None
    assert [ref.key for ref in after.objects] == [object_key(1, A.key, 4), compact_key(4, "me@aa")]
    for block in range(BLOCKS):
        ids = np.array([block], np.uint32)
        (before,), (now,) = running.origins("w", ids), after.origins("w", ids)
        assert (before.group.clock, before.group.watermark, before.group.owner) == (
            now.group.clock,
            now.group.watermark,
            now.group.owner,
        )
        if now.index >= 0:
            ref, header = after.objects[now.index], after.headers[now.index]
            assert read_blocks(store, ref, header, job, "w", ids).values.tolist() == [now.group.clock]
    assert keeper.collect(set()) == []
    assert read_manifest(store, 4).number == 4
