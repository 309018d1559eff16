"""A page of the documents as one script: its ``console`` blocks are typed, its ``python`` blocks with a title
are files, and its ``text`` blocks are lines that must have been seen, in their order.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Page:
    """``script``: for bash. ``expected``: lines of its output."""

    script: str
    expected: tuple[str, ...]


def read_page(path: Path) -> Page:
    """Raises ValueError for a block of another kind: nothing on a page is left out."""
    script = ["set -eu"]
    expected: list[str] = []
    for kind, title, body in BLOCK.findall(path.read_text()):
        if kind == "console":
            script.append(body)
        elif kind == "python" and title:
            script.append(f"cat > {shlex.quote(title)} <<'END_OF_FILE'\n{body}END_OF_FILE")
        elif kind == "text":
            expected.extend(line for line in body.splitlines() if line)
        else:
            raise ValueError(f"{path}: nobody runs a block of {kind!r} without a title")
    return Page("\n".join(script), tuple(expected))


def plain(line: str) -> str:
    """Without what differs from run to run: numbers, and how wide columns are."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.]*", "N", line)).strip()


def missing_lines(expected: tuple[str, ...], output: str) -> list[str]:
    """Expected lines that the output does not have behind those before them."""
    said = iter([plain(line) for line in output.splitlines()])
    return [line for line in expected if plain(line) not in said]
