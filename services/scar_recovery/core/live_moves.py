"""Live moves of blocks: when the next slice is due, and which shards are saved before. Pure.

Shards that leave come first, then levelling what shards hold, then what they send and receive.
"""

from __future__ import annotations

from collections.abc import Sequence

from scar.placement import Epoch, Member
from scar.tables import Job
from scar_recovery.core.actions import MoveBlocks, ReadTraffic, SaveShard
from scar_recovery.core.epoch_intent import FrozenTransfer, Transfer
from scar_recovery.core.events import BlocksMoved, ShardSaved, TrafficRead
from scar_recovery.core.hot_blocks import plan_exchanges
from scar_recovery.core.membership import Membership
from scar_recovery.core.rebalance import most_bytes, plan_transfers
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.core.traffic_watch import NEVER, TrafficWatch

# seconds after a move that failed: at first, and when it fails again and again
MOVE_RETRY = 1.0
MOVE_RETRY_MOST = 60.0
# between slices, training has as long for itself as the last one kept it waiting, times this
REST = 1.0
# seconds, at most: a slice waits for other blocks, too, which a store that is away may bring much later
REST_MOST = 10.0


class LiveMoves:
    """Moves of one job under one leader, one slice at a time."""

    def __init__(self, settings: PlannerSettings, members: Membership) -> None:
        self._settings = settings
        self._members = members
        self._traffic = TrafficWatch(settings.traffic_seconds if settings.rebalance else 0.0)
        self.in_progress = False
        self.levels_traffic = False  # the last move does
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
        self._traffic.adopt_epoch()

    def record_answer(self, event: BlocksMoved | ShardSaved | TrafficRead, epoch: int, now: float) -> None:
        """To an action of ours. ``epoch``: the newest, which has ended each freeze before it."""
        if isinstance(event, ShardSaved):
            self.stop_waiting_for(event.key)
        elif event.number != epoch:
            return
        elif isinstance(event, TrafficRead):
            self._traffic.record(event, now)
        elif self.in_progress:
            self._move_ended(event, now)

    def _move_ended(self, event: BlocksMoved, now: float) -> None:
        """What is frozen waits for an epoch in any case."""
        self.moved = event.done
        self._failed_in_a_row = 0 if event.done or event.complete else self._failed_in_a_row + 1
        if not event.complete:
            pause = MOVE_RETRY * 2 ** max(0, self._failed_in_a_row - 1)
            self._not_before = now + min(pause, MOVE_RETRY_MOST)

    def epoch_loaded(self, now: float) -> None:
        """What has moved is served where it is now, so training goes on."""
        moved_for = now - self._begun if self._begun < now else 0.0
        self._rest_until = max(self._rest_until, now + min(REST_MOST, REST * moved_for))
        self._traffic.epoch_loaded(now, moved_for if self.levels_traffic else 0.0)
        self._begun = NEVER
        self.levels_traffic = False

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
        if self.in_progress or self._saving:
            return NEVER
        leaving = self._leaving_shards(epoch)
        if self._balanced == (epoch.number, leaving):
            return NEVER if leaving else max(self._not_before, self._traffic.next_due(epoch))
        if leaving:  # they may have little time
            return self._not_before
        return max(self._not_before, self._rest_until)

    def plan_slice(self, job: Job, epoch: Epoch, now: float) -> tuple[MoveBlocks | ReadTraffic, ...]:
        """The next slice, or the question whether there is one; () when there is nothing to move now."""
        leaving = self._leaving_shards(epoch)
        if self._balanced != (epoch.number, leaving):
            level = self._settings.rebalance
            transfers = plan_transfers(job, epoch, leaving, level, self._settings.move_bytes)
            if transfers:
                return self._begin_move(epoch, transfers, now)
            self._balanced = (epoch.number, leaving)
        return () if leaving else self._level_traffic(job, epoch, now)

    def _level_traffic(self, job: Job, epoch: Epoch, now: float) -> tuple[MoveBlocks | ReadTraffic, ...]:
        if self._traffic.next_due(epoch) > now:
            return ()
        traffic = self._traffic.take_answer()
        if not traffic:
            return (self._traffic.ask(epoch),)
        limit = most_bytes(job, self._settings.move_bytes)
        transfers = plan_exchanges(job, epoch, traffic, self._settings.traffic_bytes, limit)
        if not transfers:
            return ()
        self.levels_traffic = True
        self._traffic.begin_exchange(traffic)
        return self._begin_move(epoch, transfers, now)

    def _begin_move(self, epoch: Epoch, transfers: Sequence[Transfer], now: float) -> tuple[MoveBlocks, ...]:
        self.in_progress = True
        self._begun = now
        return (MoveBlocks(epoch.number, tuple(transfers)),)

    def _leaving_shards(self, epoch: Epoch) -> frozenset[str]:
        return frozenset(key for key in self._members.departures if epoch.shard_index(key) >= 0)
