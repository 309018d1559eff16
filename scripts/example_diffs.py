"""What makes a plain script of PyTorch in examples/plain/ one of SCAR, as differences for docs/torch.md."""

from __future__ import annotations

import difflib
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = ("mlp", "cnn", "recommender")
BEGIN = "<!-- differences: written by `make docs` -->\n"
END = "<!-- end of differences -->\n"


def read_body(path: Path) -> list[str]:
    """Lines of a script behind its docstring."""
    return path.read_text().split('"""', 2)[2].strip().splitlines()


def changed_lines(name: str) -> list[str]:
    """Lines of the script on SCAR that are new or stand in the place of another."""
    return [line[1:] for line in _difference(name) if line.startswith("+")]


def _difference(name: str) -> list[str]:
    """Removed lines begin with ``-``, new ones with ``+``; a gap is ``...``. Without empty lines."""
    plain, ours = read_body(EXAMPLES / "plain" / f"{name}.py"), read_body(EXAMPLES / f"torch_{name}.py")
    lines = list(difflib.unified_diff(plain, ours, n=1, lineterm=""))[3:]
    return [" ..." if line.startswith("@@") else line for line in lines if line != " "]


def torch_page(page: str) -> str:
    """docs/torch.md with its differences written again."""
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    parts = [
        f"[{name}.py](../examples/plain/{name}.py) to [torch_{name}.py](../examples/torch_{name}.py):\n\n"
        "```diff\n" + "\n".join(_difference(name)) + "\n```\n"
        for name in SCRIPTS
    ]
    return before + BEGIN + "\n" + "\n".join(parts) + "\n" + END + after
