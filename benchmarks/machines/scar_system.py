"""SCAR on machines: its cluster on one of them, and workers wherever they are wanted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.machines.network import Machines, read_line, write_line

MODULE = "benchmarks.machines"


def start_cluster(
    machines: Machines,
    number: int,
    sizes: tuple[int, int, int, int],
    block_rows: int = 1,
    environment: Mapping[str, str] | None = None,
    kind: str = "dense",
) -> dict[str, str]:
    """``sizes``: shards on this machine, all shards, workers, rows of the table. ``kind``: of
    :data:`benchmarks.machines.scar_cluster.KINDS`. Returns the settings of processes that belong to it.
    """
    command = [sys.executable, "-m", f"{MODULE}.scar_cluster", machines.address(number), kind]
    cluster = machines.start(number, [*command, *map(str, (*sizes, block_rows))], environment)
    settings: dict[str, str] = json.loads(read_line(cluster))
    return settings


def start_shards(machines: Machines, count: int, settings: Mapping[str, str]) -> None:
    """One on each of the next machines: the first one's is the cluster's."""
    for number in range(1, count):
        place = {"SCAR_LISTEN": f"{machines.address(number)}:0", "SCAR_NAME": f"ps-{number}"}
        machines.start(number, [sys.executable, "-m", "scar_ps"], {**settings, **place}, quiet=True)


def start_worker(
    machines: Machines, number: int, name: str, steps: int, settings: Mapping[str, str], drawn: int = 0
) -> subprocess.Popen[str]:
    """It says a line when it has joined, and begins when it is told one. ``drawn``: rows that it pulls and
    pushes in a step; 0: all.
    """
    command = [sys.executable, "-m", f"{MODULE}.scar_worker", name, str(steps), str(drawn)]
    return machines.start(number, command, settings)


def train_together(workers: Sequence[subprocess.Popen[str]]) -> list[float]:
    """Workers that have joined begin. Seconds of each step, of the slowest of them."""
    for worker in workers:
        write_line(worker, "go")
    found = [json.loads(read_line(worker)) for worker in workers]
    return [max(step) for step in zip(*found, strict=True)]
