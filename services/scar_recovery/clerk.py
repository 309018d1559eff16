"""What must not hold up the leader's loop: the epoch's number in Redis, the ledger, new manifests, and who is there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar.errors import LivenessUnavailable, ScarError
from scar_recovery.attendance import Attendance
from scar_recovery.executor import Executor
from scar_recovery.members import Members
from scar_recovery.planner import RETRY
from scar_runtime.app import App

IDLE = 0.1  # seconds between looks while there is no job
BOOKS = 0.5  # seconds between looks at the store for new manifests and at the ledger for changes

_log = logging.getLogger(__name__)


class Clerk:
    """``executor``: None while there is no job. ``lock`` guards ``members``."""

    def __init__(self, app: App, members: Members, lock: threading.Condition, executor: Callable[[], Executor | None]) -> None:
        self._beats, self._attendance = app.beats, Attendance(app.beats, app.member)
        self._members, self._lock, self._executor = members, lock, executor
        self._published, self._problem = 0, ""

    def run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self._attend()
            executor = self._executor()
            if executor is None:
                ended.wait(IDLE)
            elif not self._keep_books(executor):
                ended.wait(RETRY)

    def _attend(self) -> None:
        coordinators = self._attendance.look(time.monotonic())
        if coordinators is not None:
            with self._lock:
                self._members.attended(coordinators)

    def _keep_books(self, executor: Executor) -> bool:
        """False: the store does not take them now."""
        self._published = executor.chronicle.wait_beyond(self._published, BOOKS)
        try:
            self._beats.publish_epoch(self._published)
        except LivenessUnavailable as error:
            _log.debug("epoch.unpublished", extra={"reason": error.message})
        try:
            executor.write_books()
        except ScarError as error:
            if error.message != self._problem:
                self._problem = error.message
                _log.warning("books.delayed", extra={"reason": self._problem})
            return False
        self._problem = ""
        return True
