"""Events and conditions: what the standard library builds of locks, in one step for each wait.

Each has the switching points of its first lock: before it looks, and before it says that something happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.simulation import scheduler
from tests.simulation.primitives import Lock, RLock, serial
from tests.simulation.scheduler import Task


class SimulatedEvent:
    """:class:`threading.Event`."""

    def __init__(self) -> None:
        self._flag = False
        self._waiters: list[Task] = []

    __hash__ = serial  # sets of these are iterated

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        active = scheduler.active
        active.calm -= 1  # a switching point, without a call as long as nothing happens at it
        if active.calm < 0:
            active.pass_on()
        self._flag = True
        for task in self._waiters:
            active.unpark(task)

    def clear(self) -> None:
        scheduler.active.switch()
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        active = scheduler.active
        active.calm -= 1
        if active.calm < 0:
            active.pass_on()
        if self._flag:
            return True
        task = active.current
        if task is None:
            raise scheduler.Stuck("code outside of every task waits for an event")
        self._waiters.append(task)
        try:
            return active.park(None if timeout is None else active.now + max(0.0, timeout)) or self._flag
        finally:
            self._waiters.remove(task)

    def _at_fork_reinit(self) -> None:
        self._waiters.clear()


class SimulatedCondition:
    """:class:`threading.Condition`; who waits longest is told first, as there."""

    def __init__(self, lock: Lock | RLock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiters: deque[_Waiter] = deque()

    __hash__ = serial

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        active, lock = scheduler.active, self._lock
        if not lock._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        task = active.current
        if task is None:
            raise scheduler.Stuck("code outside of every task waits for a condition")
        waiter = _Waiter(task)
        self._waiters.append(waiter)
        state: Any = lock._release_save()
        try:
            active.park(None if timeout is None else active.now + max(0.0, timeout))
            return waiter.told
        finally:
            if not waiter.told:
                self._waiters.remove(waiter)
            lock._acquire_restore(state)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else scheduler.active.now + timeout
        found = predicate()
        while not found:
            if end is not None and end <= scheduler.active.now:
                break
            self.wait(None if end is None else end - scheduler.active.now)
            found = predicate()
        return found

    def notify(self, n: int = 1) -> None:
        if not self._lock._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        active = scheduler.active
        for _ in range(min(n, len(self._waiters))):
            waiter = self._waiters.popleft()
            waiter.told = True
            active.unpark(waiter.task)

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()
        self._waiters.clear()


class _Waiter:
    __slots__ = ("task", "told")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.told = False
