"""ARCHITECTURE.md is short, its glossary and its map are complete, and what they name exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import scar
from tests.repo.sources import ROOT, SHIPPED

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
LINES = 113


def table_rows(title: str) -> list[list[str]]:
    """Cells of the first table below this heading, without its head."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def in_code(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[1]


def test_it_is_short() -> None:
    assert len(PAGE.splitlines()) <= LINES


# --- the glossary

NAMED = {name for row in table_rows("Words") for name in in_code(row[2])}


def defined_names() -> set[str]:
    """Classes, functions and aliases of the sources, and the members of classes as ``Epoch.seats``."""
    found = set()
    for node in (node for path in SHIPPED for node in ast.parse(path.read_text()).body):
        found |= assigned_names(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [name for one in node.body for name in assigned_names(one)]
            inner += [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            found |= {f"{node.name}.{name}" for name in inner}
    return found


def assigned_names(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return {target.id for target in targets if isinstance(target, ast.Name)}


def shared_by_cores() -> set[str]:
    """Types from outside that the cores of at least two packages use: the words that they have in common."""
    users = defaultdict(set)
    for path in (path for path in SHIPPED if "core" in path.relative_to(ROOT).parts):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scar"):
                for alias in node.names:
                    users[alias.name].add(package_of(path))
    return {
        name for name, packages in users.items() if len(packages) > 1 and is_type(name) and not is_error(name)
    }


def is_type(name: str) -> bool:
    return name[:1].isupper() and not name.isupper()


def is_error(name: str) -> bool:
    return hasattr(scar.errors, name)


def test_every_word_is_a_name_of_the_code() -> None:
    assert len(NAMED) > 30
    assert sorted(NAMED - defined_names()) == []
    assert [row[0] for row in table_rows("Words") if not in_code(row[2])] == []


def test_the_types_that_the_cores_share_are_in_the_glossary() -> None:
    shared = shared_by_cores()
    assert {"Epoch", "Member", "Job"} <= shared
    assert sorted(shared - NAMED) == []


def test_the_types_that_a_user_imports_are_in_the_glossary() -> None:
    exported = {name for name in scar.__all__ if isinstance(getattr(scar, name), type)}
    assert sorted(exported - NAMED) == []


# --- the map


def folders_on_the_map() -> Iterator[str]:
    """``scar_ps``, ``scar_ps/core``: the package of a row, and what it names with a slash at the end."""
    for package, *cells in table_rows("Map"):
        name = package.strip("`")
        yield name
        yield from (f"{name}/{one.rstrip('/')}" for one in in_code(cells[0]) if one.endswith("/"))


def test_every_folder_of_modules_is_on_the_map() -> None:
    folders = {"/".join(path.parent.relative_to(ROOT).parts[1:]) for path in ROOT.glob("s*/**/__init__.py")}
    folders = {folder for folder in folders if folder.startswith("scar")}
    assert len(folders) > 25
    assert sorted(set(folders_on_the_map()) ^ folders) == []


@pytest.mark.parametrize("row", table_rows("Map"), ids=lambda row: row[0].strip("`"))
def test_the_files_of_a_row_are_in_its_package(row: list[str]) -> None:
    root = next(path for path in (ROOT / "sdk", ROOT / "services") if (path / row[0].strip("`")).is_dir())
    files = [path.as_posix() for path in (root / row[0].strip("`")).rglob("*.py")]
    named = [name for name in in_code(row[2]) if name.endswith(".py")]
    assert named
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
