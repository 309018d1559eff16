"""SCAR on machines: its cluster on one of them, and workers wherever they are wanted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from benchmarks.machines.network import Machines, read_line

MODULE = "benchmarks.machines"


def start_cluster(
    machines: Machines, number: int, shards: int, job_shards: int, workers: int, rows: int
) -> dict[str, str]:
    """With so many ``shards`` on this machine. Returns the settings of processes that belong to it."""
    command = [sys.executable, "-m", f"{MODULE}.scar_cluster", machines.address(number)]
    sizes = map(str, (shards, job_shards, workers, rows))
    settings: dict[str, str] = json.loads(read_line(machines.start(number, [*command, *sizes])))
    return settings


def start_worker(
    machines: Machines, number: int, name: str, steps: int, settings: Mapping[str, str]
) -> subprocess.Popen[str]:
    """It says a line when it has joined, and begins when it is told one."""
    command = [sys.executable, "-m", f"{MODULE}.scar_worker", name, str(steps)]
    return machines.start(number, command, settings)
