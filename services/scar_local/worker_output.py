"""What workers print, shown while they train, with the name of who says it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

READ_BYTES = 64 << 10  # of one file at a look
BEHIND_BYTES = 1 << 20  # unread, from which on the older part is passed over

WorkerLine = tuple[str, str]  # worker, line


class WorkerOutput:
    """Whole lines of the files ``<worker>.out`` in ``folder``, each once and in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, int] = {}
        self._rest: dict[str, bytes] = {}

    def lines(self, workers: Iterable[str], last: bool = False) -> list[WorkerLine]:
        """What these have said since the last call.

        ``last``: all that is left, with a line that has no end.
        """
        found: list[WorkerLine] = []
        for file in (self._folder / f"{worker}.out" for worker in workers):
            found += self._new(file)
            while last and self._left(file):
                found += self._new(file)
            if last and (rest := self._rest.pop(file.stem, b"")):
                found.append((file.stem, _visible_text(rest)))
        return found

    def _left(self, file: Path) -> int:
        try:
            return max(0, file.stat().st_size - self._read.get(file.stem, 0))
        except OSError:
            return 0

    def _new(self, file: Path) -> list[WorkerLine]:
        name = file.stem
        found = list[WorkerLine]()
        if (left := self._left(file)) > BEHIND_BYTES:
            found.append((name, f"({left - READ_BYTES} bytes are not shown; all of it is in {file})"))
            self._read[name] = self._read.get(name, 0) + left - READ_BYTES
            self._rest[name] = b""
        try:
            with file.open("rb") as source:
                source.seek(self._read.get(name, 0))
                data = source.read(READ_BYTES)
        except OSError:
            return found
        self._read[name] = self._read.get(name, 0) + len(data)
        *whole, rest = (self._rest.get(name, b"") + data).split(b"\n")
        if len(rest) > READ_BYTES:
            whole = [*whole, rest]
            rest = b""
        self._rest[name] = rest
        return found + [(name, _visible_text(one)) for one in whole]


def _visible_text(line: bytes) -> str:
    """As a terminal would show it in the end: a progress bar writes over itself."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
