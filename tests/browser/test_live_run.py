"""The page of a real cluster in a real browser: what its buttons kill heals on it, as the ledger has it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from scar_admin.iteration_costs import NEXT_CAME
from tests.browser import screenshots
from tests.browser.screenshots import both_themes, save_png
from tests.component.recovery_cluster import wait_for
from tests.component.test_cli import Shell
from tests.system.test_console import PATIENCE, PHASES, page

pytestmark = pytest.mark.timeout(400)  # many processes, and other tests may run beside them

PATIENCE_MS = 1000 * PATIENCE
SEEN_SECONDS = 1.0  # from an entry of the ledger to its flag on the curve
TRAIN = """
import time
import numpy as np
import scar

job = scar.Job("descent", [scar.Table("w", (400, 16), rule=scar.add())], shards=4, workers=2,
               checkpoint=scar.Checkpoint("priority", 0.25, 24))

def train(worker):
    target = np.random.default_rng(1).normal(size=(400, 16)).astype(np.float32)
    for clock in worker.clocks(limit=1_000_000):
        error = worker.pull("w") - target
        worker.push("w", -0.01 * error)
        worker.report(float((error ** 2).mean()) / 2)
        time.sleep(0.04)
"""
# When each flag came, by the browser's clock, which is this machine's.
NOTE_FLAGS = """
window.flagged = {};
new MutationObserver(() => {
  for (const flag of document.querySelectorAll(".flag"))
    window.flagged[flag.dataset.failure] ??= Date.now() / 1000;
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


@dataclass(frozen=True)
class LiveRun:
    """A training with its page."""

    shell: Shell
    page: Page

    def kill(self, name: str) -> None:
        """As a person does: the first click asks, the second one kills."""
        self.page.get_by_label(f"Kill {name}", exact=True).click()
        self.page.get_by_label(f"Really kill {name}?").click()

    def failures(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.shell.json("failures")["failures"]
        return found

    def cost_of(self, number: int) -> dict[str, Any] | None:
        """None: a shard was too late to say which losses it knows."""
        told = self.shell.json("failures")
        cost: dict[str, Any] = told["costs"][str(number)]
        return None if told["silent"] else cost

    def flag(self, number: int) -> Locator:
        return self.page.locator(f'.flag[data-failure="{number}"]')


@pytest.fixture(scope="module")
def live(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    shell = Shell(tmp_path_factory.mktemp("home"))
    (shell.folder / "descent.py").write_text(TRAIN)
    shell.run("up", "--shards", "4", "--detach")
    training = shell.start("train", "descent.py")
    try:
        with page(shell) as (host, token):
            context = chromium.new_context(color_scheme="light", viewport={"width": 1280, "height": 800})
            context.add_init_script(NOTE_FLAGS)
            shown = context.new_page()
            shown.set_default_timeout(PATIENCE_MS)
            asked: set[str] = set()  # hosts
            shown.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
            wrong: list[str] = []
            shown.on("pageerror", lambda error: wrong.append(str(error)))
            shown.goto(f"http://{host}/?token={token}")
            clock = shown.locator("#facts dd").first
            expect(clock).to_have_text(re.compile(r"^([6-9]\d|\d{3,})$"), timeout=PATIENCE_MS)
            yield LiveRun(shell, shown)
            context.close()
            assert wrong == []
            assert asked - {""} == {host}, "data: has no host"
    finally:
        training.send_signal(signal.SIGINT)
        training.communicate(timeout=PATIENCE)
        shell.run("down")


def test_two_shards_killed_by_their_buttons_heal_on_the_curve_as_the_ledger_has_it(live: LiveRun) -> None:
    expect(live.page.locator("#shards tbody tr")).to_have_count(4)
    before = len(live.failures())
    live.kill("ps-1")
    live.kill("ps-2")
    wait_for(lambda: who_died(live.failures()[before:]) >= {"ps-1", "ps-2"}, "the two deaths", PATIENCE)
    told = settled_failures(live)
    for name in ("ps-1", "ps-2"):
        row = live.page.locator("#failures tbody tr", has_text=name).first
        expect(row).to_contain_text("recovered", timeout=PATIENCE_MS)
    expect(live.page.locator(".flag.healed")).to_have_count(len(told), timeout=PATIENCE_MS)
    check_time_axis(live)
    for record in told:
        check_opened(live, record)
    if screenshots.FOLDER:
        take_screenshots(live)


def who_died(failures: list[dict[str, Any]]) -> set[str]:
    return {member.partition("@")[0] for one in failures for member in one["members"]}


def settled_failures(live: LiveRun) -> list[dict[str, Any]]:
    """When workers have told all, and who died is back: nothing changes any more."""
    done = ("load_seconds", "settle_seconds", "return_seconds")
    told: list[dict[str, Any]] = []

    def is_settled() -> bool:
        told[:] = live.failures()  # each look is a process: seconds where others want the processors, too
        return all(one[name] for one in told for name in done)

    wait_for(is_settled, "all of their phases", PATIENCE)
    return told


def check_time_axis(live: LiveRun) -> None:
    """By time the flags are where the ledger says that failures were, between points before and after."""
    live.page.get_by_label("Loss by", exact=True).select_option("time")
    flags = live.page.locator("#chart .flag")  # read at once: the axis moves with each look
    places = flags.evaluate_all("all => all.map(one => [one.dataset.failure, one.getBoundingClientRect().x])")
    lefts = {int(number): left for number, left in places}
    created = {record["number"]: record["created"] for record in live.failures()}
    assert lefts.keys() == created.keys()
    in_time = [lefts[number] for number in sorted(created, key=lambda number: created[number])]
    assert in_time == sorted(in_time), "two of one instant stand above each other"
    whole = live.page.locator("#chart .u-over").bounding_box()
    assert whole is not None
    assert all(whole["x"] < left < whole["x"] + whole["width"] for left in lefts.values())
    live.page.get_by_label("Loss by", exact=True).select_option("clock")


def shown_phases(opened: Locator) -> dict[str, float]:
    figures = {phase: opened.locator(f".key .{phase}").get_attribute("data-seconds") for phase in PHASES}
    return {phase: float(figure or "nan") for phase, figure in figures.items()}


def cost_words(cost: dict[str, Any]) -> str:
    """Of a failure as `scar failures -o json` has it; empty: it is not known yet, and no bound is shown."""
    if cost["at_most"] is not None:
        return f"{cost['at_most']} clock"
    return NEXT_CAME if cost["reason"] == NEXT_CAME else ""


def is_cost_shown(opened: Locator, cost: dict[str, Any] | None) -> bool:
    return cost is not None and cost_words(cost) in (opened.text_content() or "")


def check_opened(live: LiveRun, record: dict[str, Any]) -> None:
    """Open a failure by its flag: its figures are those of `scar failures -o json`."""
    live.flag(record["number"]).focus()
    live.page.keyboard.press("Enter")
    opened = live.page.locator("#failure")
    heading = expect(opened.locator("h3"))
    heading.to_contain_text(f"Failure {record['number']}: {record['members'][0].partition('@')[0]}")
    heading.to_contain_text(f"at clock {record['clock']}")
    for words in (
        f"{record['lost_blocks']} of {record['total_blocks']} blocks lost",
        f"{record['lost_pushes']} acknowledged push",
        f"{record['resent_pushes']} sent again",
        f"epoch {record['epoch']} ",
    ):
        expect(opened).to_contain_text(words, timeout=PATIENCE_MS)
    told = {phase: record[f"{phase}_seconds"] for phase in PHASES}
    wait_for(lambda: shown_phases(opened) == told, f"phases {told} on the page", PATIENCE)
    wait_for(lambda: is_cost_shown(opened, live.cost_of(record["number"])), "its cost", PATIENCE)
    if record["delta_norm"] >= 0:
        moved = (opened.text_content() or "").partition("‖δ‖ ")[2].split(" ")[0]
        assert float(moved.lstrip("~")) == float(f"{record['delta_norm']:.6g}")


@pytest.mark.timed
def test_a_failure_is_on_the_curve_within_a_second_of_its_entry_in_the_ledger(live: LiveRun) -> None:
    before = {record["number"] for record in live.failures()}
    live.kill("ps-3")
    expect(live.page.locator(".flag")).not_to_have_count(len(before), timeout=PATIENCE_MS)
    flagged = {int(number): at for number, at in live.page.evaluate("flagged").items()}
    created = {record["number"]: record["created"] for record in live.failures()}
    [fresh] = set(flagged) - before
    assert flagged[fresh] - created[fresh] < SEEN_SECONDS


# --- for docs/console.md


def take_screenshots(live: LiveRun) -> None:
    """Of each view, light and dark, and of the whole on a phone."""
    shown = live.page
    shown.wait_for_timeout(4000)  # the curve goes on
    shown.get_by_label("Logs of", exact=True).select_option("recovery-0")  # it tells what a recovery does
    shown.evaluate("document.getElementById('store').hidden = true")  # it names a folder of this machine
    for scheme in both_themes(shown):
        save_png(shown.screenshot(), f"run-{scheme}")
        for section in shown.locator("section:visible").all():
            name = (section.locator("h2").first.text_content() or "").split()[0].lower()
            if name not in ("", "loss"):
                save_png(section.screenshot(), f"{name}-{scheme}")
    shown.set_viewport_size({"width": 390, "height": 844})
    for scheme in both_themes(shown):
        save_png(shown.screenshot(), f"phone-{scheme}")
