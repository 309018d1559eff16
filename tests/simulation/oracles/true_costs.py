"""What failures cost in truth, computed from the memory of the dead at the moment when an epoch repairs them.

The ledger's ||delta||, where it is called exact, must be this; and partial recovery never costs more than if
everything had gone back to the same checkpoint (G9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar.blocks import Array
from scar.placement import BlockGroup, BlockSource, Epoch
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from tests.simulation.oracles.lives import HeldBlocks

CLOSE = 1e-6  # relative: norms are summed in float64 in another order

Holders = Mapping[str, HeldBlocks]  # by member key
ReadGroup = Callable[[BlockGroup], Array | None]  # what a group got, packed; None: nobody can know


@dataclass(frozen=True)
class TrueCost:
    """Of one epoch that put blocks back. Squares of norms; -1: nobody can know.

    ``delta``: what was restored minus what was lost; ``full``: the same for all blocks of the job, had they
    all gone back to the same checkpoint; ``clock``: the highest that a dead owner had open; ``restored``: the
    highest that something restored is of. ``sure``: every owner crashed with it while it might serve.
    """

    epoch: int
    failure: int
    delta: float
    full: float
    clock: int
    restored: int
    sure: bool


def measure_cost(
    job: Job, epoch: Epoch, holders: Holders, read: ReadGroup, saved: Mapping[str, Array]
) -> TrueCost:
    """``holders``: what every shard has, or had when it died; ``saved``: the whole checkpoint that the epoch
    names, by table.
    """
    lost = [group for group in epoch.moved if group.former_owner and group.source is not BlockSource.DONOR]
    parts = [_group_distance(job, group, holders, read) for group in lost]
    former = [holders[group.former_owner] for group in lost if group.former_owner in holders]
    return TrueCost(
        epoch=epoch.number,
        failure=epoch.failure,
        delta=sum(parts) if min(parts, default=0.0) >= 0 else -1.0,
        full=_full_distance(job, holders, saved),
        clock=max((one.clock for one in former), default=0),
        restored=max((group.clock for group in lost if group.source is BlockSource.OBJECT), default=0),
        sure=len(former) == len(lost) and all(one.crashed for one in former),
    )


def _group_distance(job: Job, group: BlockGroup, holders: Holders, read: ReadGroup) -> float:
    """-1: nobody can know it."""
    owner = holders.get(group.former_owner)
    held = owner.tables.get(group.table) if owner is not None else None
    restored = read(group)
    if held is None or restored is None:
        return -1.0
    starts = job.table(group.table).layout.take(group.ids.astype(np.int64)).starts
    total = 0.0
    for at, block in enumerate(group.ids.tolist()):
        lost = held.find(block)
        if lost is None:
            return -1.0
        total += _squared(restored[starts[at] : starts[at + 1]], lost)
    return total


def _full_distance(job: Job, holders: Holders, saved: Mapping[str, Array]) -> float:
    """Of the newest value of each block that somebody has; of one that nobody has nothing is counted."""
    total = 0.0
    for table in job.tables:
        starts = table.layout.starts
        for block in range(table.blocks):
            values = _newest_value(holders, table.name, block)
            if values is not None:
                total += _squared(saved[table.name][starts[block] : starts[block + 1]], values)
    return total


def _newest_value(holders: Holders, table: str, block: int) -> Array | None:
    """Of the owner of the newest epoch."""
    found = None
    newest = -1
    for owner in holders.values():
        held = owner.tables.get(table)
        values = held.find(block) if held is not None else None
        if values is not None and owner.epoch > newest:
            newest = owner.epoch
            found = values
    return found


def _squared(one: Array, other: Array) -> float:
    return float(np.square(np.subtract(one, other, dtype=np.float64)).sum())


def check_costs(job: Job, costs: Mapping[int, TrueCost], ledger: Sequence[FailureRecord]) -> list[str]:
    """Each record of the ledger against the truth of the epoch that repaired it."""
    found = []
    for record in ledger:
        cost = costs.get(record.epoch)
        if cost is not None and record.sources and cost.failure != record.number:
            found.append(f"failure {record.number} names epoch {record.epoch}, which is of {cost.failure}")
        if cost is None or not cost.sure or cost.delta < 0:
            continue
        truth = math.sqrt(cost.delta)
        if record.delta_exact and not math.isclose(record.delta_norm, truth, rel_tol=CLOSE, abs_tol=CLOSE):
            found.append(
                f"failure {record.number} calls ||delta|| = {record.delta_norm:.6g} exact, and the memory of"
                f" the dead makes it {truth:.6g}"
            )
        if job.consistency == "bsp" and cost.restored > cost.clock:
            found.append(
                f"failure {record.number} put clock {cost.restored} back, and the dead were at {cost.clock}"
            )
    return found


def check_partial(cost: TrueCost) -> list[str]:
    """G9."""
    if cost.delta < 0 or cost.delta <= cost.full * (1 + CLOSE) + CLOSE:
        return []
    partial = math.sqrt(cost.delta)
    full = math.sqrt(cost.full)
    return [f"epoch {cost.epoch}: partial recovery cost {partial:.6g}, a full one {full:.6g}"]
