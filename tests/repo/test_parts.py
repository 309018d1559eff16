"""`--part K/N` leaves no test out: what N runs play is what one plays, each test once."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def replayed(part: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "replayed", "--part", part]
    done = subprocess.run(
        [*command, "tests/simulation/test_kept.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_parts_are_the_whole() -> None:
    parts = [replayed(f"{part}/3") for part in (1, 2, 3)]
    whole = replayed("1/1")
    assert len(whole) > 30
    assert sorted(chain.from_iterable(parts)) == sorted(whole)
    assert min(map(len, parts)) >= len(whole) // 3
