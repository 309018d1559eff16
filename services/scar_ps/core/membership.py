"""When this shard announces itself, and when it searches the store for an epoch that it has missed."""

from __future__ import annotations

from scar_ps.core.actions import CheckStore, EndService, JoinCluster
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import JoinAnswered, StoreChecked

# between announcements while no epoch has taken us in: a new coordinator knows only the epochs
JOIN_SECONDS = 2.0
# between looks at the store without a reason: the job may have ended without a word to this shard
CHECK_SECONDS = 10.0
FIRST_PAUSE = 0.1  # seconds after a failure; doubled with each
LONGEST_PAUSE = 2.0


class MembershipHandler:
    """Of one shard. It does one thing at a time, and nothing after a failure before a pause is over."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._asking = False
        self._paused_until = 0.0
        self._failures = 0
        self._join_at = 0.0
        self._checked_at: float | None = None

    def start_due(self, leased: bool) -> None:
        """``leased``: this shard may serve; without a lease it may have missed an epoch."""
        now = self._state.now
        if self._checked_at is None:
            self._checked_at = now
        state = self._state
        if self._asking or now < self._paused_until or state.dismissed:
            return
        if state.number == 0:
            if now >= self._join_at:
                self._asking = True
                state.actions.append(JoinCluster())
            return
        behind = state.heard_epoch > state.number or not leased
        if behind or now > self._checked_at + CHECK_SECONDS:
            self._asking = True
            self._checked_at = now
            state.actions.append(CheckStore())

    def record_join(self, event: JoinAnswered) -> None:
        if event.fenced and not self._state.number:
            self._state.dismiss(event.reason)
            self._state.actions.append(EndService(event.reason))
        if not event.reason:
            self._join_at = self._state.now + JOIN_SECONDS
        self._record_answer(event.reason)

    def record_check(self, event: StoreChecked) -> None:
        if not event.reason:
            self._state.heard_epoch = min(self._state.heard_epoch, self._state.number)
        self._record_answer(event.reason)

    def _record_answer(self, failure: str) -> None:
        self._asking = False
        if failure or self._failures:
            self._state.story.note(failures=self._failures)
        if not failure:
            self._failures = 0
            return
        self._paused_until = self._state.now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._failures += 1
