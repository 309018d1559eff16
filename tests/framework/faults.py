"""Faults as data: when, what, how, and for how long. A schedule is drawn from a seed, so that it can be played again."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.framework.cluster import Cluster

COORDINATORS = ("checkpoint-0", "recovery-0", "detector-0")
PAUSE = 2.0  # seconds of a long pause or outage: longer than the lease of the clusters under test
BLINK = 0.3  # seconds of a short pause: shorter than the lease


@dataclass(frozen=True)
class Fault:
    """``kind``: "kill" (SIGKILL, comes back by itself), "freeze" (longer than a lease), "blink" (shorter), "outage" (down for a
    while). ``target``: a process, or "store".

    ``clock``: clocks since the cluster was last well; 0: together with the fault before it, ``lag`` seconds after the first.
    """

    clock: int
    kind: str
    target: str
    lag: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.target} after {self.clock} clocks" + (f" and {self.lag} s" if self.lag else "")

    @property
    def replaces(self) -> bool:
        """Whether the target must have been replaced by a new incarnation when all is well again.

        A frozen one need not be: the detector may have been frozen with it.
        """
        return self.target.startswith(("ps-", "worker-")) and self.kind == "kill"

    def inject(self, cluster: Cluster) -> None:
        """Break it; returns at once. Nothing to do when the target is down already."""
        now = state(cluster, self.target)
        if self.target == "store":
            take_away(store_folder(cluster))
        elif self.kind in ("kill", "outage") and now in ("running", "paused"):
            cluster.local.kill(self.target, respawn=self.kind == "kill")
        elif self.kind in ("freeze", "blink") and now == "running":
            cluster.local.pause(self.target)

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return {"kill": 0.0, "blink": BLINK}.get(self.kind, PAUSE)

    def heal(self, cluster: Cluster) -> None:
        """End what does not end by itself."""
        if self.target == "store":
            bring_back(store_folder(cluster))
        elif self.kind == "outage" and state(cluster, self.target) in ("killed", "exited"):
            cluster.local.restart(self.target)
        elif self.kind in ("freeze", "blink") and state(cluster, self.target) == "paused":
            cluster.local.kill(self.target, signal.SIGCONT)


def state(cluster: Cluster, name: str) -> str:
    return next((process.state for process in cluster.local.processes() if process.name == name), "unknown")


def store_folder(cluster: Cluster) -> Path:
    return Path(cluster.local.store_url.removeprefix("file://"))


def take_away(folder: Path) -> None:
    """The disk is gone: in one step a file stands where the link to the folder was, so that nobody can make a new one."""
    draft = folder.with_suffix(".draft")
    draft.touch()
    draft.replace(folder)


def bring_back(folder: Path) -> None:
    """See :func:`tests.framework.cluster.running`, which made the link."""
    draft = folder.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.symlink_to("disk")
    draft.replace(folder)


def play(cluster: Cluster, faults: Sequence[Fault]) -> None:
    """These faults together, each healed when it has lasted, and everything well again at the end."""
    before = cluster.incarnations()
    steps = [(fault.lag, fault.inject) for fault in faults] + [(fault.lag + fault.seconds, fault.heal) for fault in faults]
    started = time.monotonic()
    try:
        for at, step in sorted(steps, key=lambda step: step[0]):
            time.sleep(max(0.0, started + at - time.monotonic()))
            step(cluster)
    finally:
        bring_back(store_folder(cluster))
    cluster.wait_healed(before, [fault.target for fault in faults if fault.replaces])


def play_all(cluster: Cluster, schedule: Sequence[Fault]) -> None:
    """A schedule, group by group; every oracle after each group."""
    starts = [index for index, fault in enumerate(schedule) if fault.clock or not index]
    for first, last in pairwise([*starts, len(schedule)]):
        cluster.advance(schedule[first].clock)
        play(cluster, schedule[first:last])
        cluster.verify()


def drawn(seed: int, shards: Sequence[str], workers: Sequence[str], length: int = 6) -> list[Fault]:
    """A schedule of ``length`` faults, some of them while others are being healed. The same for the same seed."""
    draw, found = random.Random(seed), []
    for _ in range(length):
        target = draw.choice((*shards, *shards, *workers, *COORDINATORS, "redis", "store"))
        kinds = {"redis": ("kill", "outage"), "store": ("outage",)}.get(target, ("kill", "kill", "freeze", "blink"))
        found.append(Fault(draw.choice((0, 0, 1, 4)), draw.choice(kinds), target, draw.choice((0.0, 0.05, 0.3, 1.0))))
    return found
