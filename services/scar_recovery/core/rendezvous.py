"""Workers of a run wait for each other before its first clock; later nobody waits for one that is gone. Pure.

A run begins when somebody starts or resumes the job. Which epoch is the first with all its workers is kept in
the epochs (``Epoch.awaits_workers``), so it outlives the leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from scar.placement import END, Epoch, Member
from scar.tables import Job


class WorkerRendezvous:
    """``former``: keys of workers of the run before, until all of the run that has begun are there.

    None: no run has begun under this leader, or all its workers have been there.
    """

    def __init__(self) -> None:
        self.former: frozenset[str] | None = None

    def begin_run(self, epoch: Epoch | None) -> None:
        """Whoever is in the newest epoch belongs to the run before."""
        self.former = frozenset(member.key for member in epoch.workers) if epoch is not None else frozenset()

    def adopt_epoch(self, job: Job, epoch: Epoch) -> None:
        if self.former is not None and not lacks_workers(job, epoch.workers, self.former):
            self.former = None


def lacks_workers(job: Job, workers: Sequence[Member], former: frozenset[str] = frozenset()) -> bool:
    """Not all workers of a run are there. ``former``: keys of those that belong to the run before."""
    return sum(member.key not in former for member in workers) < job.workers


def awaits_workers(
    job: Job, epoch: Epoch, workers: Sequence[Member], former: frozenset[str] | None = None
) -> bool:
    """Whether the workers of the epoch after ``epoch`` wait for more. ``former``: of a run that has begun."""
    waiting = former is not None or epoch.awaits_workers or epoch.cause == END
    return waiting and lacks_workers(job, workers, former or frozenset())
