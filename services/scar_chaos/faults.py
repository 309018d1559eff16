"""Faults as data: when, what, how, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LONG = 2.0  # seconds of a pause, a partition or an outage: as long as the default lease
BLINK = 0.3  # seconds of a short pause: shorter than any lease
NODE = 6.0  # seconds for which a node is away

SECONDS = {
    "kill": 0.0,  # SIGKILL, and no pod is left; it comes back by itself, elsewhere
    "crash": 0.0,  # SIGKILL of the process alone; its pod stays
    "delete": 0.0,  # `kubectl delete pod --force`: gone for Kubernetes at once, and two seconds later in truth
    "leave": 0.0,  # SIGTERM, or a pod deleted with its grace: it may tidy up
    "blink": BLINK,  # frozen (SIGSTOP) for less than a lease
    "freeze": LONG,  # frozen for a lease or longer
    "slow": LONG,  # runs half of the time, in slices of 0.1 s: every message from it is late
    "outage": LONG,  # down, and not coming back before it is healed
    "cut": 4.0,  # no packet goes to it or comes from it; a network plugin may take a second to see to that
    "node": NODE,  # the whole node on which it runs
}
MOMENTS = {
    "": "at once",
    "round": "while a checkpoint round is under way",
    "recovery": "while blocks are being recovered",
}


@dataclass(frozen=True)
class Fault:
    """``kind``: one of :data:`SECONDS`. ``target``: "ps-0", "worker-1", "recovery", "checkpoint", "detector", "redis", "store".

    ``clock``: clocks since the cluster was last well; 0: together with the fault before it, ``lag`` seconds after the first of
    them. ``moment``: one of :data:`MOMENTS`, for which it waits after its lag.
    """

    clock: int
    kind: str
    target: str
    lag: float = 0.0
    moment: str = ""

    def __str__(self) -> str:
        when = f"after {self.clock} clocks" if self.clock else "together"
        return " ".join(
            [f"{self.kind} {self.target} {when}"]
            + ([f"and {self.lag:g} s"] if self.lag else [])
            + ([MOMENTS[self.moment]] if self.moment else [])
        )

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return SECONDS[self.kind]

    @property
    def replaces(self) -> bool:
        """Whether the target must have been replaced by a new incarnation when all is well again.

        A frozen one need not be: the detector may have been frozen with it.
        """
        return self.target.startswith(("ps-", "worker-")) and self.kind in ("kill", "crash", "delete", "leave")


def groups(schedule: Sequence[Fault]) -> list[list[Fault]]:
    """Faults that happen together."""
    starts = [index for index, fault in enumerate(schedule) if fault.clock or not index]
    return [list(schedule[first:last]) for first, last in pairwise([*starts, len(schedule)])]
