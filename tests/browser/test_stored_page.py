"""Runs of a store in a real browser: listed, compared, and each opened."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from scar.placement import Epoch, Member, Role
from scar.tables import Job, Table
from scar.v1.recovery_pb2 import FailureRecord, FinishedRecord, HistorySample
from scar.wire.codec import job_to_proto
from scar.wire.epoch_messages import epoch_to_proto
from scar_console.server import ConsoleServer
from scar_console.stored_runs import stored_view
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store, open_store
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.history_log import HistoryLog
from scar_runtime.store.layout import JOB, epoch_key, finished_key
from scar_runtime.store.records import create_record
from tests.browser import screenshots
from tests.browser.screenshots import both_themes, save_png

TIMEOUT = 60.0
BEGAN = 1_700_000_000.0
SHARDS = (Member(Role.SHARD, "ps-0", "a" * 12),)
FAILURE = FailureRecord(
    number=1,
    members=["ps-0@aaaaaaaaaaaa"],
    clock=4,
    epoch=2,
    lost_blocks=5,
    total_blocks=10,
    created=BEGAN + 1,
    detect_seconds=0.5,
    wait_seconds=0.25,
    commit_seconds=0.125,
    load_seconds=0.125,
    sources={"object": 5},
)


def keep_run(root: Store, name: str, clocks: int, seconds: float, finished: bool) -> None:
    """A run of these clocks that lasted so long."""
    store = root.under(name)
    job = Job(name, tables=[Table("w", 10)])
    create_record(store, JOB, job_to_proto(job))
    epoch = Epoch(
        number=2, author="a", job=name, shards=SHARDS, workers=(), owners={}, finished=2 if finished else 0
    )
    create_record(store, epoch_key(2), epoch_to_proto(epoch))
    if finished:
        create_record(store, finished_key(2), FinishedRecord(number=2, manifest=9, clock=clocks))
        FailureLog(store).write(FAILURE, "a")
    history = ProgressHistory()
    history.add_losses({clock: 1 / (1 + clock) for clock in range(clocks)})
    history.metrics.add_metrics({clock: {"accuracy": clock / clocks} for clock in range(clocks)})
    for step in range(5):
        clock = clocks * step // 4
        sample = HistorySample(time=BEGAN + seconds * step / 4, clock=clock, epoch=2, shards=1, workers=2)
        history.add_samples([sample])
    HistoryLog(store).write(history, "a")


@pytest.fixture
def root(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}")


@pytest.fixture
def page(chromium: Browser, root: Store) -> Iterator[Page]:
    keep_run(root, "short", 20, 10.0, finished=True)
    keep_run(root, "a-b-1", 40, 100.0, finished=False)
    root.put("torn/job", b"nonsense")
    stop = threading.Event()
    server = ConsoleServer(partial(stored_view, root), stop, interval=0.05)
    thread = threading.Thread(target=server.run)
    thread.start()
    shown = chromium.new_page(viewport={"width": 1280, "height": 800})
    shown.set_default_timeout(1000 * TIMEOUT)
    wrong: list[str] = []
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.goto(server.url)
    yield shown
    shown.close()
    stop.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert wrong == []


def rows(page: Page) -> list[list[str]]:
    return [row.locator("td").all_text_contents()[:9] for row in page.locator("#runs tbody tr").all()]


def test_runs_are_compared_and_each_can_be_opened(page: Page, root: Store) -> None:
    expect(page.locator("#runs tbody tr")).to_have_count(3)
    assert rows(page) == [
        ["a-b-1", "not finished", "40", "0.025", "0.025", "0", "0.4", "2", "1"],
        ["short", "finished", "20", "0.05", "0.05", "1", "2", "2", "1"],
        ["torn", "job is damaged: its checksum does not fit", *["-"] * 7],
    ]
    expect(page.locator("h1")).to_have_text("a-b-1")
    expect(page.locator("#comparison .u-series")).to_have_count(3)  # the clock has one, too
    for kind in ("Shards", "Workers", "Checkpoints", "Services", "Blocks"):
        expect(page.get_by_role("heading", name=re.compile(f"^{kind}"))).to_be_hidden()
    expect(page.get_by_label("Curve of", exact=True).locator("option")).to_have_text(["loss", "accuracy"])
    page.get_by_role("link", name="short").click()
    expect(page.locator("h1")).to_have_text("short")
    expect(page.locator("#summary")).to_have_text("finished: the model is saved in manifest 9")
    page.get_by_role("button", name="failure 1: ps-0 at clock 4, recovered").click()
    expect(page.locator("#failure h3")).to_have_text("Failure 1: ps-0 at clock 4")
    moments = page.locator("#failure .key li")
    expect(moments.filter(has_text="all served")).to_have_text(re.compile("^all served at 1.0 s "))
    expect(moments.filter(has_text="suspected")).to_have_text(re.compile("^suspected: not known "))
    expect(moments.filter(has_text="workers settled")).to_have_text(
        re.compile("^workers settled: not known ")
    )
    expect(moments.filter(has_text="there again")).to_have_text(re.compile("^back: not yet "))
    if screenshots.FOLDER:
        page.evaluate("document.getElementById('runs-store').hidden = true")  # a folder of this machine
        for scheme in both_themes(page):
            save_png(page.screenshot(), f"stored-{scheme}")
    keep_run(root, "later", 8, 1.0, finished=False)
    expect(page.locator("#runs tbody tr")).to_have_count(4)
    expect(page.locator("h1")).to_have_text("short")
