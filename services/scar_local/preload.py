"""What a training file imports that takes seconds: the parent of its workers imports it once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TORCH = ("torch", "torch._dynamo")  # the latter takes as long, and every optimizer imports it


def modules_to_preload(file: Path) -> tuple[str, ...]:
    """By name; empty also for a file that cannot be read or parsed, which is for its workers to report."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    names = [name.split(".") for node in ast.walk(tree) for name in _imported_names(node)]
    return TORCH if any(name[0] == "torch" or name[:2] == ["scar", "torch"] for name in names) else ()


def _imported_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
