"""Reports in a real browser: one file each, made of the page's own components, that asks nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from rich.console import Console

from scar_cli.demo.plots import html_page
from scar_cli.experiment_pages import write_page
from scar_compare.comparison import StrategyComparison
from scar_compare.experiment import ExperimentOptions, ExperimentReport
from scar_compare.figures import Figure, Panel, Series
from tests.browser.test_accessible import violations
from tests.unit.test_compare import record
from tests.unit.test_demo_report import report

PHONE = 390
# What is on a canvas: how many pixels of it are not as its corner.
PAINTED = """(canvas) => {
  const picture = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(picture.data.buffer);
  return pixels.reduce((count, pixel) => count + (pixel !== pixels[0]), 0);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_is_one_file_with_its_curves(chromium: Browser, tmp_path: Path, scheme: str) -> None:
    made = report()
    file = tmp_path / "report.html"
    file.write_text(html_page(made), encoding="utf-8")
    page = chromium.new_page(color_scheme=cast(Any, scheme), viewport={"width": 390, "height": 844})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    names = page.locator("#panel-0 .u-legend .u-series")
    expect(names).to_have_count(1 + len(made.runs))  # the clock has one, too
    for run in made.runs:
        expect(page.locator("#panel-0 .u-legend")).to_contain_text(run.name)
    kills = {kill.iteration for run in made.runs for kill in run.killed}
    expect(page.locator("#panel-0 .outage")).to_have_count(len(kills))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []
    assert (asked, wrong) == ([file.as_uri()], [])
    page.close()


def compared(folder: Path) -> ExperimentReport:
    """Two strategies over three seeds, as `scar compare` writes it."""
    losses = [1.0, 0.9, 0.7, 0.6, 0.5, 0.4]
    found = [record("undisturbed", trial, losses) for trial in range(3)]
    for trial in range(3):
        late = [1.0, *losses[: -1 - trial], 0.55, 0.45]
        found += [
            record(name, trial, late, detect=[0.5 + trial], recover=[0.25]) for name in ("partial", "full")
        ]
    made = StrategyComparison(("partial", "full"), goal=0.6).make_report(ExperimentOptions(), found)
    summary = {**made.summary, "table": made.rows}
    (folder / "compare.json").write_text(json.dumps(summary), encoding="utf-8")
    return made


def opened_page(browser: Browser, file: Path, scheme: str) -> tuple[Page, list[str]]:
    """With what it asked for, and what was wrong."""
    page = browser.new_page(color_scheme=cast(Any, scheme), viewport={"width": PHONE, "height": 844})
    told: list[str] = []
    page.on("request", lambda request: told.append(request.url))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.goto(file.as_uri())
    return page, told


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_shows_every_measure_with_the_figures_of_its_json(
    chromium: Browser, tmp_path: Path, scheme: str
) -> None:
    made = compared(tmp_path)
    summary = write_page("compare", made, tmp_path, Console(quiet=True))
    file = tmp_path / "compare.html"
    page, told = opened_page(chromium, file, scheme)
    panels = page.locator(".panel")
    expect(panels).to_have_count(len(made.figure.panels))
    expect(page.locator("#panel-0 .u-legend .u-series")).to_have_count(1 + len(summary["strategies"]))
    for index in range(panels.count()):
        assert panels.nth(index).locator("canvas").evaluate(PAINTED) > 500
    shown = json.loads(page.locator("#report-data").text_content() or "")
    for measured in shown[1:]:
        [marks] = measured["series"]
        named = [name for _, name in measured["ticks"]]
        told_by_json = [summary["strategies"][name][measured["title"]] for name in named]
        assert marks["y"] == [one["value"] for one in told_by_json]
        assert (marks["low"], marks["high"]) == (
            [one["low"] for one in told_by_json],
            [one["high"] for one in told_by_json],
        )
    rows = page.locator(".scroll tbody tr").all()
    assert [row.locator("td").all_text_contents() for row in rows] == [
        list(row) for row in summary["table"][1:]
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert violations(page) == []
    assert told == [file.as_uri()]
    page.close()


def test_an_experiment_draws_points_intervals_and_logarithms(chromium: Browser, tmp_path: Path) -> None:
    x = np.geomspace(1e-3, 10, 300)
    points = Series("measured", x, np.sin(x), style="points")
    bound = Series("bound", [1.0, 1.0, 2.0], [1.0, 2.0, 3.0], style="dashed")  # a place twice
    spread = Series("spread", [1.0, 2.0], [1.0, 2.0], [0.5, 1.0], [2.0, 4.0], style="marks")
    figure = Figure(
        [
            Panel("one", "r", "cost", [points, bound], scale="log"),
            Panel("two", "", "", [spread], y_scale="log"),
        ]
    )
    made = ExperimentReport({"command": "scar experiment fig"}, [["a"], ["1"]], figure)
    (tmp_path / "fig.json").write_text(json.dumps(made.summary))
    write_page("fig", made, tmp_path, Console(quiet=True))
    page, told = opened_page(chromium, tmp_path / "fig.html", "light")
    for panel in page.locator(".panel").all():
        assert panel.locator("canvas").evaluate(PAINTED) > 500
    assert violations(page) == []
    assert told == [(tmp_path / "fig.html").as_uri()]
    page.close()
