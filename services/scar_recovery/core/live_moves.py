"""Live moves of blocks: when the next slice is due, and which shards are saved before. Pure."""

from __future__ import annotations

from scar.placement import Epoch, Member
from scar.tables import Job
from scar_recovery.core.actions import MoveBlocks, SaveShard
from scar_recovery.core.epoch_intent import FrozenTransfer
from scar_recovery.core.events import BlocksMoved
from scar_recovery.core.membership import Membership
from scar_recovery.core.rebalance import plan_transfers
from scar_recovery.core.settings import PlannerSettings

# seconds after a move that failed: at first, and when it fails again and again
MOVE_RETRY = 1.0
MOVE_RETRY_MOST = 60.0
# between slices, training has as long for itself as the last one kept it waiting, times this
REST = 1.0
NEVER = float("inf")


class LiveMoves:
    """Moves of one job under one leader, one slice at a time."""

    def __init__(self, settings: PlannerSettings, members: Membership) -> None:
        self._settings = settings
        self._members = members
        self.in_progress = False
        # of a move that has ended; what it froze waits for an epoch
        self.moved: tuple[FrozenTransfer, ...] | None = None
        self._not_before = 0.0
        self._begun = NEVER  # when the slice began that is not served yet; infinity: none
        self._rest_until = 0.0
        self._failed_in_a_row = 0  # each attempt costs an epoch, whether anything moves or not
        # epoch and leavers for which there is nothing to move
        self._balanced: tuple[int, frozenset[str]] = (0, frozenset())
        self._saving: set[str] = set()  # keys of shards that go and are saved first; no block moves meanwhile
        self._save_begun: set[str] = set()

    def adopt_epoch(self) -> None:
        """A new epoch ends every freeze."""
        self.in_progress = False
        self.moved = None

    def move_ended(self, event: BlocksMoved, now: float) -> None:
        """What is frozen waits for an epoch in any case."""
        self.moved = event.done
        self._failed_in_a_row = 0 if event.done or event.complete else self._failed_in_a_row + 1
        if not event.complete:
            pause = MOVE_RETRY * 2 ** max(0, self._failed_in_a_row - 1)
            self._not_before = now + min(pause, MOVE_RETRY_MOST)

    def epoch_loaded(self, now: float) -> None:
        """What has moved is served where it is now, so training goes on."""
        if self._begun < now:
            self._rest_until = now + REST * (now - self._begun)
        self._begun = NEVER

    def unsaved_leavers(self, epoch: Epoch) -> list[Member]:
        """Shards that go and are not saved yet: they may have too little time to give everything away."""
        if not self._settings.flush:
            return []
        # the dead cannot be asked
        leavers = self._members.departures.keys() - {failure.key for failure in self._members.failures}
        return [shard for shard in epoch.shards if shard.key in leavers - self._save_begun]

    def save_leavers(self, epoch: Epoch) -> tuple[SaveShard, ...]:
        """Have shards that go saved, before their blocks move."""
        leaving = self.unsaved_leavers(epoch)
        self._save_begun |= {shard.key for shard in leaving}
        self._saving |= {shard.key for shard in leaving}
        return tuple(SaveShard(shard) for shard in leaving)

    def stop_waiting_for(self, key: str) -> None:
        """What would be missed most of this shard is saved, or nothing more of it can be."""
        self._saving.discard(key)

    def next_due(self, epoch: Epoch) -> float:
        """When moves may be looked for, once all is quiet; infinity: there is nothing to move."""
        if self.in_progress or self._saving or self._balanced == (epoch.number, self._leaving_shards(epoch)):
            return NEVER
        if self._leaving_shards(epoch):  # they may have little time
            return self._not_before
        return max(self._not_before, self._rest_until)

    def plan_slice(self, job: Job, epoch: Epoch, now: float) -> tuple[MoveBlocks, ...]:
        """The next slice; () when there is nothing to move in this epoch."""
        leaving = self._leaving_shards(epoch)
        transfers = plan_transfers(job, epoch, leaving, self._settings.rebalance, self._settings.move_bytes)
        if not transfers:
            self._balanced = (epoch.number, leaving)
            return ()
        self.in_progress = True
        self._begun = now
        return (MoveBlocks(epoch.number, transfers),)

    def _leaving_shards(self, epoch: Epoch) -> frozenset[str]:
        return frozenset(key for key in self._members.departures if epoch.shard_index(key) >= 0)
