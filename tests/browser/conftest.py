"""A real browser, without a window; where there is none, its tests are skipped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from scar_console.server import serve_cluster
from tests.browser.still_cluster import TIMEOUT, StillCluster

# no accelerator, no sandbox within a container, and nothing that asks the network by itself
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # as long as it lasts, this thread has a running event loop
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium is here: apt-get install chromium")
    expect.set_options(timeout=1000 * TIMEOUT)  # five seconds are not enough on a busy machine
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> StillCluster:
    return StillCluster(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def url(cluster: StillCluster) -> Iterator[str]:
    stop = threading.Event()
    server = serve_cluster(cluster, stop, interval=0.05)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server.url
    stop.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
