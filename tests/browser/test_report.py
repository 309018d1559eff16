"""The demo's report in a real browser: one file, made of the page's own components, that asks nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, expect

from scar_cli.demo.plots import html_page
from tests.browser.test_accessible import violations
from tests.unit.test_demo_report import report


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
    names = page.locator("#comparison .u-legend .u-series")
    expect(names).to_have_count(1 + len(made.runs))  # the clock has one, too
    for run in made.runs:
        expect(page.locator("#comparison .u-legend")).to_contain_text(run.name)
    kills = {kill.iteration for run in made.runs for kill in run.killed}
    expect(page.locator("#comparison .outage")).to_have_count(len(kills))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []
    assert (asked, wrong) == ([file.as_uri()], [])
    page.close()
