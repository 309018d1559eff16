"""Records of trials: a line of JSON each, appended when the trial is done, so that a run that was killed goes on where it was.

A file may hold records of several *plans* (seed, sizes, cases) of a panel; a run reads those of its own plans and leaves the
others alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Journal:
    """The records of one plan for each panel in one file. Several processes may append at once: a record is a single write."""

    def __init__(self, path: Path, plans: Mapping[str, str]) -> None:
        self.path = path
        self.plans = {panel: hashlib.blake2b(plan.encode(), digest_size=6).hexdigest() for panel, plan in plans.items()}

    def append(self, record: Record) -> None:
        line = json.dumps({"plan": self.plans[record["panel"]], **record}) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, self._mended(line).encode())
        finally:
            os.close(file)

    def _mended(self, line: str) -> str:
        """A new line first, if the last writer was killed in the middle of one."""
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return line if file.read(1) == b"\n" else f"\n{line}"
        except OSError:  # empty
            return line

    def read(self) -> list[Record]:
        """What is whole and belongs to the plans; of a trial that was recorded twice, the first."""
        if not self.path.exists():
            return []
        found: dict[tuple[str, int], Record] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # the last write of a process that was killed
                continue
            if "plan" in record and record["plan"] == self.plans.get(str(record["panel"])):
                found.setdefault((str(record["panel"]), int(record["trial"])), record)
        return list(found.values())


def of_panel(records: Sequence[Record], panel: str) -> list[Record]:
    """The records of one panel in the order of their trials."""
    return sorted((one for one in records if one["panel"] == panel), key=lambda one: int(one["trial"]))
