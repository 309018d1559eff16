"""A few fixed seeds of everything at once, at every `make replay`; `make simulate` plays others."""

from __future__ import annotations

import pytest

from tests.simulation.plan import LONG_EVERY
from tests.simulation.simulated import simulate

FIRSTS = (1, 6, 11, 16)  # none that lasts long is among those that follow
pytestmark = [pytest.mark.replayed, pytest.mark.timeout(400)]


@pytest.mark.parametrize("first", FIRSTS)
def test_every_guarantee_holds(first: int) -> None:
    runs = simulate("swarm", first=first, seeds=LONG_EVERY - 1)
    assert {run.seed: run.wrong for run in runs if run.wrong} == {}
    assert all(any(what.startswith("fault ") for what in run.tally) for run in runs)
