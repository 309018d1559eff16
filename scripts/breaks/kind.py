"""What a break is: one edit of the sources that a test has to notice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

WORDS = re.compile(r"\w+|[^\w\s]")  # what counts in ``old``: how the formatter wraps it does not
CLOSING = ")]}"
TRAILING_COMMA = re.compile(r",\s*([)\]}])")


@dataclass(frozen=True)
class Break:
    """With ``new`` in the place of ``old`` in ``file``, ``test`` (a pytest node) must fail, every time.

    ``old`` occurs exactly once, wrapped in any way.

    ``label``: "G3" for a guarantee of docs/guarantees.md, "B1" for a fixed bug, else a short word.
    """

    label: str
    file: str
    old: str
    new: str
    test: str

    def fits(self, tree: Path) -> bool:
        """Whether the sources and the tests are still where it says."""
        path = tree / self.file
        return path.exists() and len(self.places(path.read_text())) == 1 and self._has_test(tree)

    def _has_test(self, tree: Path) -> bool:
        file, _, name = self.test.partition("::")
        return (tree / file).exists() and (not name or f"def {name}(" in (tree / file).read_text())

    def places(self, text: str) -> list[tuple[int, int]]:
        """Where ``old`` starts and ends in a source text."""
        exact = [(one.start(), one.end()) for one in re.finditer(re.escape(self.old), text)]
        return exact or [(one.start(), one.end()) for one in re.finditer(_any_wrapping(self.old), text)]

    def edited(self, text: str) -> str:
        """A source text with this edit. Raises SystemExit when the sources have moved on."""
        places = self.places(text)
        if len(places) != 1:
            raise SystemExit(f"{self.label}: {self.old!r} is {len(places)} times in {self.file}, not once")
        start, end = places[0]
        return text[:start] + self.new + text[end:]

    def apply(self, tree: Path) -> None:
        """Edit the file in ``tree``.

        Raises SystemExit when the sources have moved on, SyntaxError when what is left is no Python.
        """
        path = tree / self.file
        broken = self.edited(path.read_text())
        if path.suffix == ".py":
            compile(broken, self.file, "exec")  # what is no Python at all would be noticed by anything
        path.write_text(broken)


def _any_wrapping(old: str) -> str:
    """A pattern for these words with any white space between them, with or without trailing commas."""
    pattern = ""
    before = ""
    for word in WORDS.findall(TRAILING_COMMA.sub(r"\1", old)):
        gap = r"\s+" if before[-1:].isalnum() and word[0].isalnum() else r"\s*"
        comma = r"(?:,\s*)?" if word in CLOSING else ""
        pattern += (gap if before else "") + comma + re.escape(word)
        before = word
    indent = r"[ \t]*" if old[:1] in " \t" else ""
    # no part of a longer name
    start = r"(?<!\w)" if old[:1].isalnum() else ""
    return indent + start + pattern + (r"[ \t]*\n" if old.endswith("\n") else "")
