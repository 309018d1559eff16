"""Bugs that simulations put into the services: each still fits the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.fresh_edits import FRESH_EDITS
from tests.simulation.mutations import edits_of
from tests.simulation.old_bugs import OLD_BUGS

ROOT = Path(__file__).resolve().parents[2]
FRESH = [one.name for one in FRESH_EDITS]


@pytest.mark.parametrize("name", [*OLD_BUGS, *FRESH])
def test_a_bug_can_be_put_into_the_sources(name: str) -> None:
    texts: dict[str, str] = {}
    for edit in edits_of(name):
        before = texts.setdefault(edit.file, (ROOT / edit.file).read_text())
        texts[edit.file] = edit.edited(before)
        assert texts[edit.file] != before
    for file, text in texts.items():
        compile(text, file, "exec")


def test_fresh_edits_have_names_of_their_own() -> None:
    assert len({*OLD_BUGS, *FRESH}) == len(OLD_BUGS) + len(FRESH)
