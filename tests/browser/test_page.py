"""The page in a real browser, of a cluster that is made up: who sees it, and whether all can read it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from scar.placement import BlockSource
from tests.browser.still_cluster import HOSTILE, LONG, StillCluster, opened

PHONE = 390  # pixels, the width of most
TOUCH = 32  # pixels, the least height of a button on a phone
PAGE_BYTES = 200_000  # all of it: loads within a second over 2 Mbit/s
BREAKS = "killfreezecut"  # the words of a row's buttons
READABLE = 4.5  # contrast of text, WCAG 2.2 AA
VISIBLE = 3.0  # of lines and of the focus


def test_without_the_token_nothing_is_shown(chromium: Browser, url: str) -> None:
    page = chromium.new_page()
    for wrong in (url.partition("?")[0], url + "x"):
        answer = page.goto(wrong)
        assert answer is not None
        assert answer.status == 403
        assert LONG not in page.content()
        assert page.locator("table").count() == 0
    page.close()


def test_all_of_it_comes_from_here_and_is_small(chromium: Browser, url: str) -> None:
    page = chromium.new_page()
    sizes: dict[str, int] = {}
    page.on("requestfinished", lambda one: sizes.update({one.url: one.sizes()["responseBodySize"]}))
    page.goto(url)
    expect(page.locator(".flag")).to_have_count(2)
    page.close()
    assert {urlsplit(one).netloc for one in sizes if not one.startswith("data:")} == {urlsplit(url).netloc}
    assert 50_000 < sum(sizes.values()) < PAGE_BYTES


def test_a_kill_asks_once_more_and_goes_by_the_keyboard(
    chromium: Browser, url: str, cluster: StillCluster
) -> None:
    page = opened(chromium, url)
    page.get_by_label("Kill ps-0", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Really kill ps-0?")).to_be_focused()
    assert cluster.broken == []
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_have_text("ps-0 done: watch it heal")
    assert cluster.broken == [("kill", "ps-0")]
    page.get_by_label("Freeze worker-0", exact=True).click()
    page.get_by_label("Really freeze worker-0?").click()
    expect(page.locator("#said")).to_have_text("worker-0 done: watch it heal")
    page.get_by_label("Cut worker-0", exact=True).click()
    page.get_by_label("Really cut worker-0?").click()
    expect(page.locator("#said")).to_have_text("worker-0 done: watch it heal")
    assert cluster.broken[1:] == [("freeze", "worker-0"), ("cut", "worker-0")]
    expect(page.get_by_label("Kill ps-1", exact=True)).to_be_disabled()
    page.close()


def test_a_metric_is_drawn_in_the_place_of_the_loss(chromium: Browser, url: str) -> None:
    page = opened(chromium, url)
    curves = page.get_by_label("Curve of", exact=True)
    assert curves.locator("option").all_text_contents() == ["loss", "accuracy"]
    expect(page.locator("#chart .u-label").last).to_have_text("loss")
    curves.select_option("accuracy")
    expect(page.locator("#chart .u-label").last).to_have_text("accuracy")
    expect(page.locator(".flag")).to_have_count(2)
    box = page.locator("#chart .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
    values = page.locator("#chart .u-value")
    expect(values).to_have_text(["35", "0.875"])
    page.close()


def test_a_flag_on_the_curve_opens_its_failure(chromium: Browser, url: str) -> None:
    page = opened(chromium, url)
    page.get_by_role("button", name="failure 1: ps-1 at clock 30, recovered").click()
    expect(page.locator("#failure h3")).to_have_text("Failure 1: ps-1 at clock 30")
    expect(page.locator("#failure .key li")).to_have_text(
        [
            re.compile("^suspected at 250 ms"),
            re.compile("^confirmed at 500 ms"),
            re.compile("^lease over at 1.5 s"),
            re.compile("^new owners named at 1.5 s"),
            re.compile("^workers settled at 1.6 s"),
            re.compile("^all served at 1.8 s"),
            re.compile("^back at 10.0 s"),
        ]
    )
    page.get_by_label("Details of failure 1").click()
    expect(page.locator("#failure")).to_be_hidden()
    page.close()


def test_each_view_says_what_the_cluster_says(chromium: Browser, url: str) -> None:
    page = opened(chromium, url)
    words = "10 blocks, the oldest saved 39 clocks ago, 7 cells never"
    expect(page.locator("#block-words")).to_have_text(words)  # what takes several looks is there then
    tiles = page.locator("#facts dd").all_text_contents()
    assert tiles == [
        *("40", "iterations, bsp, epoch 3", "0.025", "of clock 39", "1 of 2", "alive", "1 of 1", "alive"),
        *("2", "recovering", "400 ms", "ago, at clock 39"),
    ]
    expect(page.locator("#summary")).to_have_text("recovering from the loss of ps-1")
    saved = ("500 ms ago", "39 clocks ago")
    assert cells(page, "shards") == [
        ["ps-0", BREAKS, "alive", "30.0 %", "3", "2.0 KiB", "0", "1.5 MiB", "40", *saved],
        ["ps-1", BREAKS, "killed", "70.0 %", "7", "2.0 KiB", "0", "-", "42", "500 ms ago", "never saved"],
    ]
    times = ("13 ms", "1 ms", "10 ms", "1 ms", "1 ms", "250 ms ago")
    assert cells(page, "workers") == [["worker-0", BREAKS, "running", "training", "41", *times]]
    widths = page.locator("#workers .bar i").evaluate_all("parts => parts.map(part => part.style.width)")
    assert widths == ["4%", "80%", "8%", "8%"]
    assert cells(page, "rounds") == [
        ["9", "39", "4 of 10", "77 B", "250 ms", "500 ms", "750 ms", "missed by ps-1"]
    ]
    assert cells(page, "services") == [["recovery-0", "running", "leader", "0"]]
    words = "Manifest 12, 400 ms old, of clock 39: a restore would read 99 B in 5 objects."
    expect(page.locator("#checkpoint")).to_have_text(words)
    expect(page.locator("#store")).to_have_text("Store: file:///there")
    page.close()


def test_the_curve_by_time_has_what_somebody_saw_happen(chromium: Browser, url: str) -> None:
    """A failure of long ago that is healed has no place there; one that is not reaches to this day."""
    page = opened(chromium, url)
    page.get_by_label("Loss by", exact=True).select_option("time")
    expect(page.locator("#chart .u-legend tr").first).to_contain_text("time")
    expect(page.locator(".flag")).to_have_attribute("data-failure", "2")
    page.get_by_label("Loss by", exact=True).select_option("clock")
    expect(page.locator(".flag")).to_have_count(2)
    page.close()


def test_blocks_that_moved_are_named_by_where_they_came_from(
    chromium: Browser, url: str, cluster: StillCluster
) -> None:
    page = opened(chromium, url)
    expect(page.locator("#block-moves")).to_have_text("")
    before = cluster.status
    try:
        cluster.move_blocks({BlockSource.OBJECT: [0, 1, 2], BlockSource.DONOR: [9]})
        words = "Epoch 4 moved 3 blocks from the checkpoint 1 block from live shards"
        expect(page.locator("#block-moves")).to_have_text(re.compile(r"\s*".join(words.split())))
    finally:
        cluster.status = before
    page.close()


def log_texts(page: Page) -> list[str]:
    """Level and text of the lines that are shown; those that come at each look are left out."""
    rows = [row.inner_text().split(" ", 1)[1] for row in page.locator("#log-lines p").all()]
    return [row for row in rows if not row.endswith("again")]


def test_logs_have_their_members_name_and_are_filtered(chromium: Browser, url: str) -> None:
    page = opened(chromium, url)
    expect(page.locator("#log-lines .member", has_text="recovery-0")).to_have_count(1)
    shown = page.locator("#log-lines p:not(.printed)")
    words = ["ps-0 info shard.adopted blocks=12", "ps-0 warning redis.unavailable"]
    failed = f"recovery-0 error service.failed reason={HOSTILE}"
    expect(shown).to_have_text([re.compile(re.escape(one) + " $") for one in [*words, failed]])
    page.get_by_label("Least level").select_option("warning")
    expect(page.locator("#log-lines p")).to_have_count(2)
    page.get_by_label("Logs of", exact=True).select_option("ps-0")
    expect(page.locator("#log-lines p")).to_have_text([re.compile(re.escape(words[1]))])
    page.get_by_label("Least level").select_option("debug")
    expect(page.locator("#log-lines p")).to_have_count(2)
    names = page.locator("#log-member option").all_text_contents()
    assert names == ["everybody", "ps-0", "ps-10", "recovery-0", "worker-0"]
    expect(page.locator("#log-problem")).to_be_hidden()
    page.close()


def test_what_a_log_says_is_text_and_never_markup(chromium: Browser, url: str) -> None:
    page = opened(chromium, url)
    expect(page.locator("#log-lines p.printed").first).to_contain_text(HOSTILE)
    assert page.locator("#log-lines img, #log-lines script").count() == 0
    assert "broken" not in page.title()
    page.close()


def cells(page: Page, table: str) -> list[list[str]]:
    rows = page.locator(f"#{table} tbody tr").all()
    return [row.locator("td").all_text_contents() for row in rows]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_both_themes(chromium: Browser, url: str, scheme: str) -> None:
    page = opened(chromium, url, scheme)
    colours = page.evaluate(
        "names => Object.fromEntries(names.map(name => "
        "[name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()]))",
        [*TEXTS, *LINES, "card", "back"],
    )
    assert (luminance(colours["card"]) > 0.5) == (scheme == "light")
    for behind in ("card", "back"):
        low = {name: contrast(colours[name], colours[behind]) for name in TEXTS}
        assert {name: found for name, found in low.items() if found < READABLE} == {}
        low = {name: contrast(colours[name], colours[behind]) for name in LINES}
        assert {name: found for name, found in low.items() if found < VISIBLE} == {}
    page.close()


TEXTS = ("text", "dim", "fail", "heal", "warn")
LINES = ("curve", "focus")


def luminance(colour: str) -> float:
    """Relative, by WCAG, of ``#rrggbb``."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_a_phone_shows_it_without_scrolling_sideways(chromium: Browser, url: str) -> None:
    page = opened(chromium, url, width=PHONE)
    page.locator('.flag[data-failure="1"]').click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    kill = page.get_by_label("Kill ps-0", exact=True)
    kill.scroll_into_view_if_needed()
    box = kill.bounding_box()
    assert box is not None
    assert box["height"] >= TOUCH
    assert box["x"] + box["width"] <= PHONE
    page.close()
