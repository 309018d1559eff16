"""Moves of blocks between live shards, and the question whether they are worth it: what runs beside the
executor's loop, as a shard may take long to answer.
"""

from __future__ import annotations

import logging

from scar.errors import ScarError
from scar.placement import Member
from scar_recovery.core.actions import MoveBlocks, ReadTraffic
from scar_recovery.core.epoch_intent import FrozenTransfer, Transfer
from scar_recovery.core.events import BlocksMoved, TrafficRead
from scar_recovery.core.hot_blocks import ShardTraffic, is_uneven
from scar_recovery.leader_state import LeaderState
from scar_recovery.member_calls import call_in_parallel
from scar_recovery.shard_client import ShardClient

BUSIEST = 1024  # blocks of each shard that are asked for, and as many of the quietest

_log = logging.getLogger(__name__)


class BlockMover:
    """Of one leadership. Answers go to the planner."""

    def __init__(self, state: LeaderState, shards: ShardClient) -> None:
        self._state = state
        self._shards = shards

    def move_blocks(self, action: MoveBlocks) -> None:
        results = call_in_parallel(lambda one: self._copy_blocks(action.number, one), action.transfers)
        done = tuple(moved for moved in results if moved is not None)
        self._state.post(BlocksMoved(action.number, done, len(done) == len(action.transfers)))

    def _copy_blocks(self, number: int, transfer: Transfer) -> FrozenTransfer | None:
        """Freeze and copy; None when it did not work (the next epoch ends the freeze either way)."""
        try:
            frozen = self._shards.freeze_blocks(transfer.donor, number, transfer.blocks)
            self._shards.copy_blocks(transfer.target, number, transfer.donor, transfer.blocks)
        except ScarError as error:
            _log.warning(
                "move.failed",
                extra={"donor": transfer.donor.key, "target": transfer.target.key, "reason": error.message},
            )
            return None
        return FrozenTransfer(transfer, frozen)

    def read_traffic(self, action: ReadTraffic) -> None:
        """Sums first: blocks are asked for only where these are uneven."""
        traffic = self._ask_traffic(action, 0)
        uneven = is_uneven([one.rate for one in traffic], self._state.settings.traffic_bytes)
        traffic = self._ask_traffic(action, BUSIEST) if uneven else ()
        self._state.post(TrafficRead(action.number, traffic))

    def _ask_traffic(self, action: ReadTraffic, busiest: int) -> tuple[ShardTraffic, ...]:
        """(): a shard does not answer, is in another epoch, or does not count it."""
        answers = call_in_parallel(
            lambda shard: self._shard_traffic(shard, action.number, busiest), action.shards
        )
        known = tuple(answer for answer in answers if answer is not None)
        return known if len(known) == len(action.shards) else ()

    def _shard_traffic(self, shard: Member, number: int, busiest: int) -> ShardTraffic | None:
        try:
            return self._shards.read_traffic(shard, number, busiest)
        except ScarError as error:
            _log.info("traffic.unknown", extra={"shard": shard.key, "reason": error.message})
            return None
