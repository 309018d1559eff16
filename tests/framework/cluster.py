"""A cluster under test: a :mod:`scar_chaos.chaos_run` on processes of this machine.

Nothing of it is left afterwards.

with running(tmp_path, shards=3, workers=2, consistency="bsp") as cluster:
    cluster.local.kill("ps-1")
    cluster.wait_healed()
    cluster.verify()
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scar.tables import Job
from scar_chaos.chaos_run import TIMEOUT, ChaosRun, open_run
from scar_chaos.core.faults import Fault, fault_groups
from scar_chaos.inject import inject_faults
from scar_chaos.recorder import Recorder
from scar_chaos.targets.local import LocalTarget
from scar_local import LocalCluster


class Cluster(ChaosRun):
    """A run whose processes a test may handle itself."""

    def __init__(self, target: LocalTarget, job: Job, recorder: Recorder) -> None:
        super().__init__(target, job, recorder)
        self.disk = target

    @property
    def local(self) -> LocalCluster:
        return self.disk.local

    def play(self, *faults: Fault) -> None:
        """Group by group; every oracle after each group."""
        for group in fault_groups(faults):
            self.wait_clocks(group[0].clock)
            inject_faults(self, group)
            self.verify()

    def finish(self) -> dict[str, int]:
        """Let all workers end at one clock; returns their exit codes."""
        self.recorder.give_orders(end=self.future_clock())
        return self.local.wait(TIMEOUT)

    def check(self, values: Mapping[str, np.ndarray]) -> None:
        """Every oracle, when the workers have ended."""
        self.judge(values).enforce()


@contextmanager
def running(
    folder: Path,
    *,
    shards: int = 3,
    workers: int = 2,
    resume: bool = False,
    local: dict[str, Any] | None = None,
    **job: Any,
) -> Iterator[Cluster]:
    """A cluster whose workers count; nothing of it is left when the block ends. ``job``: options of
    ``make_job``.
    """
    target = LocalTarget(folder, **(local or {}))
    try:
        with open_run(target, folder, shards=shards, workers=workers, resume=resume, **job) as run:
            yield Cluster(target, run.job, run.recorder)
    finally:
        assert_nothing_left(folder)


def assert_nothing_left(folder: Path) -> None:
    """No process that was started for this cluster is alive: every one of them has its folder in its
    environment.
    """
    deadline = time.monotonic() + 5
    while left := _processes_of(folder):
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.05)


def _processes_of(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if process.name != str(os.getpid()) and str(folder).encode() in environment + command.encode():
            found.append(f"{process.name}: {command}")
    return found
