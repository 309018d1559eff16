"""Progress and lease, with a made-up clock."""

from __future__ import annotations

import time

import pytest

from scar_runtime.liveness.progress_monitor import STUCK_SECONDS, ProgressMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def liveness(clock: Clock) -> ProgressMonitor:
    """With a fresh lease of 2 s."""
    liveness = ProgressMonitor(2.0, clock)
    liveness.renew_lease(clock.now, confirmed=True)
    return liveness


def test_beats_are_progress(liveness: ProgressMonitor, clock: Clock) -> None:
    clock.now += 0.4
    assert liveness.idle_seconds == pytest.approx(0.4)
    liveness.record_progress()
    assert (liveness.progress, liveness.idle_seconds) == (1, 0.0)


def test_no_lease_before_recovery_has_confirmed_one(clock: Clock) -> None:
    liveness = ProgressMonitor(2.0, clock)
    liveness.renew_lease(clock.now)
    assert not liveness.lease_valid()
    liveness.renew_lease(clock.now, confirmed=True)
    assert liveness.lease_valid()


def test_the_lease_counts_from_before_the_request(liveness: ProgressMonitor, clock: Clock) -> None:
    clock.now += 1.5
    liveness.renew_lease(asked=clock.now - 1.0)
    clock.now += 0.9
    assert liveness.lease_valid()
    clock.now += 0.2
    assert not liveness.lease_valid()


def test_a_suspended_machine_loses_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux's monotonic clock stands still in suspend, while others go on and declare it dead."""
    read, asleep = time.clock_gettime, [0.0]
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: read(clock) + asleep[0] * (clock == time.CLOCK_BOOTTIME)
    )
    liveness = ProgressMonitor(60.0)
    liveness.renew_lease(liveness.now(), confirmed=True)
    assert liveness.lease_valid()
    asleep[0] = 61.0
    assert not liveness.lease_valid()


def test_a_late_answer_does_not_shorten_the_lease(liveness: ProgressMonitor, clock: Clock) -> None:
    liveness.renew_lease(clock.now - 1.9)
    clock.now += 1.9
    assert liveness.lease_valid()


def test_a_lost_lease_comes_back_only_by_recovery(liveness: ProgressMonitor, clock: Clock) -> None:
    """A shard that was frozen wakes up: what waited in its sockets must not make it serve again."""
    clock.now += 10
    liveness.record_progress()
    liveness.renew_lease(clock.now)
    assert not liveness.lease_valid()
    liveness.renew_lease(clock.now, confirmed=True)
    assert liveness.lease_valid()


def test_stuck_means_the_working_thread_alone(liveness: ProgressMonitor, clock: Clock) -> None:
    clock.now += STUCK_SECONDS + 0.01
    liveness.renew_lease(clock.now)
    assert liveness.is_stuck
    liveness.record_progress()
    assert not liveness.is_stuck


def test_who_resigned_never_serves_again(liveness: ProgressMonitor, clock: Clock) -> None:
    liveness.give_up_lease()
    liveness.renew_lease(clock.now, confirmed=True)
    assert not liveness.lease_valid()
