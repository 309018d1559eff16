"""Brings what has changed to the next replica: one thread, one outgoing batch after the other."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

from scar.errors import DeadlineExceeded, NotServing, OutOfOrder, ScarError
from scar.placement import Member
from scar.v1 import ps_pb2
from scar.wire.link_pool import ShardLinks
from scar.wire.shard_link import ShardLink
from scar.wire.timing import TIMING
from scar.wire.transport import Backoff
from scar_ps import metrics
from scar_ps.apply_thread import ApplyThread
from scar_ps.core.core_state import CoreState
from scar_ps.core.replica_store import ReplicationBatch
from scar_ps.core.replication_chain import OutgoingBatch
from scar_ps.core.transfer_events import BatchArrived, BatchFailed, OutgoingCompleted, OutgoingRequested
from scar_ps.wire import replication_stream

WAIT_SECONDS = 1.0  # for something to send, before it is looked again
IDLE_SECONDS = 2 * TIMING.look_every  # between looks whether there is a next replica
STEP_SECONDS = 10.0  # for the apply thread
SHIP_SECONDS = 30.0  # for one batch; a new epoch ends it
LOOK_SECONDS = 0.05  # between looks at the epoch meanwhile
RELEASE_SECONDS = 2.0

_log = logging.getLogger(__name__)


class ReplicaSender:
    """Of one shard."""

    def __init__(self, state: CoreState, apply_thread: ApplyThread) -> None:
        self._state = state
        self._apply_thread = apply_thread
        self._links = ShardLinks()
        self._pool = ThreadPoolExecutor(1, "ship")

    def run(self, stopped: Event) -> None:
        """Body of the thread."""
        backoff = Backoff(first=0.02, most=1.0)
        while not stopped.is_set():
            if self._state.chain.next_replica is None:
                stopped.wait(IDLE_SECONDS)
                continue
            try:
                arrived = self._deliver(self._apply_thread.call(OutgoingRequested(), WAIT_SECONDS))
            except DeadlineExceeded:  # nothing to send, or the apply thread had no time to hear how it went
                continue
            except ScarError:  # what it does not know of goes again
                arrived = False
            if arrived:
                backoff.reset()
            else:
                stopped.wait(backoff.next())
        self._links.close()
        self._pool.shutdown(wait=False)

    def _deliver(self, outgoing: OutgoingBatch) -> bool:
        """Send it; what fails is done again with the next one."""
        sent = [self._send_batch(outgoing, batch) for batch in outgoing.batches]
        if not all(sent):
            return False
        answers = [self._release_replica(outgoing.epoch, member) for member in outgoing.release]
        released = all(answers)
        self._apply_thread.call(OutgoingCompleted(outgoing, released), STEP_SECONDS)
        return released

    def _send_batch(self, outgoing: OutgoingBatch, batch: ReplicationBatch) -> bool:
        try:
            self._transfer(outgoing.target, batch)
        except ScarError as error:
            gap = isinstance(error, OutOfOrder)
            reason = f"{outgoing.target.key} lacks copies of {batch.block_count} blocks: {error.message}"
            _log.info("ship.failed", extra={"reason": reason})
            self._apply_thread.call(BatchFailed(batch, gap, reason), STEP_SECONDS)
            return False
        metrics.REPLICATED_BYTES.inc(batch.bytes)
        self._apply_thread.call(BatchArrived(outgoing, batch), STEP_SECONDS)
        return True

    def _transfer(self, target: Member, batch: ReplicationBatch) -> None:
        """Returns when the target has it.

        Raises what it answers, :class:`NotServing` when an epoch has come meanwhile.
        """
        link = self._connect(target)
        sent = self._pool.submit(link.ship, replication_stream.encode_batch(batch), SHIP_SECONDS)
        while not wait([sent], LOOK_SECONDS).done:
            # the target may be dead: nobody waits for its answer
            if self._state.view.epoch != batch.epoch:
                self._links.drop(target.key)
                raise NotServing(f"epoch {batch.epoch} is over")
        sent.result()

    def _release_replica(self, epoch: int, member: Member) -> bool:
        """Copies of our blocks that are not in our chain are of no use any more. False: say it again."""
        link = self._connect(member)
        request = ps_pb2.ReleaseRequest(epoch=epoch, owner=self._state.member.key)
        try:
            link.call(link.control.Release, request, RELEASE_SECONDS)
        except ScarError as error:
            _log.info("release.failed", extra={"shard": member.key, "reason": error.message})
            return False
        return True

    def _connect(self, member: Member) -> ShardLink:
        """A connection; those to shards that left are closed."""
        epoch = self._state.epoch
        known = {shard.key for shard in epoch.shards} if epoch is not None else set()
        self._links.retain(known)
        return self._links.connect(member)
