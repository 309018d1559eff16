"""What outlives a shard that dies, beside the checkpoint: what a worker pulled last, and what the next shard
keeps.

    copies = SurvivingCopies(job, epoch, clock, tables)  # all pulled whole while ``clock`` was open
    copies.replicate(dying, survivor)                    # what workers could not give back
    copies.offers(lost), copies.replicas(...)            # for the draft of the next epoch
    copies.send_blocks(survivor, after)                  # what that epoch has the worker send

What a worker can hold is decided by ``scar._client.core.held_copies``, what goes to the next shard by the
dying shard itself (``scar_ps.core.pull_marks``, ``replication_chain``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scar._client.core.held_copies import HeldCopies
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar.blocks import Ids
from scar.errors import Internal
from scar.placement import Epoch, Member, Role
from scar.tables import Job
from scar_ps.core.actions import AnswerRequest, RefuseRequest, ShardAction
from scar_ps.core.block_store import BlockStore
from scar_ps.core.events import ClockFinished, CopyReceived, Event, PullRequested, WorkerSettled
from scar_ps.core.requests import Sender
from scar_ps.core.shard import Shard
from scar_ps.core.transfer_events import BatchReceived, OutgoingRequested, ReplicasClaimed
from scar_ps.wire.tensor_parts import contents_from_parts, contents_parts
from scar_recovery.core.block_sources import ReplicaCopy, WorkerOffer

WORKER = Member(Role.WORKER, "worker-0", "living")
SENDER = Sender(WORKER.name, WORKER.incarnation)


class SurvivingCopies:
    """Of one failure. ``epoch``: before it; ``tables``: all values when ``clock`` was open."""

    def __init__(self, job: Job, epoch: Epoch, clock: int, tables: Mapping[str, BlockStore]) -> None:
        self._job = job
        self._epoch = epoch
        self._clock = clock
        self._held = HeldCopies(job, WORKER.key)
        self._held.follow_epoch(epoch, clock)
        if job.strategy.asks_workers:
            for store in tables.values():
                self._pull_table(store)

    def _pull_table(self, store: BlockStore) -> None:
        pulled = PullBuffer(store.table)
        if self._held.can_hold(pulled):
            everything = np.arange(len(store))
            pulled.fill_blocks(everything, store.values.copy())
            self._held.ask_slots(pulled)
            if pulled.slots is not None:
                pulled.slots.add_blocks(everything, contents_parts(store.copy_blocks(everything)))
            for index in range(len(self._epoch.shards)):
                owned = self._epoch.owned(store.table.name, index).astype(np.int64)
                pulled.parts.append(PulledPart(owned, self._epoch.number, self._clock, {}))
            self._held.keep_pull(pulled, self._clock)

    def replicate(self, dying: Shard, survivor: Shard) -> None:
        """The clock before this one closes, after whole pulls; what is missing elsewhere is shipped."""
        number = self._epoch.number
        for shard in (dying, survivor):
            ask_shard(shard, WorkerSettled(SENDER, number))
        whole = [(table.name, None) for table in self._job.tables]
        ask_shard(dying, PullRequested(SENDER, number, 0, whole, contents=True))
        ask_shard(dying, ClockFinished(SENDER, number, self._clock, holds=True))
        for batch in ask_shard(dying, OutgoingRequested())[1].batches:
            ask_shard(survivor, BatchReceived(batch))

    def offers(self, lost: Mapping[str, Ids]) -> list[WorkerOffer]:
        """What the worker answers when it is asked for these blocks."""
        return [WorkerOffer(WORKER, state) for state in self._held.offer_blocks(lost)]

    def replicas(self, survivor: Shard, dead: Member, lost: Mapping[str, Ids]) -> list[ReplicaCopy]:
        """What the survivor keeps of them."""
        claim = ReplicasClaimed(self._epoch.number, [dead.key], list(lost.items()))
        keeper = survivor.state.member
        return [ReplicaCopy(keeper, state) for state in ask_shard(survivor, claim)[1]]

    def send_blocks(self, shard: Shard, after: Epoch) -> None:
        """The worker sends what the epoch has it send."""
        for owed in self._held.follow_epoch(after, self._clock):
            state, contents = owed.state, contents_from_parts(owed.gather_parts())
            sent = CopyReceived(SENDER, owed.epoch, state.table, state.ids, state.clock, contents)
            flaw = ask_shard(shard, sent)[1]
            if flaw:
                raise Internal(f"blocks of table {state.table} were not taken: {flaw}")


def ask_shard(shard: Shard, event: Event) -> tuple[list[ShardAction], Any]:
    """What the shard wants done, and its answer. Raises what it refuses with."""
    *work, answer = shard.handle(event, now=0.0)
    if isinstance(answer, RefuseRequest):
        raise answer.error
    if not isinstance(answer, AnswerRequest):
        raise Internal(f"{type(event).__name__} has to wait")
    return work, answer.result
