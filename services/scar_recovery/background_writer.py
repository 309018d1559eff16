"""What must not hold up the leader's loop: the epoch's number in Redis, the ledger, new manifests, and which
coordinators there are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar.errors import LivenessUnavailable, ScarError
from scar.wire.timing import TIMING
from scar_recovery.coordinator_registry import CoordinatorRegistry
from scar_recovery.core.events import CoordinatorsSeen
from scar_recovery.core.planner import RETRY
from scar_recovery.executor import Executor
from scar_recovery.leader_state import LeaderState
from scar_runtime.process.app import App

IDLE = TIMING.look_every  # seconds between looks while there is no job
UPKEEP = 5 * TIMING.look_every  # seconds between looks at the store for new manifests, and at the ledger

_log = logging.getLogger(__name__)


class BackgroundWriter:
    """``executor``: None while there is no job."""

    def __init__(self, app: App, state: LeaderState, executor: Callable[[], Executor | None]) -> None:
        self._heartbeats = app.heartbeats
        self._registry = CoordinatorRegistry(app.heartbeats, app.member)
        self._own_key = app.member.key
        self._state = state
        self._executor = executor
        self._published = 0
        self._problem = ""

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._find_coordinators()
            executor = self._executor()
            if executor is None:
                stopping.wait(IDLE)
            elif not self._write_once(executor):
                stopping.wait(RETRY)

    def _find_coordinators(self) -> None:
        coordinators = self._registry.live_coordinators(time.monotonic())
        if coordinators is not None:
            self._state.post(CoordinatorsSeen(tuple(coordinators)))

    def _write_once(self, executor: Executor) -> bool:
        """False: the store does not take it now."""
        self._published = executor.epochs.wait_beyond(self._published, UPKEEP)
        try:
            self._heartbeats.publish_epoch(self._published)
            executor.report_silent(lambda key: self._heartbeats.block_lease(key, self._own_key))
        except LivenessUnavailable as error:
            _log.debug("epoch.unpublished", extra={"reason": error.message})
        try:
            executor.maintain_store()
        except ScarError as error:
            if error.message != self._problem:
                self._problem = error.message
                _log.warning("ledger.delayed", extra={"reason": self._problem})
            return False
        self._problem = ""
        return True
