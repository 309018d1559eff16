"""Two shards that are each other's next replica, for tests of replication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scar.blocks import BlockState, Ids
from scar.placement import BlockGroup, BlockSource, Member
from scar.tables import Job, Table, adam, rows
from scar.wire.codec import decode_chunk, encode_chunk
from scar_ps.core.replication_chain import OutgoingBatch
from scar_ps.core.requests import MustWait
from scar_ps.wire import replication_stream
from tests.unit.ps_support import (
    ME,
    OTHER,
    DrivenShard,
    first_epoch,
    ids,
    load_initial,
    sender,
)

TABLES = (Table("w", (6, 2)), Table("a", 5, rule=adam(0.1), blocks=rows(2)))


MINE = {"w": ids(0, 2, 4), "a": ids(0)}


THEIRS = {"w": ids(1, 3, 5), "a": ids(1, 2)}


def job(consistency: str = "asp", **options: object) -> Job:
    return Job("test", TABLES, consistency=consistency, **({"recovery": "sync-chain"} | options))  # type: ignore[arg-type]


class Pair:
    """Two shards that are each other's next replica; what one sends arrives when the test says so."""

    def __init__(self, spec: Job, workers: int = 1, owned: Mapping[str, Ids] = MINE) -> None:
        self.job, self.epoch = spec, first_epoch(spec, owned, workers)
        self.shards = {member.key: DrivenShard(member) for member in (ME, OTHER)}
        self.copies = self.shards
        for shard in self.shards.values():
            load_initial(shard, spec, shard.adopt(self.epoch, spec))
            for rank in range(workers):
                shard.settle(sender(rank), 1)

    @property
    def me(self) -> DrivenShard:
        return self.shards[ME.key]

    @property
    def other(self) -> DrivenShard:
        return self.shards[OTHER.key]

    def load(self, owner: Member = ME) -> OutgoingBatch:
        return self.copies[owner.key].load()

    def bring(self, owner: Member, outgoing: OutgoingBatch) -> None:
        """Over the wire, and its answer back."""
        for sent in outgoing.batches:
            wire = map(decode_chunk, map(encode_chunk, replication_stream.encode_batch(sent)))
            self.copies[outgoing.target.key].receive(replication_stream.decode_batch(wire, self.job))
            self.copies[owner.key].arrived(outgoing, sent)
        for member in outgoing.release:
            self.copies[member.key].release(outgoing.epoch, owner.key)
        self.copies[owner.key].complete(outgoing, released=True)

    def ship(self, owner: Member = ME) -> OutgoingBatch:
        outgoing = self.load(owner)
        self.bring(owner, outgoing)
        return outgoing

    def kept(self, **wanted: list[int]) -> list[BlockState]:
        """What the other shard says when it is asked for these blocks of ours, which has died."""
        asked = [(table, ids(*blocks)) for table, blocks in wanted.items()]
        return self.copies[OTHER.key].claim(self.epoch.number, [ME.key], asked)

    def take_over(self, kept: list[BlockState]) -> None:
        """The epoch in which the other shard owns what it kept."""
        owners = {name: np.zeros_like(owner) for name, owner in self.epoch.owners.items()}
        groups = [
            BlockGroup(
                k.table,
                k.ids,
                former_owner=ME.key,
                source=BlockSource.REPLICA,
                clock=k.clock,
                watermark=k.watermark,
            )
            for k in kept
        ]
        self.epoch = replace(
            self.epoch,
            number=2,
            shards=(OTHER,),
            owners=owners,
            moved=tuple(groups),
            fenced=(ME.incarnation,),
        )
        assert self.other.adopt(self.epoch, self.job) == []


def deliver(copies: Mapping[str, DrivenShard], sender_key: str, target: str) -> None:
    try:
        outgoing = copies[sender_key].load()
    except MustWait:
        return
    assert outgoing.target.key == target
    for batch in outgoing.batches:
        copies[target].receive(batch)
        copies[sender_key].arrived(outgoing, batch)
