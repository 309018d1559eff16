"""The apply thread: the only one that touches the shard, one call after the other.

Other threads hand in calls and wait for their results. A call that cannot be served yet is parked and tried again after every
change, in order of arrival. Both are bounded: too many parked calls are refused, and each has a deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Generic, TypeVar

from scar.errors import Busy, DeadlineExceeded, Internal, NotServing, ScarError
from scar_ps.barrier import NotYet
from scar_runtime.heart import Heart

BEAT_SECONDS = 0.05  # an idle thread shows that it lives
MAX_PARKED = 40  # each holds a thread of the server, and the calls that they wait for need threads, too

Result = TypeVar("Result")


class _Call(Generic[Result]):
    def __init__(self, work: Callable[[], Result], changes: bool) -> None:
        self.work, self.changes = work, changes
        self.done = Event()
        self.results: list[Result] = []  # one, once there is one
        self.error: BaseException | None = None
        self.abandoned = False
        self.reason = "its turn"

    def attempt(self) -> bool:
        """Run the work; False when it has to wait."""
        try:
            self.results = [self.work()]
        except NotYet as reason:
            self.reason = str(reason)
            return False
        except Exception as error:
            self.error = error
        self.done.set()
        return True


class Engine:
    """``fail`` ends the process: after an unexpected error in the middle of a change nobody may trust the values."""

    def __init__(self, heart: Heart, fail: Callable[[BaseException], None]) -> None:
        self._heart, self._fail = heart, fail
        self._mailbox: SimpleQueue[_Call[Any]] = SimpleQueue()
        self._parked: list[_Call[Any]] = []
        self._closed = Event()

    def call(self, work: Callable[[], Result], timeout: float, *, changes: bool = True) -> Result:
        """Run ``work`` on the apply thread. ``changes``: others may have waited for it.

        Raises what it raises, and :class:`DeadlineExceeded` after ``timeout`` seconds.
        """
        call = _Call(work, changes)
        self._mailbox.put(call)
        if self._closed.is_set():
            self._refuse_all()
        if not call.done.wait(timeout):
            call.abandoned = True
            raise DeadlineExceeded(f"waited {timeout:.1f} s for {call.reason}")
        if isinstance(call.error, ScarError):
            raise call.error
        if call.error is not None:
            raise Internal(f"{type(call.error).__name__} in the apply thread") from call.error
        return call.results[0]

    def serve(self, work: Callable[[], Result], timeout: float, *, changes: bool = True) -> Result:
        """The same for data: only with a valid lease, before it is applied and again before it is acknowledged."""

        def leased() -> Result:
            self.check_lease()
            return work()

        result = self.call(leased, timeout, changes=changes)
        self.check_lease()
        return result

    @property
    def leased(self) -> bool:
        return self._heart.lease_valid()

    def check_lease(self) -> None:
        if not self.leased:
            raise NotServing("this shard's lease has run out")

    def waiting_for(self) -> str:
        """What the oldest parked call waits for, in words; empty: nothing waits."""
        return next((call.reason for call in self._parked if call.reason), "")

    def run(self, stopped: Event) -> None:
        """Body of the apply thread."""
        while not stopped.is_set():
            self._heart.beat()
            try:
                call = self._mailbox.get(timeout=BEAT_SECONDS)
            except Empty:
                self._parked = [parked for parked in self._parked if not parked.abandoned]
                continue
            self._take(call)
        self._closed.set()
        self._refuse_all()

    def _refuse_all(self) -> None:
        """Nobody will run what is left: let its callers go."""
        left, self._parked = self._parked, []
        with suppress(Empty):
            while True:
                left.append(self._mailbox.get_nowait())
        for call in left:
            call.error = NotServing("this shard is stopping")
            call.done.set()

    def _take(self, call: _Call[Any]) -> None:
        if call.abandoned:
            return
        if not call.attempt():
            self._park(call)
        elif self._changed(call):
            self._retry()

    def _changed(self, call: _Call[Any]) -> bool:
        if call.changes and call.error is not None and not isinstance(call.error, ScarError):
            self._fail(call.error)
        return call.changes and call.error is None

    def _park(self, call: _Call[Any]) -> None:
        if len(self._parked) >= MAX_PARKED:
            call.error = Busy(f"{MAX_PARKED} calls are waiting already, this one for {call.reason}")
            call.done.set()
        else:
            self._parked.append(call)

    def _retry(self) -> None:
        again = True
        while again:
            again, parked, self._parked = False, self._parked, []
            for call in parked:
                self._heart.beat()
                if call.abandoned:
                    continue
                if not call.attempt():
                    self._parked.append(call)
                elif self._changed(call):
                    again = True


def timed(work: Callable[[], Result], observe: Callable[[float], Any]) -> Callable[[], Result]:
    """``work`` that reports how long it took, in seconds, when it succeeds."""

    def measured() -> Result:
        started = time.monotonic()
        result = work()
        observe(time.monotonic() - started)
        return result

    return measured


def remaining(limit: float, left: float | None) -> float:
    """Seconds that a handler may wait: a little less than its caller's deadline (None: none), so that its answer arrives."""
    return max(0.001, min(limit, math.inf if left is None else left - 0.05))
