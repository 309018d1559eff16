"""The demo's report: figures from runs, checks that can fail, and files that stand alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from scar_cli.demo.report import DemoCheck, DemoFailure, DemoReport, DemoRun, PushTally, ServerKill

EPSILON = 0.5
KILLS = (ServerKill("ps-0", 11, 6), ServerKill("ps-3", 14, 6))


def curve(iterations: int) -> list[float]:
    """Falls to epsilon in exactly this many iterations."""
    return [EPSILON + (iterations - number) / 100 for number in range(1, iterations + 1)]


def tally(iterations: int, lost: int = 0, went_back: int = 0) -> PushTally:
    counted = np.full(4, 2 * iterations, dtype=np.int64)
    gone = np.array([lost, 0, 0, 0], dtype=np.int64)
    return PushTally(counted - gone, gone, 2 * iterations, went_back)


def runs() -> list[DemoRun]:
    twin = DemoRun("no failure", curve(10), tally(10), 3.0)
    failed = curve(10)[:6]
    partial = DemoRun(
        "partial recovery",
        [*failed, 0.56, 0.54, 0.53, 0.52, 0.5],
        tally(11, lost=3),
        3.5,
        KILLS,
        [DemoFailure(0.1, 0.2, 30, 0.3, 3), DemoFailure(0.15, 0.1, 10, 0.4, 0)],
        0.4,
    )
    full = DemoRun(
        "full recovery",
        [*failed, *curve(12)],
        tally(18, lost=8),
        4.0,
        KILLS,
        [DemoFailure(0.1, 0.3, 80, 2.0, 8)],
        0.5,
    )
    return [twin, partial, full]


def report(changed: list[DemoRun] | None = None) -> DemoReport:
    return DemoReport("digits", "somewhere", EPSILON, 1, changed or runs())


def failing(changed: list[DemoRun]) -> list[DemoCheck]:
    return [check for check in report(changed).checks if not check.passed]


def test_figures() -> None:
    twin, partial, full = report().rows
    assert (twin.iterations, partial.iterations, full.iterations) == (10, 11, 18)
    assert (twin.rework_iterations, partial.rework_iterations, full.rework_iterations) == (0, 1, 8)
    assert (twin.detect_seconds, twin.pause_seconds, twin.lost_blocks, twin.delta_norm) == (
        None,
        None,
        0,
        0.0,
    )
    assert (partial.detect_seconds, partial.recover_seconds, partial.lost_blocks) == (0.15, 0.2, 40)
    assert partial.delta_norm == pytest.approx(0.5)
    assert partial.final_loss == EPSILON


def test_a_detection_that_nobody_measured_is_no_number() -> None:
    changed = runs()
    changed[2] = replace(changed[2], failures=[DemoFailure(-1.0, 0.3, 80, 2.0, 8)])
    assert report(changed).rows[2].detect_seconds is None


def test_an_unknown_norm_stays_unknown() -> None:
    changed = runs()
    changed[1] = replace(changed[1], failures=[DemoFailure(0.1, 0.2, 30, -1.0, 3)])
    assert report(changed).rows[1].delta_norm is None


def test_all_checks_pass_when_nothing_is_wrong() -> None:
    assert failing(runs()) == []
    assert report().passed
    assert len(report().checks) == 9


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (-1, "0 blocks hold too much, 1 blocks too little"),
        (+1, "1 blocks hold too much, 0 blocks too little"),
    ],
)
def test_a_lost_push_and_a_double_push_are_found(change: int, found: str) -> None:
    changed = runs()
    counted = changed[1].tally.counted.copy()
    counted[2] += change
    changed[1] = replace(changed[1], tally=replace(changed[1].tally, counted=counted))
    (check,) = failing(changed)
    assert "partial recovery" in check.name
    assert check.detail.startswith(found)


def test_a_loss_without_a_ledger_entry_is_found() -> None:
    changed = runs()
    changed[2] = replace(changed[2], tally=replace(changed[2].tally, lost=np.zeros(4, dtype=np.int64)))
    assert [check.name for check in failing(changed)] == [
        "full recovery: every acknowledged push counts once or is in the ledger"
    ]


def test_what_a_rollback_made_void_may_be_missing_but_not_more() -> None:
    changed = runs()
    short = changed[2].tally.counted - np.array([0, 1, 2, 0])
    changed[2] = replace(changed[2], tally=replace(changed[2].tally, counted=short, void=2))
    assert failing(changed) == []
    changed[2] = replace(changed[2], tally=replace(changed[2].tally, void=1))
    (check,) = failing(changed)
    assert check.detail.startswith("0 blocks hold too much, 1 blocks too little")


def test_values_that_went_back_are_found() -> None:
    changed = runs()
    changed[1] = replace(changed[1], tally=tally(11, went_back=2))
    assert any("never go back" in check.name for check in failing(changed))


def test_another_curve_another_kill_and_no_end_are_found() -> None:
    changed = runs()
    other = list(changed[1].losses)
    other[2] = np.nextafter(other[2], 1.0)
    changed[1] = replace(changed[1], losses=other)
    changed[2] = replace(
        changed[2], killed=(ServerKill("ps-0", 11, 7), ServerKill("ps-3", 14, 7)), losses=curve(30)[:8]
    )
    names = " / ".join(check.name for check in failing(changed))
    assert "partial recovery: bit for bit" in names
    assert "differs in iteration 3" in " ".join(check.detail for check in failing(changed))
    assert "same iteration" in names
    assert "every run reaches epsilon" in names


def test_rework_below_zero_is_found() -> None:
    """Half of a loss looked like a win, and every check passed."""
    changed = runs()
    changed[2] = replace(changed[2], losses=[*changed[2].losses[:7], 0.39, *changed[2].losses[8:]])
    (check,) = failing(changed)
    assert (check.name, check.detail) == ("no failure saves iterations", "full recovery: 2 iterations sooner")


def test_the_document_is_plain_json_with_the_promised_keys() -> None:
    document = json.loads(json.dumps(report().document()))
    assert {"dataset", "epsilon", "killed", "runs", "checks"} <= set(document)
    assert document["killed"][0] == {"run": "partial recovery", "shard": "ps-0", "pid": 11, "iteration": 6}
    wanted = {
        "name",
        "iterations",
        "rework_iterations",
        "detect_seconds",
        "recover_seconds",
        "lost_blocks",
        "delta_norm",
        "final_loss",
    }
    assert all(wanted <= set(run) for run in document["runs"])
    assert document["passed"] is True


def test_picture_and_page_stand_alone() -> None:
    plots = pytest.importorskip("scar_cli.demo.plots")
    image = plots.draw_picture(report())
    assert image.startswith(b"\x89PNG")
    html = plots.html_page(replace(report(), origin="<b>"))
    assert " src=" not in html
    assert "import " not in html.partition("report-data")[2].rpartition("<script>")[2], (
        "it has no modules beside it"
    )
    assert "&lt;b&gt;" in html
    assert "pid 14" in html
    assert all(run.name in html for run in runs())


def test_an_iteration_without_a_loss_is_one_all_the_same() -> None:
    changed = runs()
    changed[2] = replace(changed[2], losses=[*changed[2].losses[:-2], math.nan, *changed[2].losses[-1:]])
    assert failing(changed) == []
    assert changed[2].iterations(EPSILON) == runs()[2].iterations(EPSILON)
    shown = DemoReport("digits", "here", EPSILON, 1, changed).document()["runs"][2]["losses"]
    assert (shown[-2], shown[-1]) == (None, changed[2].losses[-1])
