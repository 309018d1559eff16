"""What a worker's time goes to, by a clock that a test turns."""

from __future__ import annotations

import math

import pytest

from scar._client import pace
from scar._client.pace import Pace, TimeSplit


class Hands:
    """Of the clock: ``monotonic`` as the module under test asks it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def go(self, seconds: float) -> float:
        """Returns when it was before."""
        before = self.now
        self.now += seconds
        return before


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr(pace, "time", made)
    return made


def one_clock(tracked: Pace, hands: Hands, split: TimeSplit) -> None:
    began = hands.go(split.wait)
    moving = hands.go(split.pull)
    tracked.note_pull(began, moving)
    hands.go(split.compute)
    tracked.note_push(hands.go(split.push))
    tracked.tick()


def test_each_part_is_what_it_took_and_the_first_clock_is_left_out(hands: Hands) -> None:
    tracked = Pace()
    assert tracked.seconds_since_clock == math.inf
    one_clock(tracked, hands, TimeSplit(9.0, 9.0, 9.0, 9.0))
    assert (tracked.clocks, tracked.seconds_per_clock) == (0, 0.0)
    split = TimeSplit(pull=0.25, compute=2.0, push=0.5, wait=1.0)
    one_clock(tracked, hands, split)
    assert (tracked.clocks, tracked.spent, tracked.per_clock) == (1, split, split)
    assert tracked.seconds_per_clock == 3.75
    hands.go(4.0)
    assert tracked.seconds_since_clock == 4.0


def test_averages_follow_and_sums_keep(hands: Hands) -> None:
    tracked = Pace()
    tracked.tick()
    one_clock(tracked, hands, TimeSplit(compute=1.0))
    one_clock(tracked, hands, TimeSplit(compute=2.0, wait=1.0))
    assert tracked.spent == TimeSplit(compute=3.0, wait=1.0)
    assert tracked.per_clock.compute == pytest.approx(1.1)
    assert tracked.per_clock.wait == pytest.approx(0.1)
    assert tracked.seconds_per_clock == pytest.approx(1.2)


def test_values_that_came_while_the_user_computed_cost_no_wait(hands: Hands) -> None:
    tracked = Pace()
    tracked.tick()
    moving = hands.go(1.0)  # beside the user's own code
    tracked.note_pull(hands.go(0.5), moving)
    tracked.tick()
    assert tracked.spent == TimeSplit(compute=1.0, pull=0.5)


def test_what_never_came_was_waited_for(hands: Hands) -> None:
    tracked = Pace()
    tracked.tick()
    tracked.note_pull(hands.go(0.5))
    tracked.tick()
    assert tracked.spent == TimeSplit(wait=0.5)
