"""What the sources promise about themselves."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

import scar

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "sdk" / "scar" / "v1"
LINES = 400
SOURCES = sorted(
    path
    for folder in ("sdk", "services", "tests", "scripts", "examples", "benchmarks", "experiments")
    for path in (ROOT / folder).rglob("*.py")
    if GENERATED not in path.parents
)
SHIPPED = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("sdk", "services")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_exports_are_exactly_all() -> None:
    public = {key for key, value in vars(scar).items() if not key.startswith("_") and not isinstance(value, ModuleType)}
    assert set(scar.__all__) - {"__version__"} == public - {"annotations"}
    assert len(set(scar.__all__)) == len(scar.__all__)


def test_every_export_is_explained() -> None:
    unexplained = [key for key in scar.__all__ if callable(getattr(scar, key)) and not getattr(scar, key).__doc__]
    assert unexplained == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_nothing_can_execute_what_it_reads(path: Path) -> None:
    """Contract 8: no pickle, no eval, no numpy file that may hold pickles, no shell."""
    forbidden = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not forbidden & {alias.name.split(".")[0] for alias in node.names}, f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in forbidden, f"line {node.lineno}"
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            assert called not in ("eval", "exec", "compile", "__import__"), f"line {node.lineno}"
            risky = {word.arg for word in node.keywords if isinstance(word.value, ast.Constant) and word.value.value is True}
            assert not risky & {"allow_pickle", "shell"}, f"line {node.lineno}"


def test_module_says_what_it_is() -> None:
    silent = [name(path) for path in SHIPPED if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


@pytest.mark.parametrize("path", sorted((ROOT / "proto").rglob("*.proto")), ids=lambda path: path.name)
def test_proto_is_explained(path: Path) -> None:
    """Every RPC, field and message has a comment; a message that is the request or the reply of an RPC has the RPC's."""
    lines = path.read_text().splitlines()
    spoken = set(re.findall(r"rpc \w+\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)", path.read_text()))
    by_rpc = {message for pair in spoken for message in pair}
    silent = []
    for above, line in zip(["", *lines], lines, strict=False):
        commented = "//" in line or above.strip().startswith("//")
        message = re.match(r"(?:message|enum) (\w+)", line)
        wanted = message.group(1) not in by_rpc if message else re.match(r"\s+(rpc |[\w.<>, ]+ \w+ = \d+;)", line)
        if wanted and not commented and not re.match(r"\s+\w+_\w+ = \d+;", line):
            silent.append(line.strip())
    assert silent == []
