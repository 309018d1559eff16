"""``scar experiment simulate`` and ``which-strategy``: what they print and write."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from rich.console import Console

from experiments.simulate import choice, paper, rework
from experiments.simulate.scenario import STRATEGIES
from scar.errors import ConfigError
from scar_cli.main import main
from scar_compare import runner
from scar_compare.experiment import ExperimentOptions


def test_json_has_the_baseline_and_a_row_for_each_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["scar", "experiment", "simulate", "--runs", "2", "--out", str(tmp_path), "-o", "json"]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["baseline_seconds"] == pytest.approx(28_700, rel=0.01)
    rows = [(row["network"], row["strategy"], row["runs"]) for row in found["strategies"]]
    published = [
        (network, strategy, 2) for network in ("table-2", "table-3") for strategy in ("ckpt", "ps", "ignr")
    ]
    assert rows == [*published, *(("all-fail", strategy.name, 2) for strategy in STRATEGIES)]
    assert all(
        row["seconds"]["low"] <= row["seconds"]["value"] <= row["seconds"]["high"]
        for row in found["strategies"]
    )
    assert {path.name for path in tmp_path.iterdir()} >= {"simulate.json", "simulate.png", "simulate.svg"}
    sweep = found["sweeps"]["table-2"]
    assert len(sweep) == len(paper.SIZES) * len(paper.STORAGE)
    assert sweep["8 GB at 0.05 TB/s"]["seconds"]["value"] > 4 * sweep["1 GB at 0.5 TB/s"]["seconds"]["value"]


def test_people_get_a_table(tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), width=150)
    runner.run_experiment(paper, ExperimentOptions(trials=3, out=tmp_path, panels=("table-3",)), screen)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "seconds" in text
    assert text.count("table-3") == 3


def test_which_strategy_names_the_least_time_and_what_no_gradient_is_missing_from(tmp_path: Path) -> None:
    report = runner.run_experiment(
        choice, ExperimentOptions(trials=8, out=tmp_path, panels=("servers",)), Console(file=io.StringIO())
    )
    points = {point["at"]: point for point in report.summary["points"]["servers"]}
    assert list(points) == list(choice.AXES["servers"][1])
    assert all(set(point["strategies"]) == {one.name for one in STRATEGIES} for point in points.values())
    most = points[4000.0]
    assert most["least_time"] == "scar-ignr"
    assert most["least_time_with_all_gradients"] == "scar"
    assert most["strategies"]["scar"]["overhead"]["high"] < most["strategies"]["ps"]["overhead"]["low"]
    assert (
        most["strategies"]["scar-ignr"]["missing"]["value"]
        > 0
        == most["strategies"]["scar"]["missing"]["value"]
    )


def test_an_unknown_panel_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="table-9"):
        runner.run_experiment(
            paper, ExperimentOptions(out=tmp_path, panels=("table-9",)), Console(file=io.StringIO())
        )


def test_measured_costs_are_read_from_figure_8(tmp_path: Path) -> None:
    (tmp_path / "fig8.json").write_text(json.dumps({"command": "scar experiment fig8"}))
    records = [
        {
            "panel": "mlr-mnist",
            "costs": {"full": 5.0, "priority r=0.125 lost=0.01": 0.12345, "round r=0.125 lost=0.01": 1.0},
        },
        {
            "panel": "mlr-mnist",
            "costs": {"full": 6.0, "priority r=0.125 lost=0.01": 0.5, "priority r=0.125 lost=0.5": 2.0},
        },
    ]
    (tmp_path / "fig8.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    expected = {"command": "scar experiment fig8", "costs": {"0.01": [0.123, 0.5], "0.5": [2.0]}}
    assert rework.read_costs(tmp_path) == {"mlr-mnist": expected}


@pytest.mark.parametrize("panel", ["lda-reuters", "mlr-mnist"])
def test_what_is_in_the_repository_was_measured(panel: str) -> None:
    found = rework.measured_rework(panel)
    assert all(len(trials) >= 100 for trials in found.costs)
    assert "scar experiment fig8" in json.loads(rework.FILE.read_text())[panel]["command"]
    median = [found.cost_of(fraction, 0.5) for fraction in (0.01, 0.5, 1.0)]
    assert median == sorted(median)
