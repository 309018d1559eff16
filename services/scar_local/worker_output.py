"""What workers print, shown while they train, with the name of who says it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scar_local.growing_files import READ_BYTES, GrowingFiles

BEHIND_BYTES = 1 << 20  # unread, from which on the older part is passed over

WorkerLine = tuple[str, str]  # worker, line


class WorkerOutput:
    """Whole lines of the files ``<worker>.out`` in ``folder``, each once and in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = GrowingFiles()

    def lines(self, workers: Iterable[str], last: bool = False) -> list[WorkerLine]:
        """What these have said since the last call.

        ``last``: all that is left, with a line that has no end.
        """
        found: list[WorkerLine] = []
        for file in (self._folder / f"{worker}.out" for worker in workers):
            found += self._new(file)
            while last and self._files.left(file):
                found += self._new(file)
            if last and (rest := self._files.take_rest(file)):
                found.append((file.stem, rest))
        return found

    def _new(self, file: Path) -> list[WorkerLine]:
        found = list[WorkerLine]()
        if self._files.left(file) > BEHIND_BYTES:
            passed = self._files.skip_all_but(file, READ_BYTES)
            found.append((file.stem, f"({passed} bytes are not shown; all of it is in {file})"))
        return found + [(file.stem, line) for line in self._files.lines(file)]
