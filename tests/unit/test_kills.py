"""The ruler of the kills: what it counts, from steps of which the costs are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kills.__main__ import KillRecord, main, table_lines
from benchmarks.kills.ruler import (
    KillCost,
    StepEvent,
    count_again,
    describe_spread,
    goodput,
    measure_kills,
    passage_time,
    read_events,
)
from benchmarks.kills.systems import TrainingSystem, last_step, newest_pid

STEP = 0.5


def rolled_back(steps: int, kill: int, back: int, away: float) -> list[StepEvent]:
    """Steps of one slot; after ``kill`` nothing for ``away`` seconds, then ``back`` steps again."""
    before = [StepEvent(STEP * step, step, "0") for step in range(1, kill + 1)]
    restart = STEP * kill + away
    first = kill - back
    return before + [
        StepEvent(restart + STEP * (step - first), step, "0") for step in range(first + 1, steps + 1)
    ]


def test_a_rollback_costs_its_absence_and_its_steps() -> None:
    cost = measure_kills(rolled_back(steps=100, kill=40, back=6, away=7.0), [40], 100)
    assert cost.step == pytest.approx(STEP)
    assert cost.lost == pytest.approx(7.0 + 6 * STEP)
    assert cost.gap == pytest.approx(7.0 + STEP)
    assert cost.again == 6


def test_a_run_without_a_loss_costs_nothing() -> None:
    cost = measure_kills(rolled_back(steps=100, kill=40, back=0, away=0.0), [40], 100)
    assert cost.lost == pytest.approx(0)
    assert cost.again == 0


def test_slots_are_counted_apart() -> None:
    events = [StepEvent(1, 1, "0"), StepEvent(1, 1, "1"), StepEvent(2, 1, "1"), StepEvent(3, 1, "1")]
    assert count_again(events) == 2
    assert count_again(events[:2]) == 0


def test_a_step_that_nobody_has_reached_is_an_error() -> None:
    with pytest.raises(ValueError, match="completed step 9"):
        passage_time([StepEvent(1, 8, "0")], 9)


def test_logs_of_all_lives_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "0.17.steps").write_text("1 1.5\n2 2.5\n")
    (tmp_path / "0.18.steps").write_text("2 3.5\n")
    (tmp_path / "1.19.steps").write_text("1 1.25\n")
    assert [(event.time, event.step, event.slot) for event in read_events(tmp_path)] == [
        (1.25, 1, "1"),
        (1.5, 1, "0"),
        (2.5, 2, "0"),
        (3.5, 2, "0"),
    ]
    assert newest_pid(tmp_path, 1) == 19


@pytest.mark.parametrize(("text", "step"), [("", 0), ("12 1.0", 0), ("12 1.0\n", 12), ("1 1.0\n13 2", 1)])
def test_half_a_line_does_not_count(tmp_path: Path, text: str, step: int) -> None:
    file = tmp_path / "0.1.steps"
    file.write_text(text)
    assert last_step(file) == step


def test_goodput_is_the_share_of_progress() -> None:
    assert goodput(20, 60) == 0.75
    assert goodput(-1, 60) == 1
    assert describe_spread([3, 1, 2], 1) == "2.0 [1.0, 3.0]"


def test_the_table_has_medians_and_their_goodput() -> None:
    records = [KillRecord("ddp", 0.01, 0.9, KillCost(0.025, lost, 4, 10), 0.8) for lost in (20.0, 10.0, 40.0)]
    row = table_lines({"ddp": records})[-1]
    assert "| 20.00 [10.00, 40.00] | 4.00 [4.00, 4.00] | 10 [10, 10] |" in row
    assert row.endswith("| 75.0% | 93.8% | 98.9% | 94 |")


def test_an_unknown_system_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nonsense"])
    assert "no such system: nonsense; there are scar-worker" in capsys.readouterr().err


def test_without_its_interpreter_torchft_is_left_out_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torchft", "--repeat", "1"]) == 0
    assert "torchft: left out: give --torchft PYTHON" in capsys.readouterr().out


def test_a_system_says_who_is_killed_and_who_respawns() -> None:
    from benchmarks.kills.systems import SYSTEMS

    assert all(isinstance(system, TrainingSystem) and system.victim for system in SYSTEMS.values())
    assert SYSTEMS["ddp"].respawner == "torchrun, all ranks"
