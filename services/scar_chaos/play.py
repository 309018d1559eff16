"""Playing faults: each at its moment, healed when it has lasted, and everything well again at the end."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from scar_chaos.faults import Fault
from scar_chaos.scene import Scene
from scar_runtime.status import ClusterStatus

MOMENT = 5.0  # seconds to wait for a fault's moment; after that it happens all the same


@dataclass(frozen=True)
class Struck:
    """``at``: monotonic seconds. ``met``: whether the fault hit the moment that it was meant for."""

    fault: Fault
    at: float
    met: bool = True


def round_runs(status: ClusterStatus) -> bool:
    """A shard takes part in a round of which the coordinator does not know the end."""
    saved = status.checkpoint
    return saved is not None and any(shard.round > saved.round for shard in status.shards.values())


def recovery_runs(status: ClusterStatus) -> bool:
    return bool((status.recovery and status.recovery.recovering) or status.loading)


MOMENTS: dict[str, Callable[[ClusterStatus], bool]] = {"round": round_runs, "recovery": recovery_runs}


def play(scene: Scene, faults: Sequence[Fault]) -> list[Struck]:
    """These faults together. Returns when all is well again; raises :class:`scar_chaos.scene.NotHealed`."""
    before = scene.incarnations()
    struck = _strike(scene, faults)
    scene.wait_healed(before, [scene.target.member(fault.target) for fault in faults if fault.replaces])
    return struck


def _strike(scene: Scene, faults: Sequence[Fault]) -> list[Struck]:
    """Every fault, and its end. What was broken is mended even when something goes wrong here."""
    struck: list[Struck] = []
    order, started = count(), time.monotonic()
    steps = [(fault.lag, next(order), fault, False) for fault in faults]
    heapq.heapify(steps)
    try:
        while steps:
            at, _, fault, over = heapq.heappop(steps)
            time.sleep(max(0.0, started + at - time.monotonic()))
            if over:
                scene.target.heal(fault.kind, fault.target)
                continue
            met = _await_moment(scene, fault.moment)
            struck.append(Struck(fault, time.monotonic(), met))
            scene.target.inject(fault.kind, fault.target)
            heapq.heappush(steps, (time.monotonic() - started + fault.seconds, next(order), fault, True))
    finally:
        for _, _, fault, _ in steps:
            scene.target.heal(fault.kind, fault.target)
    return struck


def _await_moment(scene: Scene, moment: str) -> bool:
    if not moment:
        return True
    deadline = time.monotonic() + MOMENT
    while not MOMENTS[moment](scene.status()):
        if time.monotonic() > deadline:
            return False
    return True
