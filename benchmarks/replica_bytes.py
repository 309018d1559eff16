"""Bytes that a server sends in a clock: a full chain beside replicas of what workers lack, and beside slots
that a worker pulls along.

    python -m benchmarks.replica_bytes

One server's core is driven clock by clock by two workers, its batches are encoded as they go over the wire
and counted; no clock is read, so the figures are the same on every machine. Under BSP an update is a clock,
elsewhere a push (docs/strategies.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import scar
from scar.blocks import Ids
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.wire.codec import encode_chunk
from scar_ps.core import events, transfer_events
from scar_ps.core.actions import AnswerRequest, StartLoad
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.requests import Sender, StagedPush
from scar_ps.core.shard import Shard
from scar_ps.wire import pull_encoder, replication_stream

ROWS, WIDTH, WORKERS = 4096, 64, 2
TOUCHED = 205  # rows that a worker pulls and pushes in a clock, where it does not pull all: one in twenty
CLOCKS, COUNTED_FROM = 40, 8  # the first ones bring what the replica has never seen
SHARDS = tuple(Member(Role.SHARD, f"ps-{n}", f"{n:012d}", f"127.0.0.1:{n + 1}") for n in range(2))
CHAIN: dict[str, Any] = {"recovery": "sync-chain"}
MISSING: dict[str, Any] = {"sources": "workers", "replicas": 1, "replicate": "missing"}
SLOTS: dict[str, Any] = {"sources": "workers", "pull_slots": 1}
ROW = "{:<34} {:<4} {:>12} {:>12} {:>12}"
DrawRows = Callable[[np.random.Generator], Ids | None]


@dataclass(frozen=True)
class ReplicaCase:
    """``draw``: the rows of a worker's clock; None: whole tables."""

    name: str
    rule: scar.Rule
    draw: DrawRows
    consistency: str = "bsp"
    period: int = 1


def whole(_draw: np.random.Generator) -> None:
    return None


def uniform(draw: np.random.Generator) -> Ids:
    return np.sort(draw.choice(ROWS, TOUCHED, replace=False)).astype(np.uint32)


def popular(draw: np.random.Generator) -> Ids:
    """By Zipf's law, as words and films are."""
    weights = 1 / np.arange(1, ROWS + 1)
    drawn = draw.choice(ROWS, TOUCHED, replace=False, p=weights / weights.sum())
    return np.sort(drawn).astype(np.uint32)


CASES = (
    ReplicaCase("SGD, whole pulls", scar.sgd(0.1), whole),
    ReplicaCase("momentum, whole pulls", scar.momentum(0.1, 0.9), whole),
    ReplicaCase("Adam, whole pulls", scar.adam(0.1), whole),
    ReplicaCase("SGD, 1/20 of the rows, uniform", scar.sgd(0.1), uniform),
    ReplicaCase("SGD, 1/20 of the rows, Zipf", scar.sgd(0.1), popular),
    ReplicaCase("AdaGrad, 1/20 of the rows, Zipf", scar.adagrad(0.1), popular),
    ReplicaCase("SGD, whole pulls", scar.sgd(0.1), whole, "ssp"),
    ReplicaCase("SGD, whole pulls", scar.sgd(0.1), whole, "asp"),
    ReplicaCase("SGD, whole pulls, period 8", scar.sgd(0.1), whole, "asp", 8),
    ReplicaCase("Adam, whole pulls", scar.adam(0.1), whole, "asp"),
    ReplicaCase("SGD, 1/20 of the rows, Zipf", scar.sgd(0.1), popular, "asp"),
)


class CountedOwner:
    """A server that owns the whole table, its workers, and a neighbour that takes everything at once."""

    def __init__(self, job: scar.Job) -> None:
        self._job = job
        self._shard = Shard(SHARDS[0])
        self._state = self._shard.state
        self._seqs = [0] * WORKERS
        self.sent = 0
        for action in self._actions(events.EpochReceived(_first_epoch(job), job, complete=True)):
            if isinstance(action, StartLoad):
                load = action.load
                values = job.table(load.table).initial(job.seed, load.ids)
                self._ask(events.BlocksLoaded(load, BlockContents(values)))
        for rank in range(WORKERS):
            self._ask(events.WorkerSettled(_sender(rank), 1))

    def _actions(self, event: events.Event) -> Sequence[Any]:
        return self._shard.handle(event, 0.0)

    def _ask(self, event: events.Event) -> Any:
        answer = self._actions(event)[-1]
        assert isinstance(answer, AnswerRequest), answer
        return answer.result

    def count_slots(self) -> int:
        """Bytes that slots add to the answer to a pull of the whole table."""
        found = self._ask(events.PullRequested(_sender(0), 1, 0, [("w", None)], contents=True))
        without, with_slots = (
            sum(len(b"".join(one)) for one in pull_encoder.encode_pulled(found, slots=names))
            for names in ((), ("w",))
        )
        return with_slots - without

    def play_clock(self, clock: int, drawn: Sequence[Ids | None]) -> None:
        """All workers pull, then all push to what they pulled, then all end the clock."""
        bsp = self._job.consistency == "bsp"
        for rank, ids in enumerate(drawn):
            oldest = clock if bsp else 0
            self._ask(
                events.PullRequested(_sender(rank), 1, oldest, [("w", ids)], contents=True, clock=clock)
            )
        for rank, ids in enumerate(drawn):
            self._push(rank, clock, ids)
            self.ship()
        for rank in range(WORKERS):
            self._ask(events.ClockFinished(_sender(rank), 1, clock + 1, holds=True))
            self.ship()

    def _push(self, rank: int, clock: int, ids: Ids | None) -> None:
        store = self._state.ownership.tables["w"]
        self._seqs[rank] += 1
        at = None if ids is None else store.locate_blocks(ids)
        gradient = np.full((ROWS if ids is None else len(ids)) * WIDTH, 1e-3, np.float32)
        parts = {"w": StoreSlice(store, at, gradient)}
        self._ask(
            events.PushReceived(
                StagedPush(_sender(rank), 1, self._seqs[rank], self._seqs[rank], clock, parts)
            )
        )

    def ship(self) -> None:
        """What is due goes and arrives."""
        answer = self._actions(transfer_events.OutgoingRequested())[-1]
        if not isinstance(answer, AnswerRequest):
            return
        for batch in answer.result.batches:
            self.sent += sum(len(encode_chunk(one)) for one in replication_stream.encode_batch(batch))
            self._ask(transfer_events.BatchArrived(answer.result, batch))
        self._ask(transfer_events.OutgoingCompleted(answer.result, released=True))


def _sender(rank: int) -> Sender:
    return Sender(f"worker-{rank}", f"{rank:012d}")


def _first_epoch(job: scar.Job) -> Epoch:
    workers = tuple(Member(Role.WORKER, one.name, one.incarnation) for one in map(_sender, range(WORKERS)))
    every = np.arange(ROWS, dtype=np.uint32)
    moved = (BlockGroup("w", every, former_owner="", source=BlockSource.INITIAL),)
    return Epoch(1, "bench", job.name, SHARDS, workers, {"w": np.zeros(ROWS, np.uint16)}, moved)


def count_bytes(case: ReplicaCase, options: dict[str, Any]) -> float:
    """Bytes a clock."""
    table = scar.Table("w", (ROWS, WIDTH), rule=case.rule)
    options = {**options, "consistency": case.consistency, "staleness": int(case.consistency == "ssp")}
    job = scar.Job("bench", [table], shards=2, workers=WORKERS, **options)
    owner = CountedOwner(job)
    draw = np.random.default_rng(1)
    for clock in range(CLOCKS):
        if clock == COUNTED_FROM:
            owner.sent = 0
        owner.play_clock(clock, [case.draw(draw) for _ in range(WORKERS)])
    return owner.sent / (CLOCKS - COUNTED_FROM)


def count_slots(case: ReplicaCase) -> float | None:
    """Bytes a clock of slots with one worker's pulls; None: a worker that pulls them could not give them
    back.
    """
    if case.consistency != "bsp" or case.draw is not whole:
        return None
    table = scar.Table("w", (ROWS, WIDTH), rule=case.rule)
    return CountedOwner(scar.Job("bench", [table], shards=2, workers=WORKERS, **SLOTS)).count_slots()


def table_lines() -> Iterator[str]:
    """Kilobytes a clock, and their share of the full chain's."""
    yield ROW.format("table", "", "full chain", "missing", "pull_slots")
    for case in CASES:
        full = count_bytes(case, CHAIN | {"replica_period": case.period})
        missing = count_bytes(case, MISSING)
        slots = count_slots(case)
        shown = [f"{count / 1e3:.1f} {count / full:4.0%}" for count in (missing, slots) if count is not None]
        yield ROW.format(case.name, case.consistency, f"{full / 1e3:.1f}", *shown, *["-"] * (2 - len(shown)))


def main() -> int:
    for line in table_lines():
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
