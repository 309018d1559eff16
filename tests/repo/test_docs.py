"""Documents name only what exists, and everything that a person can run is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from scar_cli.main import app
from tests.repo.sources import FOLDERS, ROOT

README = (ROOT / "README.md").read_text()
HERE = Path(__file__).resolve().parent
FIRST_CHANGE = ROOT / "docs" / "first-change.md"
FILE = re.compile(r"[\w./-]*\w\.(?:py|proto|md|toml|yaml|json|tpl)\b")
PAGES = sorted(path for path in ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [
    page for page in PAGES if page.name not in ("CHANGELOG.md", "errors.md") and page.parent.name != "results"
]


def make_targets() -> list[str]:
    return re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def project_files() -> list[Path]:
    folders = (*FOLDERS, "proto", "docs", "deploy")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [*found, *(path for path in ROOT.iterdir() if path.is_file())]


def commands() -> list[str]:
    """Every command of the CLI, with its group: "up", "checkpoints ls"."""
    found = []
    for word, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [f"{word} {part}" for part in inner] if inner else [word]
    return found


@pytest.mark.parametrize("target", make_targets())
def test_make_target_is_documented(target: str) -> None:
    assert f"make {target}" in README + (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("command", commands())
def test_command_is_documented(command: str) -> None:
    assert f"scar {command}" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def prose_lines(text: str) -> Iterator[str]:
    """Lines that an author may break: no tables, no code, no headings."""
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and not line.startswith(("```", "|", "#", "    ", "<", "!")):
            yield line


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_prose_ends_its_lines(page: Path) -> None:
    """At 120 characters, so that a change of a sentence is a change of a line."""
    long = [line for line in prose_lines(page.read_text()) if len(line) > 120 and " " in line.strip()]
    assert long == []


def named_files(text: str) -> set[str]:
    """What a page names in code style and looks like a file, alone or with folders before it."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return {found[0] for span in spans for found in FILE.finditer(span)}


def named_code(text: str) -> set[str]:
    """Names of classes and functions that a page gives in code style: the parts of ``Shard.handle``."""
    spans = re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`", text)
    return {part for span in spans if not named_files(f"`{span}`") for part in span.split(".")}


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", FIRST_CHANGE], ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    files = [f"/{path.relative_to(ROOT)}" for path in project_files()]
    found = named_files(page.read_text())
    assert len(found) > 30
    assert [name for name in sorted(found) if not any(file.endswith(f"/{name}") for file in files)] == []


def test_every_name_on_the_page_for_a_first_change_is_in_the_code() -> None:
    code = [path for path in project_files() if path.suffix in (".py", ".yaml") and path.parent != HERE]
    words = {word for path in code for word in re.findall(r"\w+", path.read_text())}
    words |= {part for path in code for part in path.relative_to(ROOT).with_suffix("").parts}
    found = named_code(FIRST_CHANGE.read_text())
    assert {"PushState", "add_push", "reroute"} <= found
    assert sorted(found - words) == []


def test_every_check_of_the_doctor_is_in_the_runbook() -> None:
    runbook = (ROOT / "docs" / "operations.md").read_text()
    sources = [
        (ROOT / "services" / "scar_cli" / f"{name}.py").read_text() for name in ("checks", "release_checks")
    ]
    checks = {name for source in sources for name in re.findall(r'Check\(\s*"(\w+)"', source)}
    assert len(checks) > 8
    assert [name for name in checks if f"`{name}`" not in runbook] == []


def test_every_contract_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    contracts = [section for section in sections if re.match(r"\d+\. ", section)]
    assert [int(section.split(".")[0]) for section in contracts] == list(range(1, 12))
    for contract in contracts:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", contract)
        assert named, contract.splitlines()[0]
        for file, test in named:
            defined = {
                node.name
                for node in ast.walk(ast.parse((ROOT / file).read_text()))
                if isinstance(node, ast.FunctionDef)
            }
            assert test in defined, f"{file}::{test}"


def test_first_screen_says_what_an_acknowledgement_means() -> None:
    screen = " ".join(README.splitlines()[:24])
    assert "applied in memory, in this epoch" in screen
    assert "not durable" in screen
    assert "make demo" in screen
    assert "make test" in screen


def test_readme_shows_the_example_as_it_is() -> None:
    """The training file of the README is ``examples/mlr.py``, at most 30 lines, without its module
    docstring.
    """
    example = (ROOT / "examples" / "mlr.py").read_text()
    body = example.split('"""', 2)[2].strip() if example.startswith('"""') else example.strip()
    assert body in README
    assert len(body.splitlines()) <= 30
