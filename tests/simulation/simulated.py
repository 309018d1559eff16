"""Simulations as tests run them: in processes of their own, where nothing is imported before the patches."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 110.0  # for all runs of one process


@dataclass(frozen=True)
class Run:
    """What one seed did. ``wrong``: what an oracle found, in words; ``seconds``: simulated; ``cpu``: real;
    ``tally``: what has happened how often.
    """

    scenario: str
    seed: int
    wrong: str
    digest: str = ""
    seconds: float = 0.0
    steps: int = 0
    cpu: float = 0.0
    tally: dict[str, int] = field(default_factory=dict)


def command_of(*arguments: str) -> list[str]:
    """To play simulations in a process of their own, which writes a line for each run."""
    return [sys.executable, "-m", "tests.simulation", *arguments]


def parse_run(line: str) -> Run:
    return Run(**json.loads(line))


def simulate(
    *scenarios: str,
    first: int = 1,
    seeds: int = 1,
    undo: str = "",
    stop: bool = False,
    trace: Path | None = None,
    carrier: str = "",
    heartbeat: float = 0.0,
) -> list[Run]:
    """Runs in order, one scenario after the other; ``stop``: the last one is the first that failed."""
    command = command_of(
        *scenarios,
        f"--first={first}",
        f"--seeds={seeds}",
        f"--undo={undo}",
        f"--carrier={carrier}",
        f"--heartbeat={heartbeat}",
        f"--trace={trace or ''}",
        *(["--stop"] if stop else []),
    )
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    runs = [parse_run(line) for line in done.stdout.splitlines()]
    assert runs, done.stderr[-2000:]
    assert done.returncode == int(any(run.wrong for run in runs)), done.stderr[-2000:]
    return runs
