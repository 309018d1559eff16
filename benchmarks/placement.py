"""What placement costs by blocks and shards, without a cluster: epochs, and who reads them.

python -m benchmarks.placement [--blocks 10000 100000 1000000] [--shards 4 1000]

One shard, ten, or half of them die; what was lost comes back from x(0), in one group for each of the dead.
Seconds are of a processor, the shortest of three.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

import scar
from scar._client.core.rerouting import AckedPushes, MovedBlocks
from scar.placement import Epoch, Member, Role
from scar.tables import Job
from scar.wire.epoch_messages import epoch_from_proto, epoch_to_proto
from scar_ps.core.ownership import BlockOwnership
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import EpochIntent
from scar_runtime.store.records import encode_record

REPEAT = 3
WORKER = Member(Role.WORKER, "worker-0", "0" * 12, "10.1.0.0:5000")


@dataclass
class PlacementCost:
    """``died``: shards; 0: the first epoch. ``message``, ``record``: bytes. Seconds: ``plan`` (coordinator)
    and ``write`` of the record; ``shard``: to find what it gains; ``worker``: what it has to send again.
    """

    blocks: int
    shards: int
    died: int
    message: int = 0
    record: int = 0
    plan: float = 0.0
    write: float = 0.0
    shard: float = 0.0
    worker: float = 0.0


def make_job(blocks: int) -> Job:
    table = scar.Table("clicks", (blocks, 1), rule=scar.sgd(1.0))
    return scar.Job("placement", [table], checkpoint=scar.Checkpoint("full", period=1))


def make_shards(count: int) -> tuple[Member, ...]:
    return tuple(
        Member(Role.SHARD, f"ps-{number}", f"{number:012x}", f"10.0.{number // 256}.{number % 256}:5000")
        for number in range(count)
    )


def first_intent(job: Job, shards: tuple[Member, ...]) -> EpochIntent:
    return EpochIntent(1, "author", job, None, shards, (WORKER,), "start")


def shortest(action: Callable[[], object]) -> float:
    """Seconds of this processor."""
    least = math.inf
    for _ in range(REPEAT):
        began = time.process_time()
        action()
        least = min(least, time.process_time() - began)
    return least


def measure_placement(blocks: int, shards: int, died: int) -> PlacementCost:
    """The first epoch, or the one after so many deaths."""
    cost = PlacementCost(blocks, shards, died)
    job = make_job(blocks)
    members = make_shards(shards)
    first = first_intent(job, members)
    before = draft_epoch(first, NothingSaved())
    intent = first
    if died:
        dead = tuple(member.key for member in members[:died])
        intent = replace(first, number=2, previous=before, shards=members[died:], cause="failure", dead=dead)
    cost.plan = shortest(lambda: draft_epoch(intent, NothingSaved()))
    epoch = draft_epoch(intent, NothingSaved())
    message = epoch_to_proto(epoch)
    cost.message = message.ByteSize()
    cost.record = len(encode_record(message))
    cost.write = shortest(lambda: encode_record(epoch_to_proto(epoch)))
    read = epoch_from_proto(message)
    cost.shard = _measure_shard(job, before if died else None, read)
    cost.worker = _measure_worker(job, read)
    return cost


def _measure_shard(job: Job, before: Epoch | None, epoch: Epoch) -> float:
    """Of the last shard: which blocks are its own, and where they come from, without their values."""
    shard = BlockOwnership(epoch.shards[-1].key, lambda: None)
    if before is not None:
        shard.adopt_epoch(before, job)
        shard.settle_blocks()
    return shortest(lambda: shard.covers_epoch(epoch, job))


def _measure_worker(job: Job, epoch: Epoch) -> float:
    pushes = AckedPushes(job)
    every = np.arange(job.blocks, dtype=np.uint32)
    pushes.release_blocks(job.tables[0].name, every, 7)

    def follow() -> None:
        MovedBlocks(job, epoch, WORKER.key)
        pushes.follow_epoch(epoch, WORKER.key)
        epoch.split(job.tables[0].name, every)

    return shortest(follow)


def show_costs(found: Sequence[PlacementCost]) -> Grid:
    grid = Grid(title="Placement by blocks")
    for name in ("blocks", "shards", "dead", "message", "record", "plan", "write", "a shard", "a worker"):
        grid.add_column(name, justify="right")
    for one in found:
        grid.add_row(
            f"{one.blocks:,}",
            f"{one.shards:,}",
            f"{one.died:,}",
            *(f"{size / 1e3:,.0f} kB" for size in (one.message, one.record)),
            *(f"{1e3 * seconds:,.1f} ms" for seconds in (one.plan, one.write, one.shard, one.worker)),
        )
    return grid


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Bytes and seconds of epochs, by blocks and shards.")
    parser.add_argument("--blocks", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--shards", type=int, nargs="+", default=[4, 1000])
    options = parser.parse_args(arguments)
    found = [
        measure_placement(blocks, shards, died)
        for blocks in options.blocks
        for shards in options.shards
        for died in sorted({0, 1, min(10, shards // 2), shards // 2})
    ]
    Console(width=140).print(show_costs(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
