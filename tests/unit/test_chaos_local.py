"""Which faults reach which process of a local cluster."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scar_chaos.targets.local import LocalTarget


@pytest.mark.parametrize(
    ("kind", "state", "is_slow", "reaches"),
    [
        ("leave", "running", False, True),
        ("leave", "paused", True, True),  # it stands still for a moment, and reads the notice then
        ("leave", "paused", False, False),  # frozen by another fault: its lease is over when it goes on
        ("freeze", "paused", True, False),
        ("kill", "paused", False, True),
        ("kill", "killed", False, False),
    ],
)
def test_a_fault_reaches_what_it_can_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str, is_slow: bool, reaches: bool
) -> None:
    target = LocalTarget(tmp_path)
    reached = []
    monkeypatch.setattr(target, "process_state", lambda name: state)
    monkeypatch.setattr(target, "_signal", lambda kind, process, seconds: reached.append((kind, process)))
    if is_slow:
        target._slowed["ps-0"] = threading.Event()
    target.inject(kind, "ps-0", 1.0)
    assert reached == ([(kind, "ps-0")] if reaches else [])
