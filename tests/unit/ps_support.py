"""Made-up jobs, epochs and pushes for the tests of one shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import scar.tables as tables
from scar.blocks import Ids
from scar.placement import BlockGroup, Epoch, Member, Role, Source
from scar.tables import Job, Table
from scar_ps.barrier import Sender
from scar_ps.blockstore import Contents, Part
from scar_ps.holdings import Load
from scar_ps.requests import Push
from scar_ps.shard import Shard

ME = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", "127.0.0.1:1")
OTHER = Member(Role.SHARD, "ps-1", "bbbbbbbbbbbb", "127.0.0.1:2")


def worker(rank: int, life: int = 0) -> Member:
    return Member(Role.WORKER, f"worker-{rank}", f"{life:06d}{rank:06d}")


def sender(rank: int, life: int = 0) -> Sender:
    member = worker(rank, life)
    return Sender(member.name, member.incarnation)


def job(*declared: Table, **options: Any) -> Job:
    """``options``: of :class:`scar.Job`."""
    return Job("test", declared or (Table("w", (6, 2)),), **options)


def ids(*numbers: int) -> Ids:
    return np.array(numbers, np.uint32)


def group(
    table: str, blocks: Ids, former: Member | None = OTHER, source: Source = Source.OBJECT, **watermark: int
) -> BlockGroup:
    """``watermark``: ``w0=3`` is worker-0's first incarnation."""
    named = {worker(int(name[1:])).key: push for name, push in watermark.items()}
    return BlockGroup(table, blocks, former.key if former else "", source, "objects/x", 0, named)


def first_epoch(spec: Job, owned: Mapping[str, Ids] | None = None, workers: int = 1, clock: int = 0) -> Epoch:
    """Epoch 1 with two shards: ours has ``owned`` (all blocks when None), the other one the rest; all at x(0)."""
    owners = {}
    for table in spec.tables:
        owner = np.full(table.blocks, 0 if owned is None else 1, np.uint16)
        if owned is not None:
            owner[owned[table.name]] = 0
        owners[table.name] = owner
    return Epoch(
        number=1,
        author="recovery",
        job=spec.name,
        shards=(ME, OTHER),
        workers=tuple(worker(rank) for rank in range(workers)),
        owners=owners,
        moved=tuple(group(table.name, np.arange(table.blocks, dtype=np.uint32), None, Source.INITIAL) for table in spec.tables),
        clock=clock,
    )


def next_epoch(
    epoch: Epoch,
    gained: Mapping[str, Ids] | None = None,
    lost: Mapping[str, Ids] | None = None,
    moved: Sequence[BlockGroup] = (),
    **changes: object,
) -> Epoch:
    """The epoch after: our shard has gained and lost these blocks; ``moved`` says where they come from."""
    owners = {name: owner.copy() for name, owner in epoch.owners.items()}
    for name, blocks in (gained or {}).items():
        owners[name][blocks] = 0
    for name, blocks in (lost or {}).items():
        owners[name][blocks] = 1
    after: Epoch = replace(epoch, number=epoch.number + 1, owners=owners, moved=tuple(moved), **changes)  # type: ignore[arg-type]
    return after


def load_initial(shard: Shard, spec: Job, loads: Sequence[Load]) -> None:
    for load in loads:
        shard.install(load, Contents(spec.table(load.table).initial(spec.seed, load.ids)))


def started(spec: Job, owned: Mapping[str, Ids] | None = None, workers: int = 1, clock: int = 0) -> tuple[Shard, Epoch]:
    """A shard in epoch 1 with everything loaded, and all workers settled."""
    shard, epoch = Shard(ME), first_epoch(spec, owned, workers, clock)
    load_initial(shard, spec, shard.adopt(epoch, spec))
    for rank in range(workers):
        shard.settle(sender(rank), 1)
    return shard, epoch


def part(shard: Shard, table: str, blocks: Ids | None, values: ArrayLike) -> Part:
    store = shard.holdings.tables[table]
    return Part(store, None if blocks is None else store.locate(blocks), np.array(values, store.values.dtype).reshape(-1))


def push(
    shard: Shard,
    rank: int,
    seq: int,
    blocks: Ids | None,
    values: ArrayLike,
    *,
    table: str = "w",
    clock: int = 0,
    push_id: int = 0,
    life: int = 0,
    epoch: int = 0,
) -> bool:
    """One push of one table; True when it was a duplicate."""
    parts = {table: part(shard, table, blocks, values)}
    return shard.push(Push(sender(rank, life), epoch or shard.number, seq, push_id or seq, clock, parts))


def values(shard: Shard, table: str = "w") -> list[float]:
    return shard.holdings.tables[table].values.tolist()  # type: ignore[no-any-return]


def every_rule(dtype: str = "float32") -> list[tables.Rule]:
    rules = [tables.assign(), tables.add()]
    if dtype.startswith("float"):
        rules += [tables.sgd(0.1), tables.momentum(0.1, 0.9), tables.adagrad(0.1), tables.adam(0.1)]
    return rules
