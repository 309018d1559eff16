"""Learning rates by clock: what can be declared, and which clock's rate a shard takes."""

from __future__ import annotations

import numpy as np
import pytest

import scar
from scar import schedules
from scar.errors import ConfigError
from scar.schedules import Phase, RateSchedule
from tests.unit.ps_support import job, push, sender, started, values

HALVING = schedules.exponential(0.5)
TABLE = scar.Table("w", (6, 2), rule=scar.sgd(-1.0, schedule=HALVING))  # values grow by what was pushed


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (schedules.constant(0.5), [0.5, 0.5, 0.5, 0.5, 0.5]),
        (schedules.linear(0, 1, 4), [0, 0.25, 0.5, 0.75, 1]),
        (schedules.step(2, 0.5), [1, 1, 0.5, 0.5, 0.25]),
        (schedules.multi_step([3, 1, 3], 0.5), [1, 0.5, 0.5, 0.125, 0.125]),
        (schedules.multi_step([0, 2], 0.5), [0.5, 0.5, 0.25, 0.25, 0.25]),
        (HALVING, [1, 0.5, 0.25, 0.125, 0.0625]),
        (schedules.cosine(2, 0.5), [1, 0.75, 0.5, 0.75, 1]),
        (schedules.sequence([schedules.linear(0, 1, 2), HALVING], [2]), [0, 0.5, 1, 0.5, 0.25]),
        (schedules.sequence([schedules.multi_step([1, 3], 0.5), HALVING], [2]), [1, 0.5, 1, 0.5, 0.25]),
    ],
)
def test_factors_of_the_first_clocks(schedule: RateSchedule, factors: list[float]) -> None:
    assert [schedule.factor(clock) for clock in range(5)] == pytest.approx(factors, abs=1e-15)


def test_a_rule_at_a_clock_is_the_same_rule_with_another_rate() -> None:
    rule = scar.momentum(0.4, 0.8, schedule=HALVING)
    assert rule.at_clock(2) == scar.momentum(0.1, 0.8)
    assert rule.at_clock(1, factor=0.5) == scar.momentum(0.1, 0.8)
    assert scar.momentum(0.4).at_clock(9) == scar.momentum(0.4)
    assert rule != scar.momentum(0.4, 0.8)
    assert rule.schedule is not None
    assert rule.schedule.describe() == "exponential(0.5)"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: schedules.exponential(1.5), "gamma is 1.5"),
        (lambda: schedules.exponential(float("nan")), "gamma is nan"),
        (lambda: schedules.step(0), "clocks is 0"),
        (lambda: schedules.linear(-1, 1, 3), "start_factor is -1"),
        (lambda: RateSchedule((Phase(0, "plateau", {}),)), "'plateau' is unknown"),
        (lambda: RateSchedule((Phase(0, "step", {"gamma": 1}),)), "clocks, gamma"),
        (lambda: RateSchedule(()), "start at clock 0"),
        (lambda: RateSchedule((Phase(2, "constant", {"factor": 1}),)), "start at clock 0"),
        (lambda: schedules.sequence([HALVING, HALVING], [0]), r"milestones \[0\]"),
        (lambda: schedules.sequence([HALVING, HALVING], []), r"milestones \[\]"),
        (lambda: schedules.sequence([HALVING] * 3, [5, 3]), r"milestones \[5, 3\]"),
        (lambda: schedules.multi_step(range(1, schedules.MAX_PHASES + 1)), "more than 4096"),
        (lambda: scar.Rule("add", {}, HALVING), "no learning rate"),
    ],
)
def test_what_cannot_be_declared(make, said) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("consistency", ["asp", "ssp"])
def test_without_waiting_a_push_has_the_rate_of_its_own_clock(consistency: str) -> None:
    shard, _ = started(job(TABLE, consistency=consistency, staleness=4), workers=2)
    push(shard, 0, 1, None, np.full(12, 16), clock=2)
    assert values(shard) == [4] * 12
    push(shard, 1, 1, None, np.full(12, 16), clock=0)  # slower than the other one
    assert values(shard) == [20] * 12


def test_a_closed_clock_has_its_own_rate_and_a_late_push_that_of_the_clock_it_joins() -> None:
    shard, _ = started(job(TABLE))
    for clock in range(2):
        push(shard, 0, 1 + clock, None, np.full(12, 16), clock=clock)
        shard.mark(sender(0), 1, clock + 1, None)
    assert values(shard) == [24] * 12
    push(shard, 0, 3, None, np.full(12, 8), clock=0)
    push(shard, 0, 4, None, np.full(12, 8), clock=2)
    shard.mark(sender(0), 1, 3, None)
    assert values(shard) == [28] * 12  # one step on the sum
