"""What the detector does not see says nothing: its own pauses, Redis away, most members silent at once."""

from __future__ import annotations

from scar_detector.core.events import (
    AccuseMember,
    BlockLease,
    DetectorAction,
    ProbeAnswered,
    ProbeMember,
    RedisUnreadable,
    StreamBroken,
    Tick,
)
from scar_detector.core.member_state import MemberHealth, ProbeAnswer
from tests.unit.detector_world import World, cluster


def test_our_own_pause_accuses_nobody() -> None:
    world, members = cluster()
    world.sleep(30)
    world.tick()
    assert {view.health for view in world.detector.list_members(world.now)} == {MemberHealth.LEARNING}
    world.run(5)
    assert not world.accused()
    assert world.health(members[0]) is MemberHealth.ALIVE


def test_our_own_lateness_is_nobodys_silence() -> None:
    world, _ = cluster()
    for _ in range(10):
        world.sleep(0.9)
        world.tick()
        world.run(0.1)
    assert not [action for _, action in world.log if isinstance(action, BlockLease | AccuseMember)]


def test_redis_down_accuses_nobody_who_answers() -> None:
    world, members = cluster()
    world.redis = False
    world.run(10)
    assert not world.accused()
    assert "Redis" in world.detector.problem
    probes = sum(
        isinstance(action, ProbeMember) and action.member == members[0] and when > world.now - 3
        for when, action in world.log
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
        world.handle(StreamBroken(one))
    world.run(0.2)
    assert {one.member for one in world.accused()} == set(members[:4])
    assert all(one.proved for one in world.accused())


def test_two_late_looks_excuse_twice_as_much() -> None:
    world, members = cluster()
    world.freeze(members[0])
    for _ in range(2):
        world.sleep(0.9)
        world.handle(Tick())
    silence = next(view for view in world.detector.list_members(world.now) if view.member == members[0])
    assert silence.silence > 1.7
    assert silence.phi < 3, "what it missed while nobody looked does not count against it"


def test_blind_nobody_is_accused_of_silence_however_often_he_does_not_answer() -> None:
    """The last heartbeats may be in a Redis that cannot be read."""
    world, members = cluster()
    world.freeze(members[2])
    world.run(0.3)
    world.handle(RedisUnreadable())
    actions = [action for _ in range(100) for action in _blind_tick(world)]
    assert not [action for action in actions if isinstance(action, BlockLease | AccuseMember)]


def _blind_tick(world: World) -> list[DetectorAction]:
    world.now += 0.1
    world.handle(RedisUnreadable())
    actions = world.handle(Tick())
    for action in actions:
        if isinstance(action, ProbeMember):
            answer = world.answers.get(action.member.key, ProbeAnswer.ALIVE)
            world.handle(ProbeAnswered(action.member, answer))
    return actions
