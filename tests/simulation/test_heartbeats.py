"""Simulated services take another heartbeat as those of a user do: all times of liveness follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.simulated import simulate
from tests.simulation.test_idle_messages import count_calls

BEAT = "/scar.v1.Detector/Beat"  # workers have no Redis


def test_a_heartbeat_of_half_a_second_is_a_fifth_of_the_beats(tmp_path: Path) -> None:
    [usual], [slow] = (
        simulate("quiet", trace=tmp_path / name, heartbeat=heartbeat)
        for name, heartbeat in (("usual", 0.0), ("slow", 0.5))
    )
    assert (usual.wrong, slow.wrong) == ("", "")
    often, seldom = (
        count_calls(tmp_path / name / "quiet-1")[BEAT] / run.seconds
        for name, run in (("usual", usual), ("slow", slow))
    )
    assert often / seldom == pytest.approx(5, rel=0.2)
