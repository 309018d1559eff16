"""What the handlers of a shard share: its epoch, its blocks, its clock, and what waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from scar.event_log import EventRing
from scar.placement import Epoch, Member
from scar.tables import Job
from scar_ps.core.actions import ShardAction
from scar_ps.core.barrier import Barrier
from scar_ps.core.block_arrays import OnProgress
from scar_ps.core.block_store import NewLock, StoreSlice, no_lock
from scar_ps.core.bsp_buffer import BspBuffer
from scar_ps.core.checkpoint_round import CheckpointRound
from scar_ps.core.ownership import BlockOwnership
from scar_ps.core.pull_holders import PullHolders
from scar_ps.core.pull_marks import NotedPull, PullNotes
from scar_ps.core.push_sequences import PushSequences
from scar_ps.core.replica_store import ReplicaStore
from scar_ps.core.replication_chain import ReplicationChain
from scar_ps.core.requests import ShardCounts, ShardView
from scar_ps.core.traffic import TrafficCounter

ADOPTED_KEPT = 16  # epochs: a leader that stood still asks late for the clock of a failure


def no_progress() -> None:
    """Nobody wants to hear of it."""


class CoreState:
    """One life of one shard.

    ``progress`` is called during long work; ``new_lock`` makes the lock of a table, for those who read
    beside the thread that changes values.

    ``story``: the last events, with what decided. Another thread may read it, and ``job``, ``epoch``,
    ``number``, ``heard_epoch``, ``dismissed`` and ``view``.
    """

    def __init__(
        self,
        member: Member,
        progress: OnProgress = no_progress,
        new_lock: NewLock = no_lock,
        story: EventRing | None = None,
    ) -> None:
        self.member = member
        self.progress = progress
        self._new_lock = new_lock
        self.job: Job | None = None
        self.epoch: Epoch | None = None
        self.dismissed = ""  # why this shard may never serve again; empty: it may
        self.heard_epoch = 0  # newest epoch that somebody spoke of
        self.adopted: deque[tuple[int, int]] = deque(maxlen=ADOPTED_KEPT)  # epoch, open clock when it came
        self.gained_epoch = 0  # newest epoch in which this shard gained blocks
        self.proven_clock = 0  # every worker has finished those below: blocks that moved contain them (BSP)
        self.view = ShardView()
        self.counts = ShardCounts()
        self.barrier = Barrier()
        self.sequences = PushSequences()
        self.now = 0.0  # when the event being handled happened
        self.actions: list[ShardAction] = []  # for the shell, beside the answer
        self.story = story or EventRing()
        self._clear_blocks()

    def _clear_blocks(self) -> None:
        self.ownership = BlockOwnership(self.member.key, self.progress, self._new_lock)
        self.bsp_buffer = BspBuffer()
        self.round = CheckpointRound()
        self.chain = ReplicationChain(self.member.key)
        self.replicas = ReplicaStore(self.member.key)
        self.pull_notes = PullNotes()
        self.pull_holders = PullHolders()
        self.traffic = TrafficCounter()

    @property
    def number(self) -> int:
        """Newest epoch adopted; 0: none."""
        return self.epoch.number if self.epoch else 0

    @property
    def clock(self) -> int:
        """The open clock: all clocks below are closed."""
        return self.barrier.clock

    @property
    def announced_clock(self) -> int:
        """The open clock as others may hear of it: what they believe closed is not lost with this shard."""
        return self.chain.announced_update(self.clock) if self.is_bsp else self.clock

    @property
    def ranked_workers(self) -> list[str]:
        """Names in rank order."""
        return list(self.epoch.ranks) if self.epoch else []

    @property
    def awaited_workers(self) -> list[str]:
        """Names of those without whom no clock closes."""
        if self.epoch is None or (self.job is not None and self.job.worker_strategy.waits):
            return self.ranked_workers
        return [member.name for member in self.epoch.workers]

    @property
    def is_bsp(self) -> bool:
        return self.job is not None and self.job.consistency == "bsp"

    @property
    def is_stalled(self) -> bool:
        """Nothing may change: a checkpoint is being made on which training waits."""
        return self.round.underway and self.job is not None and self.job.strategy.stalls

    def publish_view(self) -> None:
        """Let other threads see the epoch and the stores as they are now."""
        # a block that was put back is owed what belongs to the clocks that workers keep, and to the next
        pushes = 2 + (self.job.strategy.kept_clocks if self.job is not None else 0)
        limit = pushes * len(self.ranked_workers) * self.ownership.value_bytes
        number = 0 if self.dismissed else self.number
        self.view = ShardView(number, dict(self.ownership.tables), limit)

    def note_pull(self, worker: str, part: StoreSlice, clock: int) -> None:
        """A worker (its key) has pulled settled blocks: BSP: of the open clock, else in its own."""
        marks = part.store.marks
        if marks is not None and marks.holdable and part.rows is None:
            known = self.clock if self.is_bsp else clock
            self.pull_notes.add(worker, NotedPull(known, part.store.table.name, part.ids))

    def confirm_pulls(self, worker: str, clock: int) -> None:
        """The worker can give back what it pulled in this clock."""
        for pull in self.pull_notes.take(worker, clock):
            store = self.ownership.tables[pull.table]
            at = store.find_blocks(pull.ids)
            if store.marks is not None and self.is_bsp:
                store.marks.pulled[at[at >= 0]] = clock
            elif len(pull.ids) == len(store):  # nothing was gained since
                self.pull_holders.confirm(worker, pull.table, clock)
        if self._counts_holders:
            self._expose_unheld()

    def note_pushed(self, worker: str, tables: Iterable[str], clock: int) -> None:
        """SSP, ASP: this worker (its key) pushes to these tables in this clock of its own."""
        if self._counts_holders:
            self.pull_holders.note_push(worker, tables, clock)
            self._expose_unheld()

    def forget_holders(self) -> None:
        """SSP, ASP: blocks came from elsewhere, or a worker left. Replicas get all that has changed."""
        if self._counts_holders:
            self.pull_holders.clear()
            self._expose_unheld()
            self.chain.urgent = True

    @property
    def _counts_holders(self) -> bool:
        return self.job is not None and self.job.strategy.missing and not self.is_bsp

    def _expose_unheld(self) -> None:
        """Replicas need what not everybody holds who pushes to it."""
        for name, store in self.ownership.tables.items():
            if store.marks is not None:
                store.marks.expose_all(not (store.marks.holdable and self.pull_holders.hold(name)))

    def dismiss(self, reason: str) -> None:
        """This shard may never serve again: drop all blocks."""
        self.dismissed = reason
        self._clear_blocks()
        self.publish_view()
