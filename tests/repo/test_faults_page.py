"""The page of faults counts where simulated processes crashed and stood still."""

from __future__ import annotations

from scripts.faults_page import _failpoint_lines
from tests.simulation.faults import FAILPOINTS


def test_each_failpoint_has_a_line_with_its_counts() -> None:
    lines = _failpoint_lines({"crash epoch.created": 2, "pause /Save": 3, "pause epoch.created": 9})
    assert "| `epoch.created` | 2 |  |" in lines, "nobody is told to stand still there"
    assert "| `/Save` |  | 3 |" in lines
    assert any(f"2 of {sum(map(len, FAILPOINTS.values()))} were hit" in line for line in lines)


def test_a_run_without_counts_has_no_table() -> None:
    assert _failpoint_lines({}) == []
