"""Records of trials: one line of JSON each, appended when the trial is done, so that a killed run continues.

A file may hold records of several *plans* (seed, sizes, cases) of a panel; a run reads those of its own plans
and leaves the others alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TrialRecord = dict[str, Any]


class TrialJournal:
    """The records of one plan for each panel, in one file.

    Several processes may append at once: a record is a single write.
    """

    def __init__(self, path: Path, plans: Mapping[str, str]) -> None:
        self.path = path
        self.plans = {
            panel: hashlib.blake2b(plan.encode(), digest_size=6).hexdigest() for panel, plan in plans.items()
        }

    def append(self, record: TrialRecord) -> None:
        """Write one record, under the plan of its panel."""
        line = json.dumps({"plan": self.plans[record["panel"]], **record}) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, self._complete_line(line).encode())
        finally:
            os.close(file)

    def _complete_line(self, line: str) -> str:
        """The line, after a line break if the last writer was killed in the middle of one."""
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return line if file.read(1) == b"\n" else f"\n{line}"
        except OSError:  # empty
            return line

    def read(self) -> list[TrialRecord]:
        """Complete records of these plans; of a trial that was recorded twice, the first."""
        if not self.path.exists():
            return []
        found: dict[tuple[str, int], TrialRecord] = {}
        for record in filter(None, map(_decode_trial, self.path.read_bytes().splitlines())):
            if record["plan"] == self.plans.get(str(record["panel"])):
                found.setdefault((str(record["panel"]), int(record["trial"])), record)
        return list(found.values())


def _decode_trial(line: bytes) -> TrialRecord | None:
    """None: no record, as the last write of a process that was killed."""
    try:
        record = dict(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    whole = isinstance(record.get("trial"), int) and "plan" in record and "panel" in record
    return record if whole else None


def records_of_panel(records: Sequence[TrialRecord], panel: str) -> list[TrialRecord]:
    """The records of one panel in the order of their trials."""
    return sorted((one for one in records if one["panel"] == panel), key=lambda one: int(one["trial"]))
