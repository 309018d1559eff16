"""What `scar train` tells beside its line: prints, holdups with a stack, a loss that is no number."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_cli.commentary import Commentary, line_printer, void_loss
from scar_cli.wait_reports import WaitReporter
from scar_local import worker_output
from tests.unit.test_waits import training, worker


class Watcher(ClusterObserver):
    """Knows the stack of every worker, and who was asked for."""

    def __init__(self, recovery: str) -> None:
        super().__init__(recovery)
        self.asked: list[str] = []

    def stack(self, worker: str) -> list[str]:
        self.asked.append(worker)
        return ["train.py:7 in dig: while True: [pass]"]


def screen() -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, width=200, highlight=False), shown


def test_lines_are_told_once_and_whole(tmp_path: Path) -> None:
    output, file = worker_output.WorkerOutput(tmp_path), tmp_path / "worker-0.out"
    assert output.lines(["worker-0"]) == []
    file.write_bytes(b"one\ntw")
    (tmp_path / "worker-9.out").write_bytes(b"of another job\n")
    assert output.lines(["worker-0"]) == [("worker-0", "one")]
    file.write_bytes(b"one\ntwo\n10%\r50%\r100%\nlast")
    assert output.lines(["worker-0"]) == [("worker-0", "two"), ("worker-0", "100%")]
    assert output.lines(["worker-0"]) == []
    assert output.lines(["worker-0"], last=True) == [("worker-0", "last")]
    assert output.lines(["worker-0"], last=True) == []


def test_who_prints_without_end_is_not_read_without_end(tmp_path: Path) -> None:
    output = worker_output.WorkerOutput(tmp_path)
    (tmp_path / "worker-0.out").write_bytes(
        b"x" * 99 + b"\n" + b"y" * 9 + b"\n" * (2 * worker_output.BEHIND_BYTES) + b"end\n"
    )
    told = output.lines(["worker-0"])
    assert "bytes are not shown" in told[0][1]
    assert len(told) <= worker_output.READ_BYTES + 1
    assert told[-1] == ("worker-0", "end")


def test_lines_come_with_the_name_and_are_no_markup() -> None:
    console, shown = screen()
    line_printer(console)([("worker-1", "a [bold]b[/] \x1b[31mred\x1b[0m")])
    assert shown.getvalue() == "worker-1 | a [bold]b[/] red\n"


def test_a_holdup_is_told_after_five_seconds_with_the_stack_and_not_all_the_time() -> None:
    console, shown = screen()
    watcher, now = Watcher("127.0.0.1:1"), [0.0]
    holdups = WaitReporter(console, watcher, lambda: now[0])
    late = training(worker("worker-0", waited=12.0), worker("worker-1", clock=6))
    assert holdups.look(late) == ("worker-0 has not finished clock 5, worker-1 wait for it (12.0 s)",)
    assert shown.getvalue().splitlines() == [
        "waiting: worker-0 has not finished clock 5, worker-1 wait for it (12.0 s)",
        "  train.py:7 in dig: while True: [pass]",
        "  next: Its stack says where it is; stop the training by Ctrl-C",
    ]
    now[0] = 29.0
    holdups.look(late)
    assert watcher.asked == ["worker-0"]
    now[0] = 31.0
    holdups.look(late)
    assert watcher.asked == ["worker-0", "worker-0"]


def test_what_nobody_has_measured_counts_from_when_it_was_seen_first_whatever_its_numbers() -> None:
    console, shown = screen()
    now = [0.0]
    holdups = WaitReporter(console, Watcher("127.0.0.1:1"), lambda: now[0])
    assert holdups.look(training(worker("worker-0"), problems=("ps-0: round 1 failed",))) == ()
    now[0] = 4.0
    assert holdups.look(training(worker("worker-0"), problems=("ps-0: round 2 failed",))) == (
        "ps-0: round 2 failed (4.0 s)",
    )
    assert shown.getvalue() == ""
    now[0] = 6.0
    holdups.look(training(worker("worker-0"), problems=("ps-0: round 3 failed",)))
    assert shown.getvalue() == "waiting: ps-0: round 3 failed (6.0 s)\n"
    assert holdups.look(training(worker("worker-0"))) == ()
    holdups.look(training(worker("worker-0"), problems=("ps-0: round 4 failed",)))
    assert shown.getvalue().count("\n") == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_said_once(value: float) -> None:
    console, shown = screen()
    commentary = Commentary(console, Watcher("127.0.0.1:1"), None)
    status = replace(ClusterStatus(), losses={3: 0.5, 4: value})
    for _ in range(3):
        commentary.look(status, [ProcessInfo("worker-0", 1, "running", 0)])
    assert shown.getvalue().count("since clock 4") == 1
    assert void_loss(replace(status, losses={3: value, 4: 0.5})) == ""
