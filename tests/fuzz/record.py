"""What was fuzzed so far without a defect, as a file: runs add up, and no batch is run twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fuzz.engine import FuzzReport

SEED = "record"  # of all batches that are counted, by their numbers


class FuzzRecord:
    """Sums by decoder. ``commit``: of the sources that run now."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        self.decoders: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def batches_of(self, target: str) -> int:
        """How many were run."""
        found = self.decoders.get(target)
        return int(found["batches"]) if found else 0

    def add_batch(self, batch: FuzzReport) -> None:
        """One without a defect, and write the file: what is cut off loses one batch."""
        known = self.decoders.get(batch.target, {})
        outcomes = {name: known.get("outcomes", {}).get(name, 0) + n for name, n in batch.outcomes.items()}
        self.decoders[batch.target] = {
            "batches": self.batches_of(batch.target) + 1,
            "inputs": known.get("inputs", 0) + batch.inputs,
            "cpu_seconds": round(known.get("cpu_seconds", 0.0) + batch.seconds, 1),
            "slowest_ms": max(known.get("slowest_ms", 0.0), round(1000 * batch.slowest, 1)),
            "peak_bytes": max(known.get("peak_bytes", 0), batch.peak),
            "growth_bytes": max(known.get("growth_bytes", 0), batch.growth),
            "outcomes": dict(sorted((known.get("outcomes", {}) | outcomes).items())),
            "commits": sorted({*known.get("commits", ()), self._commit}),
        }
        text = json.dumps(dict(sorted(self.decoders.items())), indent=1)
        partial = self._path.with_suffix(".partial")
        partial.write_text(text + "\n")
        partial.replace(self._path)
