"""Who is accused, when, and who never: the detector core in a small world with made-up time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.placement import Member
from scar_detector.detector import Accuse, Bar, Clear, Detector, Forget, Probe
from scar_detector.watched import Answer, Health
from tests.unit.detector_world import STEP, World, cluster, member


def test_a_crash_is_proved_in_one_tick() -> None:
    world, members = cluster()
    world.crash(members[0])
    world.detector.broken(members[0])
    assert Probe(members[0]) in world.tick()
    world.detector.probed(members[0], Answer.REFUSED, world.now)
    accusations = [action for action in world.tick() if isinstance(action, Accuse)]
    assert [(one.member, one.proved, one.evidence) for one in accusations] == [(members[0], True, "its port is closed")]
    assert world.health(members[0]) is Health.DEAD


def test_a_crash_elsewhere_is_proved_by_its_hanging_up() -> None:
    world, members = cluster()
    world.beating.discard(members[0].key)
    world.answers[members[0].key] = Answer.REJECTED
    world.detector.broken(members[0], hung_up=True)
    world.run(0.2)
    (accusation,) = world.accused()
    assert (accusation.member, accusation.proved) == (members[0], True)


def test_a_rejection_alone_proves_nothing() -> None:
    """A network policy that rejects looks like a closed port, also to a stream that it has broken."""
    world, members = cluster()
    cut, quiet = members[0], members[1]
    world.answers[cut.key] = world.answers[quiet.key] = Answer.REJECTED
    world.beating.discard(quiet.key)
    for one in (cut, quiet):
        world.detector.broken(one)
    world.run(5)
    assert [(one.member, one.proved) for one in world.accused()] == [(quiet, False)], "whose heartbeats come lives"


def test_an_answer_makes_up_for_hanging_up() -> None:
    world, members = cluster()
    world.detector.broken(members[0], hung_up=True)
    world.run(1)
    world.answers[members[0].key] = Answer.REJECTED
    world.detector.broken(members[0])
    world.run(3)
    assert not world.accused()


def test_a_broken_stream_to_a_living_member_means_nothing() -> None:
    world, members = cluster()
    world.detector.broken(members[0])
    world.run(2)
    assert not world.accused()
    assert world.health(members[0]) is Health.ALIVE


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


def test_nobody_is_accused_of_silence_before_its_lease_is_barred() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    kinds = [type(action) for _, action in world.log if action.member == members[1]]
    assert kinds[kinds.index(Bar) :] == [Bar, Accuse]


def test_a_heartbeat_that_comes_with_the_bar_saves_the_member() -> None:
    world, members = cluster()
    world.freeze(members[1])
    while not any(isinstance(action, Bar) for _, action in world.log):
        world.run(STEP)
    world.detector.heard(members[1], 9, world.now)
    assert Clear(members[1]) in world.tick()
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


def test_our_own_pause_accuses_nobody() -> None:
    world, members = cluster()
    world.sleep(30)
    world.tick()
    assert {view.health for view in world.detector.view(world.now)} == {Health.LEARNING}
    world.run(5)
    assert not world.accused()
    assert world.health(members[0]) is Health.ALIVE


def test_our_own_lateness_is_nobodys_silence() -> None:
    world, _ = cluster()
    for _ in range(10):
        world.sleep(0.9)
        world.tick()
        world.run(0.1)
    assert not [action for _, action in world.log if isinstance(action, Bar | Accuse)]


def test_redis_down_accuses_nobody_who_answers() -> None:
    world, members = cluster()
    world.redis = False
    world.run(10)
    assert not world.accused()
    assert "Redis" in world.detector.problem
    probes = sum(
        isinstance(action, Probe) and action.member == members[0] and when > world.now - 3 for when, action in world.log
    )
    assert 8 <= probes <= 11
    world.redis = True
    world.run(3)
    assert world.detector.problem == ""
    assert not world.accused()


def test_redis_down_a_real_crash_is_proved() -> None:
    world, members = cluster()
    world.redis = False
    world.run(2)
    world.crash(members[2])
    world.run(0.5)
    assert [(one.member, one.proved) for one in world.accused()] == [(members[2], True)]


def test_redis_down_silence_is_no_proof_until_it_is_back() -> None:
    world, members = cluster()
    world.redis = False
    world.freeze(members[2])
    world.run(10)
    assert not world.accused()
    world.redis = True
    world.run(2)
    assert [(one.member, one.proved) for one in world.accused()] == [(members[2], False)]


def test_most_members_silent_without_an_answer_accuses_nobody() -> None:
    world, members = cluster()
    world.freeze(*members)
    world.run(10)
    assert not world.accused()
    assert "most members" in world.detector.problem


def test_most_members_silent_while_others_answer_are_accused_carefully() -> None:
    world, members = cluster()
    world.freeze(*members[:4])
    world.run(1.0)
    assert not world.accused()
    world.run(3)
    assert {one.member for one in world.accused()} == set(members[:4])


def test_most_members_crashed_is_proved_at_once() -> None:
    world, members = cluster()
    for one in members[:4]:
        world.crash(one)
        world.detector.broken(one)
    world.run(0.2)
    assert {one.member for one in world.accused()} == set(members[:4])
    assert all(one.proved for one in world.accused())


@pytest.mark.parametrize(("answer", "evidence"), [(Answer.HUNG, "working thread"), (Answer.LAPSED, "cannot renew its lease")])
def test_who_answers_and_cannot_serve_is_suspected(answer: Answer, evidence: str) -> None:
    """The chassis of a stuck shard stops beating; one that reaches neither Redis nor recovery has no lease."""
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
    world.answers[old.key] = Answer.STRANGER  # the new life has the same address
    new = replace(old, incarnation="bbbbbbbbbbbb")
    world.add(new)
    world.run(0.3)
    assert [(one.member, one.proved) for one in world.accused()] == [(old, True)]
    world.run(8)
    assert old not in [view.member for view in world.detector.view(world.now)]
    assert [action.member for _, action in world.log if isinstance(action, Forget)] == [old]
    assert world.health(new) is Health.ALIVE


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
    world.detector.heard(dead, 1, world.now)
    world.run(0.2)
    assert [(one.member, one.proved) for one in world.accused()] == [(dead, True)]
    world.run(6)
    assert len(world.detector) == 0


def test_a_member_that_was_accused_wrongly_comes_back() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(1.5)
    assert len(world.accused()) == 1
    world.answers[members[1].key] = Answer.ALIVE
    world.add(members[1])
    world.run(2)
    assert world.health(members[1]) is Health.DEAD, "its lease may not be renewed by heartbeats before a lease has passed"
    world.run(6)
    assert Clear(members[1]) in [action for _, action in world.log]
    assert world.health(members[1]) is Health.ALIVE
    world.crash(members[1])
    world.detector.broken(members[1])
    world.run(0.2)
    assert [one.proved for one in world.accused()] == [False, True]


def test_the_view_names_the_suspect() -> None:
    world, members = cluster()
    world.freeze(members[1])
    world.run(0.6)
    view = {one.member: one for one in world.detector.view(world.now)}
    assert view[members[1]].health is Health.SUSPECT
    assert view[members[1]].phi > 8
    assert view[members[1]].silence == pytest.approx(0.6, abs=0.15)
    assert view[members[0]].health is Health.ALIVE


def test_unknown_members_are_ignored() -> None:
    detector = Detector()
    detector.broken(member("ps-0"))
    detector.probed(member("ps-0"), Answer.REFUSED, 1.0)
    detector.barred(member("ps-0"), done=True)
    assert detector.tick(1.0) == []
    assert detector.view(1.0) == []


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
            world.detector.broken(victim)
        world.run(data.draw(st.floats(0.1, 2)))
    assert {one.member for one in world.accused()} <= guilty
    world.redis = True
    world.run(9)
    crashed = {one for one in guilty if world.answers[one.key] is Answer.REFUSED}
    assert crashed <= {one.member for one in world.accused()} <= guilty
