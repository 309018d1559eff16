"""The logs of a cluster on this machine, and what its workers print, read as they grow."""

from __future__ import annotations

from pathlib import Path

from scar_admin.log_text import LogText
from scar_local.growing_files import READ_BYTES, GrowingFiles

KINDS = (".log", ".out")  # what a process writes, and what a worker's user prints


class ClusterLogs:
    """``folder``: with ``<process>.log`` and ``<worker>.out``. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = GrowingFiles()

    def read(self) -> list[LogText]:
        """Of each file at most :data:`READ_BYTES`, the newest, from the first whole line on."""
        found = list[LogText]()
        for file in sorted(one for one in self._folder.glob("*") if one.suffix in KINDS):
            cut = self._files.skip_all_but(file, READ_BYTES) > 0
            found += [LogText(file.stem, line) for line in self._files.lines(file)[cut:]]
        return found
