"""Workers that nobody can call give signs of life: a call of theirs that waits, or heartbeats."""

from __future__ import annotations

from itertools import count

import pytest

from scar.errors import LivenessUnavailable
from scar.placement import Member, Role
from scar_recovery import unaddressed_members
from scar_recovery.unaddressed_members import MISSING_SECONDS, UnaddressedMembers
from scar_runtime.liveness.heartbeat_store import Heartbeat

WORKER = Member(Role.WORKER, "worker-0", "0123456789ab")


class Beats:
    """``moving``: another one at each look; ``last``: None: there never was one; ``down``: no Redis."""

    def __init__(self, last: int | None = None, moving: bool = False, down: bool = False) -> None:
        self.last, self.moving, self.down = last, moving, down
        self._counts = count(1)

    def read_heartbeat(self, key: str) -> Heartbeat | None:
        assert key == WORKER.key
        if self.down:
            raise LivenessUnavailable("no Redis")
        number = next(self._counts) if self.moving else self.last
        return None if number is None else Heartbeat(WORKER, 1, 1, number)


class Call:
    """``active``: its client is there."""

    active = True

    def is_active(self) -> bool:
        return self.active


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaddressed_members, "ANSWER_SECONDS", 0.03)
    monkeypatch.setattr(unaddressed_members, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(unaddressed_members, "RECENT_SECONDS", 0.0)


def known(beats: Beats) -> UnaddressedMembers:
    return UnaddressedMembers(beats)  # type: ignore[arg-type]


def test_who_waits_for_news_lives_until_its_call_ends() -> None:
    members, call = known(Beats()), Call()
    assert not members.is_alive(WORKER.key)
    with members.waiting(WORKER.key, call):
        assert members.is_alive(WORKER.key)
        call.active = False  # its process has died
        assert not members.is_alive(WORKER.key)
        with members.waiting(WORKER.key, Call()):
            assert members.is_alive(WORKER.key), "it has called again"
    assert not members.is_alive(WORKER.key)


def test_the_call_of_another_member_is_no_sign() -> None:
    members = known(Beats())
    with members.waiting("worker-1@0123456789ab", Call()):
        assert not members.is_alive(WORKER.key)


def test_who_sends_heartbeats_lives() -> None:
    assert known(Beats(moving=True)).is_alive(WORKER.key)
    assert not known(Beats(last=7)).is_alive(WORKER.key), "an old one stays in Redis"
    assert not known(Beats(last=None)).is_alive(WORKER.key)


def test_without_redis_nobody_is_dead() -> None:
    assert known(Beats(down=True)).is_alive(WORKER.key)


def test_only_who_has_sent_heartbeats_can_be_missed() -> None:
    assert known(Beats(last=7)).may_be_missed(WORKER.key)
    assert not known(Beats()).may_be_missed(WORKER.key)
    assert not known(Beats(down=True)).may_be_missed(WORKER.key)


def test_who_does_not_call_again_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    members, now = known(Beats()), [100.0]
    monkeypatch.setattr("scar_recovery.unaddressed_members.time.monotonic", lambda: now[0])
    assert members.find_missing([WORKER.key]) == []
    now[0] += MISSING_SECONDS - 0.1
    assert members.find_missing([WORKER.key]) == [], "it may not know this leader yet"
    with members.waiting(WORKER.key, Call()):
        now[0] += 10 * MISSING_SECONDS
        assert members.find_missing([WORKER.key]) == []
    now[0] += MISSING_SECONDS
    assert members.find_missing([WORKER.key]) == []
    now[0] += 0.1
    assert members.find_missing([WORKER.key]) == [WORKER.key]
    assert members.find_missing([WORKER.key]) == [], "it was told"
    now[0] += MISSING_SECONDS + 0.1
    assert members.find_missing([WORKER.key]) == [WORKER.key], "it is still missing"
    assert members.find_missing([]) == []
    now[0] += MISSING_SECONDS + 0.1
    assert members.find_missing([WORKER.key]) == [], "it has left, and is forgotten"


def test_a_call_whose_client_is_gone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    members, now, call = known(Beats()), [100.0], Call()
    monkeypatch.setattr("scar_recovery.unaddressed_members.time.monotonic", lambda: now[0])
    with members.waiting(WORKER.key, call):
        now[0] += MISSING_SECONDS + 0.1
        assert members.find_missing([WORKER.key]) == []
        call.active = False
        now[0] += MISSING_SECONDS - 0.1
    assert members.find_missing([WORKER.key]) == [], "the end of such a call is no sign of life"
    now[0] += 0.2
    assert members.find_missing([WORKER.key]) == [WORKER.key]


def test_who_never_calls_this_leader_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    members, now = known(Beats()), [100.0]
    monkeypatch.setattr("scar_recovery.unaddressed_members.time.monotonic", lambda: now[0])
    assert members.find_missing([WORKER.key]) == []
    now[0] += MISSING_SECONDS + 0.1
    assert members.find_missing([WORKER.key]) == [WORKER.key]


def test_who_has_just_called_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many wait, most are answered at once, and call again."""
    monkeypatch.setattr(unaddressed_members, "RECENT_SECONDS", 1.0)
    members, now = known(Beats()), [100.0]
    monkeypatch.setattr("scar_recovery.unaddressed_members.time.monotonic", lambda: now[0])
    with members.waiting(WORKER.key, Call()):
        pass
    now[0] += 0.9
    assert members.is_alive(WORKER.key)


def test_that_somebody_is_missing_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaddressed_members, "RECENT_SECONDS", 0.5)
    monkeypatch.setattr(unaddressed_members, "MISSING_SECONDS", 0.0)
    members = known(Beats())
    members.find_missing([WORKER.key])
    assert members.find_missing([WORKER.key]) == [WORKER.key]
    assert not members.is_alive(WORKER.key)
