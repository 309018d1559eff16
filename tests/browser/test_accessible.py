"""Whether everybody can use the page: by the keyboard alone, with bad eyes, and without waiting."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.still_cluster import opened

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
LOAD_SECONDS = 0.5
TABS = 60  # more than there is to reach
FOCUSED = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"


def violations(page: Page) -> list[str]:
    """What axe-core finds, with the elements that it finds it at."""
    found: Any = Axe().run(page, options=RULES).response["violations"]
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(chromium: Browser, url: str, scheme: str, width: int) -> None:
    page = opened(chromium, url, scheme, width)
    page.locator('.flag[data-failure="1"]').click()
    expect(page.locator("#log-lines p.printed").first).to_be_visible()
    assert violations(page) == []
    page.close()


def test_all_that_can_be_clicked_is_reached_by_the_tab_key(chromium: Browser, url: str) -> None:
    page = opened(chromium, url)
    wanted = {
        *("Kill ps-0", "Kill worker-0", "Details of failure 1", "Details of failure 2"),
        *("Logs of", "Least level", "Logs of the members"),
    }
    flags = {"failure 1: ps-1 at clock 30, recovered", "failure 2: ps-1 at clock 30, recovering"}
    reached = set()
    for _ in range(TABS):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
        visible = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert visible != "none" or page.evaluate("document.activeElement === document.body")
    assert wanted | flags <= reached, (wanted | flags) - reached
    page.close()


def test_it_is_drawn_within_half_a_second_of_processor_time(chromium: Browser, url: str) -> None:
    """Beside the way of its bytes, of which there are few (test_page.py): both make less than a second."""
    page = chromium.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(url)
    expect(page.locator(".flag")).to_have_count(2)
    told = session.send("Performance.getMetrics")["metrics"]
    page.close()
    used = next(one["value"] for one in told if one["name"] == "TaskDuration")
    assert 0 < used < LOAD_SECONDS
