"""What an epoch gave to this shard and is not there yet: which load is made now, which is tried again when.

Every load is tried until it succeeds, or until a newer epoch has moved its blocks elsewhere; requests for
these blocks wait meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from scar.blocks import Ids
from scar_ps.core.actions import StartLoad
from scar_ps.core.block_data import BlockLoad
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import BlocksLoaded, LoadFailed

FIRST_PAUSE = 0.1  # seconds before a load is tried again; doubled with each failure
LONGEST_PAUSE = 2.0


@dataclass(slots=True)
class LoadAttempt:
    """How it went so far. ``retry_at``: None while the load is being made."""

    failures: int = 0
    retry_at: float | None = None
    reason: str = ""
    unreadable: Ids | None = None


@dataclass(frozen=True, eq=False, slots=True)
class UnreadableLoad:
    """Blocks that wait for a load which finds their saved copy damaged or gone."""

    load: BlockLoad
    ids: Ids
    reason: str


class LoadHandler:
    """Of one shard."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._attempts: dict[BlockLoad, LoadAttempt] = {}

    def start_due(self) -> None:
        """Start the loads that nobody makes yet, and those that are to be tried again."""
        now = self._state.now
        wanted = self._state.ownership.loads
        self._attempts = {load: self._attempts.get(load, LoadAttempt(retry_at=now)) for load in wanted}
        for load, attempt in self._attempts.items():
            if attempt.retry_at is not None and now >= attempt.retry_at:
                attempt.retry_at = None
                self._state.actions.append(StartLoad(load))

    def install_load(self, event: BlocksLoaded) -> None:
        """Blocks that have moved on meanwhile are left out."""
        self._attempts.pop(event.load, None)
        if not self._state.dismissed:
            self._state.ownership.install_load(event.load, event.contents)
            self._state.chain.urgent = True  # workers may have settled before: no other change would send it
        self._state.story.note(loading=self._state.ownership.loading_blocks)

    def record_failure(self, event: LoadFailed) -> None:
        self._state.story.note(blocks=len(event.load.ids))
        attempt = self._attempts.get(event.load)
        if attempt is None:
            return  # its blocks have moved on
        attempt.retry_at = self._state.now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt.failures)
        attempt.failures += 1
        attempt.reason = event.reason
        if event.unreadable is not None:
            attempt.unreadable = event.unreadable

    @property
    def problem(self) -> str:
        """Why a load has to be tried again; empty: nothing is wrong."""
        for load, attempt in self._attempts.items():
            if attempt.reason:
                return f"{len(load.ids)} blocks of table {load.table} cannot be loaded: {attempt.reason}"
        return ""

    @property
    def unreadable(self) -> list[UnreadableLoad]:
        found = []
        for load, attempt in self._attempts.items():
            if attempt.unreadable is not None and len(attempt.unreadable):
                found.append(UnreadableLoad(load, attempt.unreadable, attempt.reason))
        return found
