"""The site builds with every link checked, has all that users import, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scar

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = re.compile(
    r"<(?:script|img|iframe|source)[^>]*src=\"(?:https?:)?//|<link[^>]*(?:stylesheet|icon)[^>]*href=\"(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. ``strict`` in mkdocs.yml makes a dead link an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_name_that_users_import_has_its_entry(site: Path) -> None:
    pages = "".join(page.read_text() for page in (site / "api").rglob("*.html"))
    entries = {name.rpartition(".")[2] for name in re.findall(r'<h\d id="(scar[\w.]*)"', pages)}
    names = set(scar.__all__) - {"__version__"} | {"LocalCluster"}
    assert not names - entries
    assert ":class:" not in pages


def test_no_page_asks_a_foreign_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [str(page) for page in pages if FOREIGN.search(page.read_text())] == []
    assert FOREIGN.search('<script src="https://example.org/x.js">')
