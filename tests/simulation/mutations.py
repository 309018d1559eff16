"""Bugs put into the services: their sources, edited as they are imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from scripts.breaks.kind import Break
from tests.simulation.fresh_edits import FRESH_EDITS
from tests.simulation.old_bugs import OLD_BUGS

ROOT = Path(__file__).resolve().parents[2]


def edits_of(name: str) -> Sequence[Break]:
    """Those of an old bug or of a fresh edit. Raises SystemExit when the sources have moved on."""
    fresh = {one.name: [one.edit] for one in FRESH_EDITS}
    if name not in {**OLD_BUGS, **fresh}:
        raise SystemExit(f"no bug is called {name}; known are {', '.join([*OLD_BUGS, *fresh])}")
    return fresh[name] if name in fresh else OLD_BUGS[name]()


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, edits: Sequence[Break]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Never from a compiled file, which would be of the source as it is."""
        text = Path(self.path).read_text()
        for edit in self._edits:
            text = edit.edited(text)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: Sequence[Break]) -> None:
        self._edits = edits

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        mine = [edit for edit in self._edits if _module(edit) == name]
        if not mine:
            return None
        file = str(ROOT / mine[0].file)
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file, mine))


def apply(edits: Sequence[Break]) -> None:
    """To modules that are imported from now on. Raises SystemExit for one that is there already."""
    for edit in edits:
        if _module(edit) in sys.modules:
            raise SystemExit(f"{edit.file} has been imported already")
    sys.meta_path.insert(0, _Finder(edits))


def _module(edit: Break) -> str:
    return ".".join(Path(edit.file).with_suffix("").parts[1:])
