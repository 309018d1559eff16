"""What the workers wrote down (see ``workload.py``), read back for the checkers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scar.blocks import Ids
from scar.placement import Epoch
from scar.tables import Job
from scar_chaos.counting import amount

TAIL_BYTES = 64 << 10  # of a worker's record; a clock takes a few thousand


@dataclass(frozen=True)
class Push:
    """One ``push()`` call. ``worker``: member key; ``number``: its push id; ``ids``: blocks of ``table``."""

    worker: str
    number: int
    clock: int
    table: str
    ids: Ids

    @property
    def amount(self) -> int:
        return amount(self.worker, self.number)


@dataclass(frozen=True)
class Pull:
    """Values (one per block) that a worker saw; its epoch was ``before`` when it asked and ``after`` when it had them."""

    worker: str
    clock: int
    table: str
    before: int
    after: int
    values: np.ndarray


@dataclass
class History:
    """All workers' records.

    ``acknowledged[worker]``: all pushes of clocks below were acknowledged. ``opened``: (monotonic seconds, worker, clocks
    finished). ``torn``: proofs of torn blocks.
    """

    pushes: list[Push] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    opened: list[tuple[float, str, int]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def add(self, job: Job, worker: str, event: dict[str, Any]) -> None:
        if "open" in event:
            self.acknowledged[worker] = event["open"]
            self.opened.append((event["at"], worker, event["open"]))
        elif "push" in event:
            blocks = np.arange(job.table(event["table"]).blocks, dtype=np.uint32)
            ids = blocks if event["ids"] is None else np.array(event["ids"], dtype=np.uint32)
            self.pushes.append(Push(worker, event["push"], event["clock"], event["table"], ids))
        elif "pull" in event:
            before, after = event["epochs"]
            self.pulls.append(Pull(worker, event["pull"], event["table"], before, after, np.array(event["values"])))
        else:
            self.torn.append(f"{worker} clock {event['torn']}: table {event['table']} blocks {event['blocks']}")

    @property
    def seen(self) -> dict[str, int]:
        """Newest epoch in which each worker was seen."""
        found: dict[str, int] = {}
        for pull in self.pulls:
            found[pull.worker] = max(found.get(pull.worker, 0), pull.after)
        return found

    def repeats(self, push: Push) -> bool:
        """A restarted worker does a clock again that its predecessor had finished on some shards: those do not get it twice."""
        name, begun = push.worker.split("@")[0], self.begun
        former = [key for key in begun if key.split("@")[0] == name and begun[key] < begun[push.worker]]
        return push.clock <= max((self.acknowledged[key] for key in former), default=-1)

    def voided(self, epochs: Sequence[Epoch]) -> set[tuple[str, int]]:
        """(worker, clock) whose pushes are void, because their gradients came from values that a rollback took back."""
        found = set()
        for number in (epoch.number for epoch in epochs if epoch.rollback):
            for worker in self.seen:
                mine = [pull for pull in self.pulls if pull.worker == worker and number > 1]
                last = [pull.clock for pull in mine if pull.before < number][-1:]
                clocks = [pull.clock for pull in mine if pull.after >= number]
                found |= {(worker, clock) for first in clocks[:1] for clock in (*last, first - 1, first)}
        return found

    @cached_property
    def begun(self) -> dict[str, float]:
        """When each worker incarnation started, in monotonic seconds."""
        return {worker: at for at, worker, _ in reversed(self.opened)}

    def is_acknowledged(self, push: Push) -> bool:
        return push.clock < self.acknowledged.get(push.worker, 0)


def newest_clocks(folder: Path) -> list[int]:
    """The clock that each worker incarnation has opened last. Quick: it is asked while they go on."""
    found = []
    for path in folder.glob("*.jsonl"):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
        found += [json.loads(line)["open"] for line in lines if line.startswith(b'{"open"') and line.endswith(b"\n")][-1:]
    return found


def read(folder: Path, job: Job) -> History:
    """The history in ``folder``; a last line that a killed worker did not finish is left out."""
    history = History()
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                history.add(job, path.stem, json.loads(line))
    return history
