"""Files that others append to, read line by line as they grow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 64 << 10  # of one file at a look


@dataclass
class ReadFile:
    """``read``: bytes so far. ``rest``: of a line whose end is not there yet."""

    read: int = 0
    rest: bytes = b""


class GrowingFiles:
    """Whole lines of files, each once and in order. One that was begun anew is read from its beginning."""

    def __init__(self) -> None:
        self._files: dict[Path, ReadFile] = {}

    def left(self, file: Path) -> int:
        """Bytes that were not read yet."""
        try:
            size = file.stat().st_size
        except OSError:
            return 0
        known = self._files.setdefault(file, ReadFile())
        if size < known.read:
            known = self._files[file] = ReadFile()
        return size - known.read

    def skip_all_but(self, file: Path, most: int) -> int:
        """Pass over what is older than the last ``most`` bytes; how many these are."""
        passed = max(0, self.left(file) - most)
        if passed:
            known = self._files[file]
            self._files[file] = ReadFile(known.read + passed)
        return passed

    def lines(self, file: Path) -> list[str]:
        """Of its next :data:`READ_BYTES`, as a terminal would show them in the end."""
        self.left(file)
        known = self._files.setdefault(file, ReadFile())
        try:
            with file.open("rb") as source:
                source.seek(known.read)
                data = source.read(READ_BYTES)
        except OSError:
            return []
        *whole, rest = (known.rest + data).split(b"\n")
        if len(rest) > READ_BYTES:
            whole, rest = [*whole, rest], b""
        self._files[file] = ReadFile(known.read + len(data), rest)
        return [_visible_text(one) for one in whole]

    def take_rest(self, file: Path) -> str:
        """The line that has no end; empty: there is none."""
        known = self._files.get(file, ReadFile())
        self._files[file] = ReadFile(known.read)
        return _visible_text(known.rest)


def _visible_text(line: bytes) -> str:
    """A progress bar writes over itself."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
