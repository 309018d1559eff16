"""Who is accused, when, and who never: the detector core in a small world with made-up time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.event_log import EventRing, HandledEvent
from scar.placement import Member
from scar_detector.core.detector import Detector
from scar_detector.core.events import (
    AccuseMember,
    BlockLease,
    ClearSuspicion,
    ForgetMember,
    HeartbeatSeen,
    LeaseBlocked,
    ProbeAnswered,
    ProbeMember,
    StreamBroken,
    Tick,
)
from scar_detector.core.member_state import MemberHealth, ProbeAnswer, SuspicionFacts
from tests.unit.detector_world import POLICY, STEP, World, cluster, member


def test_a_crash_is_proved_in_one_tick() -> None:
    world, members = cluster()
    world.crash(members[0])
    world.handle(StreamBroken(members[0]))
    assert ProbeMember(members[0]) in world.tick()
    world.handle(ProbeAnswered(members[0], ProbeAnswer.REFUSED))
    accusations = [action for action in world.tick() if isinstance(action, AccuseMember)]
    assert [(one.member, one.proved, one.evidence) for one in accusations] == [
        (members[0], True, "its port is closed")
    ]
    assert world.health(members[0]) is MemberHealth.DEAD


def test_a_crash_is_suspected_when_its_stream_breaks() -> None:
    world, members = cluster()
    beaten = world.detector.list_members(world.now)[0].silence
    world.crash(members[0])
    world.sleep(0.25)
    world.handle(StreamBroken(members[0]))
    world.sleep(0.5)
    world.handle(ProbeAnswered(members[0], ProbeAnswer.REFUSED))
    (accusation,) = [action for action in world.tick() if isinstance(action, AccuseMember)]
    assert accusation.suspected == pytest.approx(beaten + 0.25)
    assert accusation.silence == pytest.approx(beaten + 0.75)


def test_a_silent_member_is_suspected_when_its_silence_is_improbable() -> None:
    world, members = cluster()
    world.freeze(members[1])
    suspected = None
    while not world.accused():
        world.run(STEP)
        if suspected is None and world.health(members[1]) is MemberHealth.SUSPECT:
            suspected = world.detector.list_members(world.now)[1].silence
    (accusation,) = world.accused()
    assert suspected is not None
    assert accusation.suspected is not None
    assert suspected <= accusation.suspected <= suspected + 0.05 + STEP, "at the next tick"
    assert accusation.suspected < accusation.silence


def test_a_sign_of_life_ends_a_suspicion() -> None:
    world, members = cluster()
    world.handle(StreamBroken(members[0]))
    world.run(5)
    world.crash(members[0])
    world.handle(StreamBroken(members[0]))
    world.run(1)
    (accusation,) = world.accused()
    assert accusation.suspected is not None
    assert 0 <= accusation.suspected < 1, "the first one ended five seconds ago"


def test_a_crash_elsewhere_is_proved_by_its_hanging_up() -> None:
    world, members = cluster()
    world.beating.discard(members[0].key)
    world.answers[members[0].key] = ProbeAnswer.REJECTED
    world.handle(StreamBroken(members[0], hung_up=True))
    world.run(0.2)
    (accusation,) = world.accused()
    assert (accusation.member, accusation.proved) == (members[0], True)


@pytest.mark.parametrize("answer", [ProbeAnswer.REJECTED, ProbeAnswer.FOREIGN, ProbeAnswer.UNVERIFIED])
def test_what_stands_in_between_proves_nothing(answer: ProbeAnswer) -> None:
    """A network policy that rejects looks like a closed port, also to a stream that it has broken; a proxy
    answers itself.
    """
    world, members = cluster()
    cut, quiet = members[0], members[1]
    world.answers[cut.key] = world.answers[quiet.key] = answer
    world.beating.discard(quiet.key)
    for one in (cut, quiet):
        world.handle(StreamBroken(one))
    world.run(5)
    assert [(one.member, one.proved) for one in world.accused()] == [(quiet, False)], (
        "whose heartbeats come lives"
    )


def test_an_answer_makes_up_for_hanging_up() -> None:
    world, members = cluster()
    world.handle(StreamBroken(members[0], hung_up=True))
    world.run(1)
    world.answers[members[0].key] = ProbeAnswer.REJECTED
    world.handle(StreamBroken(members[0]))
    world.run(3)
    assert not world.accused()


def test_a_broken_stream_to_a_living_member_means_nothing() -> None:
    world, members = cluster()
    world.handle(StreamBroken(members[0]))
    world.run(2)
    assert not world.accused()
    assert world.health(members[0]) is MemberHealth.ALIVE


def test_streams_that_break_again_and_again_do_not_put_off_an_accusation() -> None:
    world, members = cluster()
    world.beating.discard(members[0].key)
    world.answers[members[0].key] = ProbeAnswer.SILENT
    for _ in range(100):
        world.handle(StreamBroken(members[0]))
        world.run(0.05)
    assert [(one.member, one.proved) for one in world.accused()] == [(members[0], False)]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15)
def test_a_frozen_member_is_accused_within_a_second_and_nobody_else(seed: int) -> None:
    world, members = cluster(seed=seed)
    frozen = world.now
    world.freeze(members[1])
    world.run(3)
    (accusation,) = world.accused()
    when = next(when for when, action in world.log if action is accusation)
    assert accusation.member == members[1]
    assert not accusation.proved
    assert when - frozen <= 1.0
    assert accusation.silence <= 1.0
    assert "phi" in accusation.evidence


def test_nobody_is_accused_of_silence_before_its_lease_is_blocked() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    kinds = [type(action) for _, action in world.log if action.member == members[1]]
    assert kinds[kinds.index(BlockLease) :] == [BlockLease, AccuseMember]


def test_a_block_that_could_not_be_set_is_asked_for_again() -> None:
    """Else a heartbeat could renew the lease of a member that is accused."""
    world, members = cluster()
    world.takes_lease_blocks = False
    world.freeze(members[1])
    world.run(3)
    kinds = [type(action) for _, action in world.log if action.member == members[1]]
    assert kinds.count(BlockLease) > 1
    assert AccuseMember not in kinds
    world.takes_lease_blocks = True
    world.run(0.5)
    assert [one.member for one in world.accused()] == [members[1]]


def test_a_heartbeat_that_comes_with_the_block_saves_the_member() -> None:
    world, members = cluster()
    world.freeze(members[1])
    while not any(isinstance(action, BlockLease) for _, action in world.log):
        world.run(STEP)
    world.handle(HeartbeatSeen(members[1], 9))
    assert ClearSuspicion(members[1]) in world.tick()
    assert not world.accused()


def test_silence_counts_from_the_last_heartbeat_or_answer() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(2)
    (accusation,) = world.accused()
    assert 0.5 < accusation.silence <= 1.0, "a probe renews nothing, so one on its way cannot make it shorter"


@given(seed=st.integers(0, 2**32), jitter=st.floats(0.0, 0.09))
@settings(max_examples=15)
def test_a_slow_member_within_jitter_is_never_accused(seed: int, jitter: float) -> None:
    world, _ = cluster(seed=seed, warm=1)
    world.jitter = jitter
    world.run(10)
    assert not world.accused()


def test_a_silent_member_that_answers_probes_is_not_accused() -> None:
    world, members = cluster()
    world.beating.discard(members[1].key)
    world.run(10)
    assert not world.accused()


@pytest.mark.parametrize(
    ("answer", "evidence"),
    [(ProbeAnswer.HUNG, "working thread"), (ProbeAnswer.LAPSED, "cannot renew its lease")],
)
def test_who_answers_and_cannot_serve_is_suspected(answer: ProbeAnswer, evidence: str) -> None:
    """The chassis of a stuck shard stops beating; one that reaches neither Redis nor recovery has no
    lease.
    """
    world, members = cluster()
    world.beating.discard(members[0].key)
    world.answers[members[0].key] = answer
    world.run(1.5)
    (accusation,) = world.accused()
    assert (accusation.member, accusation.proved) == (members[0], False)
    assert evidence in accusation.evidence


def test_a_restarted_member_clears_the_old_one() -> None:
    world, members = cluster()
    old = members[0]
    world.beating.discard(old.key)
    world.answers[old.key] = ProbeAnswer.STRANGER  # the new life has the same address
    new = replace(old, incarnation="bbbbbbbbbbbb")
    world.add(new)
    world.run(0.3)
    assert [(one.member, one.proved) for one in world.accused()] == [(old, True)]
    world.run(8)
    assert old not in [view.member for view in world.detector.list_members(world.now)]
    assert [action.member for _, action in world.log if isinstance(action, ForgetMember)] == [old]
    assert world.health(new) is MemberHealth.ALIVE


def test_a_zombie_that_wakes_does_not_bury_its_successor() -> None:
    world, members = cluster()
    new = members[0]
    zombie = replace(new, incarnation="000000000000")
    world.add(zombie)
    world.run(5)
    assert not world.accused()


def test_a_member_met_silent_is_accused_in_the_end() -> None:
    world, _ = cluster()
    late = member("ps-9")
    world.add(late)
    world.run(0.05)
    world.freeze(late)
    world.run(2.5)
    assert not world.accused()
    world.run(3)
    assert [(one.member, one.proved) for one in world.accused()] == [(late, False)]


def test_a_corpse_met_at_start_is_proved_and_forgotten() -> None:
    world = World()
    dead = member("ps-0")
    world.crash(dead)
    world.handle(HeartbeatSeen(dead, 1))
    world.run(0.2)
    assert [(one.member, one.proved) for one in world.accused()] == [(dead, True)]
    world.run(6)
    assert len(world.detector) == 0


def test_a_member_that_was_accused_wrongly_comes_back() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    assert len(world.accused()) == 1
    world.answers[members[1].key] = ProbeAnswer.ALIVE
    world.add(members[1])
    world.run(2)
    assert world.health(members[1]) is MemberHealth.DEAD, (
        "its lease may not be renewed by heartbeats before a lease has passed"
    )
    world.run(6)
    assert ClearSuspicion(members[1]) in [action for _, action in world.log]
    assert world.health(members[1]) is MemberHealth.ALIVE
    world.crash(members[1])
    world.handle(StreamBroken(members[1]))
    world.run(0.2)
    assert [one.proved for one in world.accused()] == [False, True]


def test_a_member_that_comes_back_for_a_moment_and_dies_is_accused_again() -> None:
    """Recovery may have taken it for alive, and nobody else would ever speak of it."""
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    assert len(world.accused()) == 1
    world.answers[members[1].key] = ProbeAnswer.ALIVE
    world.add(members[1])
    world.run(0.2)
    world.freeze(members[1])
    world.run(3 * POLICY.remember + POLICY.patience)
    assert [one.proved for one in world.accused()] == [False, False]
    assert ForgetMember(members[1]) in [action for _, action in world.log], "after the second one"


def test_the_last_heartbeat_of_a_dead_member_may_be_read_after_the_proof() -> None:
    world, members = cluster()
    world.crash(members[1])
    world.handle(StreamBroken(members[1]))
    world.run(0.2)
    assert [one.proved for one in world.accused()] == [True]
    world.handle(HeartbeatSeen(members[1], 1))
    world.run(2 * POLICY.remember)
    assert len(world.accused()) == 1
    done = [action for _, action in world.log]
    assert ForgetMember(members[1]) in done
    assert ClearSuspicion(members[1]) not in done


def test_our_own_pause_is_no_sign_of_life_of_the_accused() -> None:
    """One that is dead would stay in view, and its heartbeat in Redis, for as long again."""
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    assert len(world.accused()) == 1
    world.sleep(2 * POLICY.pause)
    world.run(2 * POLICY.remember)
    done = [action for _, action in world.log]
    assert ForgetMember(members[1]) in done
    assert ClearSuspicion(members[1]) not in done


def test_who_lived_before_our_own_pause_is_judged_anew_after_it() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    world.answers[members[1].key] = ProbeAnswer.ALIVE
    world.add(members[1])
    world.run(0.2)
    world.freeze(members[1])
    world.sleep(2 * POLICY.pause)
    world.run(3 * POLICY.remember + POLICY.patience)
    assert len(world.accused()) == 2


def test_the_view_names_the_suspect() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(0.6)
    view = {one.member: one for one in world.detector.list_members(world.now)}
    assert view[members[1]].health is MemberHealth.SUSPECT
    assert view[members[1]].phi > 8
    assert view[members[1]].silence == pytest.approx(0.6, abs=0.15)
    assert view[members[0]].health is MemberHealth.ALIVE


def test_unknown_members_are_ignored() -> None:
    detector = Detector()
    detector.handle(StreamBroken(member("ps-0")), 1.0)
    detector.handle(ProbeAnswered(member("ps-0"), ProbeAnswer.REFUSED), 1.0)
    detector.handle(LeaseBlocked(member("ps-0"), done=True), 1.0)
    assert detector.handle(Tick(), 1.0) == []
    assert detector.list_members(1.0) == []


@given(data=st.data())
@settings(max_examples=25)
def test_only_the_guilty_are_accused_whatever_happens(data: st.DataObject) -> None:
    world, members = cluster(seed=data.draw(st.integers(0, 1000)), warm=2)
    guilty: set[Member] = set()
    for _ in range(data.draw(st.integers(1, 5))):
        event = data.draw(st.sampled_from(["crash", "freeze", "redis", "sleep", "break"]))
        victim = data.draw(st.sampled_from(members))
        if event == "crash":
            world.crash(victim)
            guilty.add(victim)
        elif event == "freeze" and victim not in guilty:
            world.freeze(victim)
            guilty.add(victim)
        elif event == "redis":
            world.redis = not world.redis
        elif event == "sleep":
            world.sleep(data.draw(st.floats(0.1, 5)))
        else:
            world.handle(StreamBroken(victim))
        world.run(data.draw(st.floats(0.1, 2)))
    assert {one.member for one in world.accused()} <= guilty
    world.redis = True
    world.run(9)
    crashed = {one for one in guilty if world.answers[one.key] is ProbeAnswer.REFUSED}
    assert crashed <= {one.member for one in world.accused()} <= guilty
    world.assert_story_replays()


def test_the_story_says_why_a_member_was_accused() -> None:
    """What `scar doctor --story` shows: no heartbeat, only what led to something, and the facts."""
    world, members = cluster()
    world.detector.story = EventRing()
    world.freeze(members[1])
    world.run(1.5)
    entries = world.detector.story.entries()
    accused = next(entry for entry in entries if _accuses(entry))
    facts = accused.facts[members[1].key]
    assert isinstance(facts, SuspicionFacts)
    assert facts.phi > 8
    assert (facts.misses, facts.answer, facts.most_silent) == (1, ProbeAnswer.SILENT, False)
    assert any(isinstance(entry.event, LeaseBlocked) for entry in entries)
    assert sum(entry.skipped.get("RedisRead", 0) for entry in entries) > 10


def _accuses(entry: HandledEvent) -> bool:
    return any(isinstance(action, AccuseMember) for action in entry.actions)
