"""What stands in for threads, locks, queues and clocks: the same interfaces, waiting by the scheduler.

Semaphores, queues and pools of threads are the standard library's own: they are Python over these, and over
:mod:`tests.simulation.waits`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from queue import Empty
from types import TracebackType
from typing import Any

from tests.simulation import scheduler
from tests.simulation.scheduler import WALL, Task

_thread_start, _thread_join = threading.Thread.start, threading.Thread.join
_thread_is_alive = threading.Thread.is_alive
_serials = itertools.count()
_current_thread, _get_ident = threading.current_thread, threading.get_ident


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None or timeout < 0 else scheduler.active.now + timeout


class Lock:
    """:class:`threading.Lock`. Who waits longest does not always win, as with the real one."""

    __slots__ = ("_held", "_waiters")

    def __init__(self) -> None:
        self._held = False
        self._waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:
            active = scheduler.active
            active.calm -= 1  # a switching point, without a call as long as nothing happens at it
            if active.calm < 0:
                active.pass_on()
        if not self._held:
            self._held = True
            return True
        return blocking and timeout != 0 and self._wait(_deadline(timeout))

    def _wait(self, until: float | None) -> bool:
        active = scheduler.active
        task = active.current
        if task is None:
            raise scheduler.Stuck("code outside of every task waits for a lock")
        self._waiters.append(task)
        try:
            while self._held:
                if not active.park(until) and self._held:
                    return False
            self._held = True
            return True
        finally:
            self._waiters.remove(task)

    def release(self) -> None:
        """No switching point: it never waits, and a stack that is unwound has to release what it holds."""
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._waiters:
            active = scheduler.active
            active.unpark(self._waiters[int(active.random.random() * len(self._waiters))])

    def locked(self) -> bool:
        return self._held

    _is_owned = locked  # what :class:`threading.Condition` makes of a plain lock

    def _release_save(self) -> None:
        self.release()

    def _acquire_restore(self, _state: None) -> None:
        self.acquire()

    def _at_fork_reinit(self) -> None:
        self._held = False

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held and not self._waiters:
            self._held = False
        else:
            self.release()


class RLock:
    """:class:`threading.RLock`, with what :class:`threading.Condition` asks of it. ``_owner``: the task, or
    the number of the thread outside of every task.
    """

    __slots__ = ("_count", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Task | int | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = scheduler.active.current or _get_ident()
        if self._owner is me or self._owner == me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner = me
        self._count = 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def _is_owned(self) -> bool:
        return self._owner == (scheduler.active.current or _get_ident())

    def _release_save(self) -> tuple[int, Task | int | None]:
        state = self._count, self._owner
        self._count = 0
        self._owner = None
        self._lock.release()
        return state

    def _acquire_restore(self, state: tuple[int, Task | int | None]) -> None:
        self._lock.acquire()
        self._count, self._owner = state

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimpleQueue:
    """:class:`queue.SimpleQueue`; ``put`` never waits and is no switching point, as destructors call it."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters: list[Task] = []

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        if self._waiters:
            scheduler.active.unpark(self._waiters[0])

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        active = scheduler.active
        if block:
            active.calm -= 1
            if active.calm < 0:
                active.pass_on()
        until = _deadline(timeout)
        while not self._items:
            if not block or active.current is None:
                raise Empty
            task = active.current
            self._waiters.append(task)
            try:
                woken = active.park(until)
            finally:
                self._waiters.remove(task)
            if not woken and not self._items:
                raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Local:
    """:class:`threading.local`: attributes of each task by itself."""

    def __init__(self) -> None:
        object.__setattr__(self, "_by_task", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_by_task")[get_ident()][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "_by_task").setdefault(get_ident(), {})[name] = value


# --- threads ----------------------------------------------------------------------------------------------


def get_ident() -> int:
    task = scheduler.active.current
    return task.number if task is not None else _get_ident()


def current_thread() -> threading.Thread:
    task = scheduler.active.current
    return task.owner if task is not None and isinstance(task.owner, threading.Thread) else _current_thread()


def start(thread: threading.Thread) -> None:
    """A thread that a task starts is a task of the same host; its start is no switching point."""
    active = scheduler.active
    if active.current is None:
        _thread_start(thread)
        return
    task = active.spawn(active.current.host, thread.name, thread.run)
    task.owner = thread
    thread._simulated = task  # type: ignore[attr-defined]
    thread._started.set()  # type: ignore[attr-defined]


def join(thread: threading.Thread, timeout: float | None = None) -> None:
    task: Task | None = getattr(thread, "_simulated", None)
    if task is None:
        _thread_join(thread, timeout)
        return
    active, until = scheduler.active, _deadline(timeout)
    while not task.ended and active.current is not None:
        task.joiners.append(active.current)
        try:
            if not active.park(until):
                return
        finally:
            if active.current in task.joiners:
                task.joiners.remove(active.current)


def is_alive(thread: threading.Thread) -> bool:
    task: Task | None = getattr(thread, "_simulated", None)
    return not task.ended if task is not None else _thread_is_alive(thread)


def serial(thing: Any) -> int:
    """A hash that does not depend on where in memory it is: a number, given when it is first asked for."""
    if "_serial" not in vars(thing):
        thing._serial = next(_serials)
    return int(thing._serial)


# --- clocks -----------------------------------------------------------------------------------------------


# A look at a clock is a switching point: whoever looks may act on a time that is over.

_real_monotonic, _real_wall, _real_clock = time.monotonic, time.time, time.clock_gettime
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic() -> float:
    active = scheduler.active
    task = active.current
    if task is None:
        return _real_monotonic() if isinstance(active, scheduler.Nobody) else active.now
    active.calm -= 1
    if active.calm < 0:
        active.pass_on()
    host = task.host
    return host.boot + host.rate * active.now  # Host.monotonic, without a call, as it is asked most


def boottime() -> float:
    active = scheduler.active
    task = active.current
    if task is None:
        return _real_clock(_BOOTTIME) if isinstance(active, scheduler.Nobody) else active.now
    active.calm -= 1
    if active.calm < 0:
        active.pass_on()
    host = task.host
    return host.boot + host.rate * active.now + host.asleep  # Host.boottime, likewise


def wall() -> float:
    active = scheduler.active
    task = active.current
    if task is None:
        return _real_wall() if isinstance(active, scheduler.Nobody) else WALL + active.now
    active.switch()
    return task.host.wall(active.now)


_CLOCKS = {time.CLOCK_REALTIME: wall, time.CLOCK_MONOTONIC: monotonic}


def clock_gettime(clock: int) -> float:
    return boottime() if clock == _BOOTTIME else _CLOCKS.get(clock, boottime)()


def sleep(seconds: float) -> None:
    if scheduler.active.current is not None:
        scheduler.active.sleep(seconds)
