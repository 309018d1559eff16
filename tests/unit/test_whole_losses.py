"""Losses that are kept for what failures cost: bounded, and the cost is that of all of them."""

from __future__ import annotations

import math
import random

import pytest

from scar_admin.iteration_costs import measure_cost
from scar_admin.loss_series import LossSeries
from scar_console.whole_losses import WholeLosses


def told(whole: WholeLosses) -> list[tuple[int, float]]:
    series = whole.series()
    return list(zip(series.clocks.tolist(), series.losses.tolist(), strict=True))


def test_losses_in_any_order_again_and_not_finite() -> None:
    whole = WholeLosses()
    assert told(whole) == []
    whole.add({7: 0.5, 5: 1.5, 6: math.nan})
    whole.add({5: 1.5, 9: 0.25, 3: 9.0})
    assert told(whole) == [(3, 9.0), (5, 1.5), (7, 0.5), (9, 0.25)]


@pytest.mark.parametrize("seed", range(20))
def test_of_a_long_run_the_cost_of_a_failure_is_that_of_all_losses(seed: int) -> None:
    """Though only the newest are kept: the lowest of the others is, too."""
    source = random.Random(seed)
    losses = {clock: 10 + source.random() for clock in range(3000)}
    failed = source.randrange(2800, 2900)
    losses[source.randrange(2000)] = 5.0
    losses[source.randrange(failed + 2, 3000)] = 4.0
    whole = WholeLosses(limit=512)
    for first in range(0, 3000, 50):
        whole.add({clock: losses[clock] for clock in range(max(0, first - 60), first + 50)})
    series = whole.series()
    assert len(series.clocks) <= 513
    assert (series.clocks[1:] > series.clocks[:-1]).all()
    assert measure_cost(series, failed) == measure_cost(LossSeries.of(losses), failed)


def test_a_page_that_is_opened_late_has_the_lowest_of_all() -> None:
    whole = WholeLosses(limit=100)
    whole.add({clock: 5.0 if clock != 17 else 1.0 for clock in range(1000)})
    assert told(whole)[0] == (17, 1.0)
    assert len(told(whole)) <= 101
