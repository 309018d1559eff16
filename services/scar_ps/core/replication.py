"""A shard in its chains: what it sends to the next replica, what it keeps (docs/protocol.md §11).

The bookkeeping is in :mod:`scar_ps.core.replication_chain` and :mod:`scar_ps.core.replica_store`; here it
meets the shard's epoch, tables and watermark.
"""

from __future__ import annotations

from scar.blocks import BlockState
from scar.errors import NotServing
from scar.placement import Epoch
from scar.tables import Job
from scar_ps.core.admission import Admission
from scar_ps.core.core_state import CoreState
from scar_ps.core.replica_store import ReplicationBatch
from scar_ps.core.replication_chain import OutgoingBatch
from scar_ps.core.requests import MustWait
from scar_ps.core.transfer_events import (
    BatchArrived,
    BatchFailed,
    BatchReceived,
    OutgoingCompleted,
    OutgoingRequested,
    ReplicasClaimed,
    ReplicasReleased,
)


class ReplicationHandler:
    """Of one shard. ``problem``: why the next replica falls behind; empty: it does not."""

    def __init__(self, state: CoreState, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self.problem = ""

    # --- as an owner
    # ---------------------------------------------------------------------------------------------------

    def next_outgoing(self, _: OutgoingRequested) -> OutgoingBatch:
        """What has to go to the next replica. Raises :class:`MustWait` when nothing has to."""
        state = self._state
        epoch = state.epoch
        chain = state.chain
        if epoch is None or state.dismissed or chain.next_replica is None or not chain.is_due:
            raise MustWait("")  # nothing that a person should hear of
        for batch in chain.unanswered:  # nobody has said what became of it: as if it had not arrived
            self._send_again(batch, gap=False)
        watermark = state.sequences.watermark
        state.ownership.forget_overtaken(watermark, [worker.key for worker in epoch.workers])
        return chain.next_outgoing(epoch, state.ownership, state.replicas, watermark, state.clock)

    def record_arrival(self, event: BatchArrived) -> None:
        self._state.chain.record_arrival(event.outgoing, event.batch)

    def record_failure(self, event: BatchFailed) -> None:
        self.problem = event.reason
        self._state.story.note(owner=event.batch.owner)
        self._send_again(event.batch, event.gap)

    def _send_again(self, batch: ReplicationBatch, gap: bool) -> None:
        state = self._state
        replica = state.replicas.by_owner.get(batch.owner)
        stores = replica.stores if replica is not None else {}
        if batch.owner == state.member.key:
            stores = state.ownership.tables or stores
        state.chain.record_failure(batch, stores, gap)

    def record_completion(self, event: OutgoingCompleted) -> None:
        if event.released:
            self.problem = ""
        if event.outgoing.epoch == self._state.number:
            self._state.chain.record_completion(event.outgoing, event.released)

    # --- as a replica
    # --------------------------------------------------------------------------------------------------

    def receive_batch(self, event: BatchReceived) -> None:
        """Raises what :meth:`ReplicaStore.receive_batch` raises, and errors about the epoch."""
        batch = event.batch
        job, epoch = self._require_job(batch.epoch)
        self._state.replicas.receive_batch(job, epoch, batch)
        if self._state.chain.forwards(batch.owner):
            self._state.chain.urgent = True

    def claim_blocks(self, event: ReplicasClaimed) -> list[BlockState]:
        """Blocks of dead owners that are kept here, as they will stay until the next epoch."""
        self._require_job(event.epoch)
        found = self._state.replicas.claim_blocks(event.dead, event.wanted)
        self._state.story.note(blocks=sum(len(state.ids) for state in found))
        return found

    def release_owner(self, event: ReplicasReleased) -> None:
        job, epoch = self._require_job(event.epoch)
        self._state.replicas.release_owner(job, epoch, event.owner)
        self._state.story.note(kept=len(self._state.replicas))

    def _require_job(self, number: int) -> tuple[Job, Epoch]:
        epoch = self._admission.check_epoch(number)
        if self._state.job is None:
            raise NotServing("this shard has no job yet")
        return self._state.job, epoch
