"""Names that documents give with a dot, ``Epoch.seats`` or ``scar.placement.spread_blocks``, exist."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.sources import OWN, ROOT
from tests.repo.test_docs import FILE, WRITTEN

DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`")
HYPOTHETICAL = {"scar.cli"}  # a module that a decision turned down


def words_of_types() -> dict[str, set[str]]:
    """Words in the body of each class, message and service."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in OWN:
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found[node.name] |= set(re.findall(r"\w+", ast.get_source_segment(source, node) or ""))
    for path in (ROOT / "proto").rglob("*.proto"):
        kind = ""
        for line in path.read_text().splitlines():
            begun = re.match(r"(?:message|service) (\w+)", line)
            kind = begun[1] if begun else kind
            found[kind] |= set(re.findall(r"\w+", line))
    return found


TYPES = words_of_types()


def dotted_names(page: Path) -> Iterator[str]:
    """Without file names and what a reader has to fill in."""
    for name in DOTTED.findall(page.read_text()):
        if not FILE.fullmatch(name) and not name.startswith("NAME.") and name not in HYPOTHETICAL:
            yield name


def exists(name: str) -> bool:
    first, *rest = name.split(".")
    if first == "scar" or first.startswith("scar_"):
        return can_import(name)
    if first[:1].isupper() and first in TYPES:
        return rest[0] in TYPES[first]
    return not first[:1].isupper()  # a variable, a value of the chart, or another project's


def can_import(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert [name for name in dotted_names(page) if not exists(name)] == []


@pytest.mark.parametrize(
    "name", ["Epoch.seats", "PushReply.joins", "scar.placement.spread_blocks", "ps.replicas"]
)
def test_a_name_that_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", ["Epoch.chairs", "PushReply.seats", "scar.placement.spread", "Wish.granted"])
def test_a_name_that_does_not(name: str) -> None:
    assert not exists(name)
