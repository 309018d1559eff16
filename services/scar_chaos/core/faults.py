"""Faults as data: when, what, how, and for how long.

A new kind of fault touches at most four files: its duration in :data:`DURATIONS`; what it is done to, and
how, in ``targets/local.py`` and ``targets/kubernetes.py`` (in one of them, if it exists in one place only);
its row in docs/chaos.md. (Damage of a store is in ``targets/store_disk.py`` and ``DAMAGE``, too.) The
schedule, the command line and the report follow from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LONG = 2.0  # seconds of a pause, a partition or an outage: as long as the default lease
BLINK = 0.3  # seconds of a short pause: shorter than any lease
NODE = 6.0  # seconds for which a node is away

DURATIONS = {  # seconds; 0: it happens at once and ends by itself
    "kill": 0.0,  # SIGKILL, and no pod is left; it comes back by itself, elsewhere
    "crash": 0.0,  # SIGKILL of the process alone; its pod stays
    # `kubectl delete pod --force`: gone for Kubernetes at once, and two seconds later in truth
    "delete": 0.0,
    "leave": 0.0,  # SIGTERM, or a pod deleted with its grace: it may tidy up
    "blink": BLINK,  # frozen (SIGSTOP) for less than a lease
    "freeze": LONG,  # frozen for a lease or longer
    "depose": 4.0,  # a leader, frozen until its standby has long taken over, and woken
    "slow": LONG,  # runs half of the time, in slices of 0.1 s: every message from it is late
    "outage": LONG,  # down, and not coming back before it is healed
    "cut": 4.0,  # off from the network; what does it may take a second or two to begin
    "node": NODE,  # the whole node on which it runs
    "late": LONG,  # its answers come after their readers have given up
    "garble": LONG,  # its answers are nonsense
    "full": LONG,  # nothing can be written; reading goes on
    "corrupt": 0.0,  # a bit is flipped in each object that the newest manifest needs, for good
    "truncate": 0.0,  # the second half of each of these objects is gone, for good
    "rival": 4.0,  # a second cluster tries to resume the job
}
REPLACING = ("kill", "crash", "delete", "leave")  # a shard or worker comes back as a new incarnation
MOMENTS = {
    "": "at once",
    "round": "while a checkpoint round is under way",
    "recovery": "while blocks are being recovered",
}


@dataclass(frozen=True)
class Fault:
    """One thing that breaks.

    ``kind``: one of :data:`DURATIONS`. ``target``: "ps-0", "worker-1", "recovery", "checkpoint", "detector",
    "redis", "store", "job".

    ``clock``: clocks since the cluster was last well; 0: together with the fault before it, ``lag`` seconds
    after the first of them. ``moment``: one of :data:`MOMENTS`, for which it waits after its lag. ``lasts``:
    seconds; 0: as long as its kind does.
    """

    clock: int
    kind: str
    target: str
    lag: float = 0.0
    moment: str = ""
    lasts: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.kind} {self.target}"]
        if self.lasts:
            words.append(f"for {self.lasts:g} s")
        words.append(f"after {self.clock} clocks" if self.clock else "together")
        if self.lag:
            words.append(f"and {self.lag:g} s")
        if self.moment:
            words.append(MOMENTS[self.moment])
        return " ".join(words)

    @property
    def duration(self) -> float:
        """Seconds from its begin to its end."""
        return self.lasts or DURATIONS[self.kind]

    @property
    def replaces_target(self) -> bool:
        """Whether a new incarnation must have replaced the target when all is well again.

        It need not have replaced a frozen one: the detector may have been frozen with it.
        """
        return self.target.startswith(("ps-", "worker-")) and self.kind in REPLACING


def fault_groups(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Split a schedule into faults that happen together."""
    starts = [index for index, fault in enumerate(faults) if fault.clock or not index]
    return [list(faults[first:last]) for first, last in pairwise([*starts, len(faults)])]
