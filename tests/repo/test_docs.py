"""Documents name only what exists, and everything that a person can run is documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer.main

from scar_cli.main import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted(path for path in ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


def make_targets() -> list[str]:
    return re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


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


def test_every_check_of_the_doctor_is_in_the_runbook() -> None:
    runbook = (ROOT / "docs" / "operations.md").read_text()
    sources = [(ROOT / "services" / "scar_cli" / f"{name}.py").read_text() for name in ("checks", "release")]
    checks = {name for source in sources for name in re.findall(r'Check\(\s*"(\w+)"', source)}
    assert len(checks) > 8
    assert [name for name in checks if f"`{name}`" not in runbook] == []


def test_every_contract_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    contracts = [section for section in sections if re.match(r"\d+\. ", section)]
    assert [int(section.split(".")[0]) for section in contracts] == list(range(1, 11))
    for contract in contracts:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", contract)
        assert named, contract.splitlines()[0]
        for file, test in named:
            defined = {
                node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
            }
            assert test in defined, f"{file}::{test}"


def test_first_screen_says_what_an_acknowledgement_means() -> None:
    screen = "\n".join(README.splitlines()[:24])
    assert "applied in memory, in this epoch" in screen
    assert "not durable" in screen
    assert "make demo" in screen
    assert "make test" in screen


def test_readme_shows_the_example_as_it_is() -> None:
    """The training file of the README is ``examples/mlr.py``, at most 30 lines, without its module docstring."""
    example = (ROOT / "examples" / "mlr.py").read_text()
    body = example.split('"""', 2)[2].strip() if example.startswith('"""') else example.strip()
    assert body in README
    assert len(body.splitlines()) <= 30
