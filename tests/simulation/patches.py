"""Replaces what a Python process takes from the machine: threads, locks, clocks, random numbers, its own end.

``from threading import Lock`` and ``now=time.monotonic`` bind when a module is imported, so :func:`install`
comes before every other import, and a simulation is a process of its own: ``python -m tests.simulation``.
Nothing here knows the services; :mod:`tests.simulation.rpc`, ``redis_server`` and ``bucket`` do the same for
the three libraries at whose edge a process ends.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from contextlib import nullcontext

from tests.simulation import primitives, scheduler, waits

SECRET_BYTES = 32  # nothing else draws so many


def install() -> None:
    """For the rest of this process."""
    _replace_threads()
    _replace_clocks()
    os._exit = _exit  # type: ignore[assignment]
    os.urandom = random._urandom = _urandom  # type: ignore[attr-defined]


def _replace_threads() -> None:
    threading.Lock = threading._allocate_lock = primitives.Lock  # type: ignore[assignment,attr-defined,misc]
    threading.RLock = primitives.RLock  # type: ignore[assignment,misc]
    threading.Event = waits.SimulatedEvent  # type: ignore[assignment,misc]
    threading.Condition = waits.SimulatedCondition  # type: ignore[assignment,misc]
    threading.local = primitives.Local  # type: ignore[assignment,misc]
    threading.get_ident = primitives.get_ident
    threading.current_thread = primitives.current_thread
    threading.Thread.start = primitives.start  # type: ignore[method-assign]
    threading.Thread.join = primitives.join  # type: ignore[method-assign]
    threading.Thread.is_alive = primitives.is_alive  # type: ignore[method-assign]
    queue.SimpleQueue = primitives.SimpleQueue  # type: ignore[assignment,misc]
    from concurrent.futures import Future, thread  # not before: it makes locks

    # Processes share none: whoever is paused while it starts a thread would hold all others.
    thread._global_shutdown_lock = nullcontext()  # type: ignore[attr-defined]

    # Sets of these are iterated, in the order of addresses in memory.
    for kind in (threading.Thread, threading.Semaphore, Future):
        kind.__hash__ = primitives.serial  # type: ignore[method-assign,assignment]


def _replace_clocks() -> None:
    time.monotonic = time.perf_counter = primitives.monotonic
    time.time = primitives.wall
    time.clock_gettime = primitives.clock_gettime
    time.sleep = primitives.sleep
    threading._time = queue.time = primitives.monotonic  # type: ignore[attr-defined,assignment]


def _exit(code: int) -> None:
    """A process that ends itself takes only itself along."""
    task = scheduler.active.current
    if task is None:
        raise SystemExit(code)
    scheduler.active.record(f"exit {task.host.name} {code}")
    scheduler.active.crash(task.host)


def _urandom(count: int) -> bytes:
    """Secrets, which decide nothing, have a stream of their own: one more leaves a seed what it is."""
    stream = scheduler.active.secrets if count >= SECRET_BYTES else scheduler.active.random
    return stream.randbytes(count)
