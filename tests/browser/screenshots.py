"""Pictures of the page for docs/console.md, made by the tests that open it: SCAR_SCREENSHOTS=docs/images."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

FOLDER = os.environ.get("SCAR_SCREENSHOTS", "")  # empty: none are made
COLOURS = 96  # of a picture, which makes it a third as large


def both_themes(page: Page) -> Iterator[str]:
    """The page as it is in each."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.wait_for_timeout(500)  # it is drawn anew
        yield scheme


def save_png(image: bytes, name: str) -> None:
    folder = Path(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    picture = Image.open(io.BytesIO(image)).convert("RGB").quantize(COLOURS)
    picture.save(folder / f"console-{name}.png", optimize=True)
