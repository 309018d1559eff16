"""Workers ask for a rollback: finds out what the job can go back to, and hands the request to the planner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from scar.errors import CorruptCheckpoint, Diverged, InvalidRequest, NotServing, ObjectNotFound
from scar.placement import Member
from scar_recovery.core.block_sources import SavedState
from scar_recovery.core.epoch_intent import RollbackRequest
from scar_recovery.core.epoch_preparation import RESTART_AHEAD
from scar_recovery.core.events import RollbackAsked, RollbackFailed
from scar_recovery.core.pending_rollback import ROLLBACK_CLOCKS, ROLLBACKS, is_answered, may_roll_back
from scar_recovery.leader_state import LeaderState
from scar_recovery.ledger_writer import LedgerWriter
from scar_recovery.recovery_store import RecoveryStore


class RollbackDesk:
    """``highest_clock``: of these shards, as they say; 0: none answers. Safe to use from any thread."""

    def __init__(
        self,
        state: LeaderState,
        store: RecoveryStore,
        ledger: LedgerWriter,
        highest_clock: Callable[[Sequence[Member]], int],
    ) -> None:
        self._state = state
        self._store = store
        self._ledger = ledger
        self._highest_clock = highest_clock
        self._asking = threading.Lock()  # what is saved is read once for all workers
        self._found: RollbackRequest | None = None

    def accept_request(self, worker: Member, clock: int, reason: str) -> None:
        """Everything has to go back to what was saved before this clock. Asked again: nothing happens.

        Raises :class:`Diverged` when that cannot be or has been too often, :class:`NotServing`, and what the
        store raises.
        """
        with self._asking:
            epoch = self._state.epoch
            if epoch is None or not epoch.shards:
                raise NotServing("no shard is there that could go back")
            if is_answered(epoch, clock):
                return
            if self._found is None or self._found.clock != clock:
                self._check_request(worker, epoch.shards, clock)
                found = self._store.find_good(clock)
                self._found = RollbackRequest(clock, found, f"{reason}, says {worker.name}")
            self._state.post(RollbackAsked(self._found))

    def _check_request(self, worker: Member, shards: Sequence[Member], clock: int) -> None:
        highest = self._highest_clock(shards)
        if not highest:
            raise NotServing("no shard says which clock is open")
        if clock > highest + RESTART_AHEAD:
            raise InvalidRequest(f"{worker.key} has heard of clock {clock}, but {highest} is open")
        if not may_roll_back(clock, self._ledger.rollback_clocks()):
            raise Diverged(
                f"the job has gone back {ROLLBACKS} times in {ROLLBACK_CLOCKS} clocks, and diverges again",
                "Lower the learning rate or clip, or look at the data; then continue by --resume",
            )

    def seal_request(self, request: RollbackRequest, author: str, epoch: int) -> SavedState:
        """See :meth:`RecoveryStore.seal_state`. When it cannot be read any more the request is over."""
        try:
            return self._store.seal_state(request.manifest, author, epoch)
        except (CorruptCheckpoint, ObjectNotFound):
            with self._asking:
                self._found = None
            self._state.post(RollbackFailed(request.clock))
            raise
