"""What an epoch gave to this shard and is not there yet: which load is made now, which is tried again when.

Every load is tried until it succeeds, or until a newer epoch has moved its blocks elsewhere; requests for
these blocks wait meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from scar.blocks import Ids, positions_of
from scar.errors import NotServing
from scar.placement import BlockSource
from scar_ps.core.actions import StartLoad
from scar_ps.core.block_data import BlockLoad, differing_values, select_contents
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import BlocksLoaded, CopyReceived, LoadFailed
from scar_ps.core.keyed_store import renew_rows

FIRST_PAUSE = 0.1  # seconds before a load is tried again; doubled with each failure
LONGEST_PAUSE = 2.0
SENDER_SECONDS = 5.0  # for a worker to send what an epoch has it send


@dataclass(slots=True)
class LoadAttempt:
    """How it went so far. ``retry_at``: None while the load is being made. ``since``: when it was wanted."""

    since: float = 0.0
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
        known = self._attempts
        self._attempts = {load: known.get(load, LoadAttempt(since=now, retry_at=now)) for load in wanted}
        for load, attempt in self._attempts.items():
            if load.source is BlockSource.WORKER:
                self._check_sender(load, attempt)
            elif attempt.retry_at is not None and now >= attempt.retry_at:
                attempt.retry_at = None
                self._state.actions.append(StartLoad(load))

    def install_load(self, event: BlocksLoaded) -> None:
        """Blocks that have moved on meanwhile are left out."""
        self._attempts.pop(event.load, None)
        if not self._state.dismissed:
            contents = event.contents
            if event.load.source in (BlockSource.OBJECT, BlockSource.INITIAL):
                table = self._state.ownership.tables[event.load.table].table
                contents = renew_rows(table, contents, self._state.clock)
            self._state.ownership.install_load(event.load, contents)
            self._state.chain.urgent = True  # workers may have settled before: no other change would send it
        self._state.story.note(loading=self._state.ownership.loading_blocks)

    def _check_sender(self, load: BlockLoad, attempt: LoadAttempt) -> None:
        """Blocks that a worker does not send are as unreadable as damaged ones: recovery finds others."""
        epoch = self._state.epoch
        alive = epoch is not None and any(worker.key == load.sender for worker in epoch.workers)
        if not alive:
            self._give_up(load, attempt, f"{load.sender} has left before it sent them")
        elif self._state.now > attempt.since + SENDER_SECONDS:
            self._give_up(load, attempt, f"{load.sender} has not sent them for {SENDER_SECONDS:g} s")

    def _give_up(self, load: BlockLoad, attempt: LoadAttempt, reason: str) -> None:
        if attempt.unreadable is None:
            self._state.story.note(gave_up=reason)
            attempt.reason = reason
            attempt.unreadable = load.ids

    def receive_copy(self, event: CopyReceived) -> str:
        """A worker has sent blocks. Those that nobody waits for any more are left out.

        Returns what is wrong with the others, in words; empty: nothing.
        """
        state = self._state
        if state.number < event.epoch:
            state.heard_epoch = max(state.heard_epoch, event.epoch)
            raise NotServing(f"{state.member.name} knows epoch {state.number}, not yet {event.epoch}")
        flaw = ""
        for load in state.ownership.loads:
            if (load.sender, load.epoch, load.table) == (event.sender.key, event.epoch, event.table):
                flaw = self._take_copy(load, event) or flaw
        return flaw

    def _take_copy(self, load: BlockLoad, event: CopyReceived) -> str:
        at = positions_of(event.ids, load.ids)
        if (at < 0).all():
            return ""  # of another group
        flaw = event.flaw
        if event.clock != load.clock:
            flaw = f"they are of clock {event.clock}, not {load.clock}"
        if not flaw and (at < 0).any():
            flaw = "some of them are missing"
        if flaw:
            attempt = self._attempts.get(load)
            if attempt is not None:
                self._give_up(load, attempt, f"{load.sender} has sent blocks that cannot be used: {flaw}")
            return flaw
        table = self._state.ownership.tables[load.table].table
        contents = select_contents(table, event.ids, event.contents, at)
        contents.saved = differing_values(contents.values)
        self.install_load(BlocksLoaded(load, contents))
        return ""

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
