"""Record a real recovery as the live page shows it: two of four servers are killed by their buttons.

    python -m scripts.record_recovery [docs/images/recovery.webp]

Needs Chromium (`apt-get install chromium`), and what `make dev` installs. A cluster of this machine trains;
the picture is what its page looks like, in its own time.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

OUTPUT = Path("docs/images/recovery.webp")
SIZE = (1100, 1040)  # of the page, in pixels
WIDTH = 820  # of the picture
MOST_BYTES = 2_000_000
PATIENCE_MS = 90_000
BEFORE_SECONDS = 3.0
BETWEEN_SECONDS = 0.6  # clicks
AFTER_SECONDS = 9.0
REST_MS = 2500  # of the last picture
KILLED = ("ps-1", "ps-2")
ALONE = """
for (const section of document.querySelectorAll("main > section"))
  if (!section.querySelector("#chart, #shards, #block-map")) section.style.display = "none";
"""
TRAIN = """
import time
import numpy as np
import scar

job = scar.Job("recovery", [scar.Table("w", (400, 64), rule=scar.add())], shards=4, workers=2,
               checkpoint=scar.Checkpoint("priority", 0.125, 64))

def train(worker):
    target = np.random.default_rng(1).normal(size=(400, 64)).astype(np.float32)
    for clock in worker.clocks(limit=1_000_000):
        error = worker.pull("w") - target
        worker.push("w", -0.005 * error)
        worker.report(float((error ** 2).mean()) / 2)
        time.sleep(0.05)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Record a real recovery as the live page shows it.")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    output = parser.parse_args().output.absolute()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recovery.py").write_text(TRAIN)
        with _live_page(Path(folder)) as url:
            frames = _record(url)
    _save(frames, output)
    size = output.stat().st_size
    sys.stdout.write(f"{output}: {len(frames)} pictures, {size} bytes\n")
    return int(size > MOST_BYTES)


@contextmanager
def _live_page(folder: Path) -> Iterator[str]:
    """Its URL, while a cluster trains."""

    def scar(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scar_cli", *arguments]
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)

    scar("up", "--shards", "4", "--detach").communicate()
    training = scar("train", "recovery.py", "--quiet")
    console = scar("console", "--interval", "0.1")
    try:
        assert console.stdout is not None
        found = re.search(r"http://\S+", console.stdout.readline())
        if found is None:
            raise SystemExit("scar console printed no URL")
        yield found[0]
    finally:
        console.terminate()
        training.terminate()
        scar("down").communicate()
        training.communicate()
        console.communicate()


def _record(url: str) -> list[tuple[float, bytes]]:
    """Pictures with their times, in seconds."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        expect(page.locator("#facts dd").first).to_have_text(re.compile(r"^\d{2,}$"), timeout=PATIENCE_MS)
        expect(page.locator("#block-section")).to_be_visible(timeout=PATIENCE_MS)
        page.evaluate(ALONE)
        frames: list[tuple[float, bytes]] = []
        _take(page, frames, BEFORE_SECONDS)
        for name in KILLED:
            for label in ("Kill {}", "Really kill {}?"):  # within the seconds that the button waits
                page.get_by_label(label.format(name), exact=True).click()
                _take(page, frames, BETWEEN_SECONDS)
        _take(page, frames, AFTER_SECONDS)
        browser.close()
    return frames


def _take(page: Page, frames: list[tuple[float, bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        frames.append((time.monotonic(), page.screenshot()))


def _save(frames: list[tuple[float, bytes]], output: Path) -> None:
    height = WIDTH * SIZE[1] // SIZE[0]
    pictures = [
        Image.open(io.BytesIO(data)).convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        for _, data in frames
    ]
    times = [at for at, _ in frames]
    shown = [round(1000 * (later - at)) for at, later in pairwise(times)]
    output.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(
        output,
        save_all=True,
        append_images=pictures[1:],
        duration=[*shown, REST_MS],
        loop=0,
        quality=60,
        method=4,
    )


if __name__ == "__main__":
    raise SystemExit(main())
