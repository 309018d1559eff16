"""Progress and lease, with a made-up clock."""

from __future__ import annotations

import pytest

from scar_runtime.heart import STUCK_SECONDS, Heart


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heart(clock: Clock) -> Heart:
    """A heart with a fresh lease of 2 s."""
    heart = Heart(2.0, clock)
    heart.renew(clock.now, confirmed=True)
    return heart


def test_beats_are_progress(heart: Heart, clock: Clock) -> None:
    clock.now += 0.4
    assert heart.idle == pytest.approx(0.4)
    heart.beat()
    assert (heart.progress, heart.idle) == (1, 0.0)


def test_no_lease_before_recovery_has_confirmed_one(clock: Clock) -> None:
    heart = Heart(2.0, clock)
    heart.renew(clock.now)
    assert not heart.lease_valid()
    heart.renew(clock.now, confirmed=True)
    assert heart.lease_valid()


def test_the_lease_counts_from_before_the_request(heart: Heart, clock: Clock) -> None:
    clock.now += 1.5
    heart.renew(asked=clock.now - 1.0)
    clock.now += 0.9
    assert heart.lease_valid()
    clock.now += 0.2
    assert not heart.lease_valid()


def test_a_late_answer_does_not_shorten_the_lease(heart: Heart, clock: Clock) -> None:
    heart.renew(clock.now - 1.9)
    clock.now += 1.9
    assert heart.lease_valid()


def test_a_lost_lease_comes_back_only_by_recovery(heart: Heart, clock: Clock) -> None:
    """A shard that was frozen wakes up: what waited in its sockets must not make it serve again."""
    clock.now += 10
    heart.beat()
    heart.renew(clock.now)
    assert not heart.lease_valid()
    heart.renew(clock.now, confirmed=True)
    assert heart.lease_valid()


def test_stuck_means_the_working_thread_alone(heart: Heart, clock: Clock) -> None:
    clock.now += STUCK_SECONDS + 0.01
    heart.renew(clock.now)
    assert heart.stuck
    heart.beat()
    assert not heart.stuck


def test_who_resigned_never_serves_again(heart: Heart, clock: Clock) -> None:
    heart.resign()
    heart.renew(clock.now, confirmed=True)
    assert not heart.lease_valid()
