"""The browser of a desktop, where there is one."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import suppress


def open_browser(url: str) -> bool:
    """Where there is a desktop; a browser of a terminal would take the terminal. False: there is none."""
    if sys.platform not in ("darwin", "win32") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    with suppress(webbrowser.Error):
        return webbrowser.open(url)
    return False
