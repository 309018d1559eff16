"""What was recorded: pushes and pulls of workers (see ``workload.py``), and what recoveries put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from scar.blocks import Ids
from scar.placement import BlockGroup, Epoch
from scar.tables import Job
from scar_chaos.core.counting_job import push_amount

TableValues = Mapping[str, np.ndarray]  # table -> one value per block


@dataclass(frozen=True)
class PushRecord:
    """One ``push()`` call. ``worker``: member key; ``number``: its push id; ``ids``: blocks of ``table``,
    each once.
    """

    worker: str
    number: int
    clock: int
    table: str
    ids: Ids

    @property
    def amount(self) -> int:
        return push_amount(self.worker, self.number)


@dataclass(frozen=True)
class PullRecord:
    """Values (one per block) that a worker saw.

    Its epoch was ``before`` when it asked and ``after`` when it had them.
    """

    worker: str
    clock: int
    table: str
    before: int
    after: int
    values: np.ndarray


@dataclass(frozen=True, order=True)
class ShareRecord:
    """Blocks ``first`` to before ``last`` of the first table, of whose loss a worker told in a clock."""

    first: int
    last: int
    worker: str
    clock: int

    @property
    def worker_name(self) -> str:
        return _name(self.worker)


@dataclass(frozen=True, eq=False)
class ReturnedBlocks:
    """Blocks that ``epoch`` put back, with the values that they got, one per block of ``group``."""

    epoch: int
    group: BlockGroup
    values: np.ndarray


@dataclass
class History:
    """All workers' records.

    ``acknowledged[worker]``: all pushes of clocks below were acknowledged. ``opened``: (monotonic seconds,
    worker, clocks finished). ``torn``: proofs of torn blocks.
    """

    pushes: list[PushRecord] = field(default_factory=list)
    pulls: list[PullRecord] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    opened: list[tuple[float, str, int]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    shares: list[ShareRecord] = field(default_factory=list)

    def add_event(self, job: Job, worker: str, event: dict[str, Any]) -> None:
        """Add one line of a worker's record."""
        if "open" in event:
            self.acknowledged[worker] = event["open"]
            self.opened.append((event["at"], worker, event["open"]))
        elif "push" in event:
            blocks = np.arange(job.table(event["table"]).blocks, dtype=np.uint32)
            ids = blocks if event["ids"] is None else np.array(event["ids"], dtype=np.uint32)
            self.pushes.append(PushRecord(worker, event["push"], event["clock"], event["table"], ids))
        elif "share" in event:
            first, last = event["blocks"]
            self.shares.append(ShareRecord(first, last, worker, event["share"]))
        elif "pull" in event:
            before, after = event["epochs"]
            values = np.array(event["values"])
            self.pulls.append(PullRecord(worker, event["pull"], event["table"], before, after, values))
        else:
            self.torn.append(
                f"{worker} clock {event['torn']}: table {event['table']} blocks {event['blocks']}"
            )

    @property
    def newest_epochs(self) -> dict[str, int]:
        """Newest epoch in which each worker was seen."""
        found: dict[str, int] = {}
        for pull in self.pulls:
            found[pull.worker] = max(found.get(pull.worker, 0), pull.after)
        return found

    @cached_property
    def started_at(self) -> dict[str, float]:
        """When each worker incarnation started, in monotonic seconds."""
        return {worker: at for at, worker, _ in reversed(self.opened)}

    def is_acknowledged(self, push: PushRecord) -> bool:
        return push.clock < self.acknowledged.get(push.worker, 0)

    def repeats_clock(self, push: PushRecord) -> bool:
        """Whether a predecessor of this worker may have pushed the same.

        Where pushes are queued a restarted worker does a clock again that its predecessor had finished on
        some shards: those do not apply it twice.
        """
        name = _name(push.worker)
        started = self.started_at
        former = [key for key in started if _name(key) == name and started[key] < started[push.worker]]
        return push.clock <= max((self.acknowledged[key] for key in former), default=-1)

    def voided_clocks(self, epochs: Sequence[Epoch], since: int = 0) -> set[tuple[str, int]]:
        """(worker, clock) whose pushes are void by an epoch after ``since``.

        Their gradients came from values that a rollback took back.
        """
        found: set[tuple[str, int]] = set()
        rollbacks = [epoch.number for epoch in epochs if epoch.rollback and epoch.number > max(1, since)]
        for number in rollbacks:
            for worker in self.newest_epochs:
                pulls = [pull for pull in self.pulls if pull.worker == worker]
                clocks_after = [pull.clock for pull in pulls if pull.after >= number]
                if not clocks_after:
                    continue
                first = clocks_after[0]
                last_before = [pull.clock for pull in pulls if pull.before < number][-1:]
                found |= {(worker, clock) for clock in (*last_before, first - 1, first)}
        return found


def _name(worker: str) -> str:
    return worker.split("@")[0]
