"""Every run that has ever failed, cut down, is played again: see tests/simulation/shrink.py. So are runs that
come to what few seeds come to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.plan import Plan
from tests.simulation.shrink import KEPT, play_plan

PLANS = sorted(KEPT.glob("*.json"))
pytestmark = [pytest.mark.replayed, pytest.mark.timeout(400)]  # beside other processes
HIT = {"report-taken": "failpoint crash report.taken", "manifest-flipped": "fault manifest-flipped"}


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.stem)
def test_it_holds_now(file: Path) -> None:
    run = play_plan(Plan.from_json(file.read_text()))
    assert run.wrong == ""
    assert HIT.get(file.stem) in (None, *run.tally)


def test_there_are_some() -> None:
    assert PLANS
