"""``scar experiment``: what is asked for reaches the experiments, and what cannot be is refused in words."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("scipy")

from experiments import suite
from experiments.panels import chosen_panels
from scar.errors import ConfigError
from scar_cli.experiment import experiment_options, run_experiments
from scar_cli.main import app
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord


class Stub:
    """Shows panels of MLR; remembers what was asked for."""

    NAME = "stub"
    asked: ExperimentOptions
    figure = Figure([Panel("", "", "", [Series("", [0, 1], [0, 1])])])

    def plan_batches(self, options: ExperimentOptions) -> list[TrialBatch]:
        self.asked = options
        return [
            TrialBatch(panel, (0, 1), _work)
            for panel in chosen_panels(options.panels, ("mlr-mnist",), ("mlr",))
        ]

    def make_report(self, _options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
        return ExperimentReport({"trials": len(records)}, [["trials"], [str(len(records))]], self.figure)


def _work(trials: tuple[int, ...]):
    for trial in trials:
        yield {"trial": trial}


def shown_panels(page: Path) -> list[dict[str, Any]]:
    """What a report draws, as its scripts read it."""
    text = page.read_text(encoding="utf-8")
    data = text.partition('<script type="application/json" id="report-data">')[2].partition("</script>")[0]
    found: list[dict[str, Any]] = json.loads(data)
    return found


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    found = Stub()
    monkeypatch.setattr(suite, "EXPERIMENTS", (found,))
    return found


def invoke(*words: object):
    return CliRunner().invoke(app, ["experiment", *map(str, words)])


def test_every_option_reaches_the_experiment(stub: Stub, tmp_path: Path) -> None:
    words = (
        "--trials 2 --seed 7 --jobs 1 --quick --panel mlr-fashion-mnist --lost 0.3 --lost 0.6 --fraction 0.2"
        " --period 5"
    )
    more = "--mean 0.3 --gain 0.9 --horizon 40 --pending --unweighted --block-rows 8"
    done = invoke("stub", *words.split(), *more.split(), "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert stub.asked == ExperimentOptions(
        trials=2,
        seed=7,
        out=tmp_path,
        quick=True,
        panels=("mlr-fashion-mnist",),
        lost=(0.3, 0.6),
        fractions=(0.2,),
        period=5,
        mean=0.3,
        gain=0.9,
        horizon=40,
        pending=True,
        unweighted=True,
        block_rows=8,
    )
    command = json.loads((tmp_path / "stub.json").read_text())["command"]
    again = invoke(*command.split()[2:], "--out", tmp_path, "--recorded")
    assert again.exit_code == 0, again.output
    assert (stub.asked.horizon, stub.asked.block_rows) == (40, 8), (
        "the command in the summary asks for the same"
    )
    assert json.loads((tmp_path / "stub.json").read_text())["command"] == command


def test_what_is_left_out_is_as_the_experiment_thinks_best() -> None:
    assert experiment_options(trials=3, panels=[], lost=None, fractions=None, gain=None) == ExperimentOptions(
        trials=3
    )


def test_all_leaves_out_what_shows_none_of_the_panels(stub: Stub, tmp_path: Path) -> None:
    assert invoke("all", "--panel", "lda-reuters", "--out", tmp_path).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="stub shows none of these panels"):
        run_experiments("stub", experiment_options(panels=["lda-reuters"], out=tmp_path))


def test_nothing_recorded_is_nothing_to_report(stub: Stub, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no trial"):
        run_experiments("stub", experiment_options(recorded=True, out=tmp_path))


def test_only_the_trials_that_are_asked_for_are_reported(stub: Stub, tmp_path: Path) -> None:
    run_experiments("stub", experiment_options(out=tmp_path))
    journal = tmp_path / "stub.jsonl"
    journal.write_text(
        journal.read_text() + journal.read_text().splitlines()[0].replace('"trial": 0', '"trial": 9') + "\n"
    )
    done = invoke("stub", "--recorded", "--output", "json", "--out", tmp_path)
    assert json.loads(done.stdout)["trials"] == 2


def test_unknown_experiments_and_missing_parts_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="'fig4' is unknown"):
        run_experiments("fig4", experiment_options(out=tmp_path))
    monkeypatch.setitem(sys.modules, "experiments.suite", None)
    with pytest.raises(ConfigError, match="cannot be run") as refused:
        experiment_options(trials=1)
    assert "pip install" in str(refused.value)


def test_a_real_experiment_from_the_command_line(tmp_path: Path) -> None:
    assert invoke("fig3", "--trials", 20, "--out", tmp_path).exit_code == 0
    summary = json.loads((tmp_path / "fig3.json").read_text())
    assert summary["panels"]["single"]["bound_crossed"] == 0
    assert summary["table"][0][0] == "panel"


def test_a_page_beside_the_figure_has_its_numbers(stub: Stub, tmp_path: Path) -> None:
    """Arrays, intervals, names of places; what is no number is left out, what is markup is text."""
    series = Series("<b>", np.array([1.0, 2.0]), [0.5, math.nan], [0.25, 0.0], [1.0, 3.0], "marks")
    panel = Panel("costs", "r", "ι", [series], ticks=[(1, "one"), (2, "two")], scale="log", zero=True)
    stub.figure = Figure([panel, panel], "two of them", ["a note"])
    done = invoke("stub", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "stub.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert all(words in text for words in ("two of them", "a note", "Made by: scar experiment stub --seed 1"))
    [shown, _] = shown_panels(tmp_path / "stub.html")
    assert shown == {
        "title": "costs",
        "x": "r",
        "y": "ι",
        "scale": "log",
        "y_scale": "linear",
        "zero": True,
        "ticks": [[1.0, "one"], [2.0, "two"]],
        "series": [
            {"label": "<b>", "style": "marks", "x": [1.0, 2.0], "y": [0.5, None]}
            | {"low": [0.25, 0.0], "high": [1.0, 3.0]}
        ],
    }
    for row in json.loads((tmp_path / "stub.json").read_text())["table"]:
        assert all(f">{cell}<" in text for cell in row)
