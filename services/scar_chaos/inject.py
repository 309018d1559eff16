"""Injecting faults: each at its moment, healed when it has lasted, and everything well again at the end."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from scar_chaos.chaos_run import ChaosRun
from scar_chaos.core.faults import Fault
from scar_chaos.health import MOMENTS

MOMENT_SECONDS = 5.0  # to wait for a fault's moment; after that it happens all the same


@dataclass(frozen=True)
class InjectedFault:
    """``at``: monotonic seconds. ``met``: whether the fault hit the moment that it was meant for."""

    fault: Fault
    at: float
    met: bool = True


def inject_faults(run: ChaosRun, faults: Sequence[Fault]) -> list[InjectedFault]:
    """Inject these faults together; returns when all is well again.

    Raises :class:`scar_chaos.chaos_run.NotHealed`.
    """
    before = run.incarnations()
    injected = _inject_and_heal(run, faults)
    replaced = [run.target.member(fault.target) for fault in faults if fault.replaces_target]
    run.wait_healed(before, replaced)
    return injected


def _inject_and_heal(run: ChaosRun, faults: Sequence[Fault]) -> list[InjectedFault]:
    """Inject and heal each in its time. What was broken is healed even when something goes wrong here."""
    injected: list[InjectedFault] = []
    order = count()
    started = time.monotonic()
    steps = [(fault.lag, next(order), fault, False) for fault in faults]
    heapq.heapify(steps)
    try:
        while steps:
            at, _, fault, is_over = heapq.heappop(steps)
            time.sleep(max(0.0, started + at - time.monotonic()))
            if is_over:
                run.target.heal(fault.kind, fault.target)
                continue
            met = _await_moment(run, fault.moment)
            injected.append(InjectedFault(fault, time.monotonic(), met))
            run.target.inject(fault.kind, fault.target, fault.duration)
            heapq.heappush(steps, (time.monotonic() - started + fault.duration, next(order), fault, True))
    finally:
        for _, _, fault, _ in steps:
            run.target.heal(fault.kind, fault.target)
    return injected


def _await_moment(run: ChaosRun, moment: str) -> bool:
    """Whether it came in time."""
    if not moment:
        return True
    deadline = time.monotonic() + MOMENT_SECONDS
    while not MOMENTS[moment](run.status()):
        if time.monotonic() > deadline:
            return False
    return True
