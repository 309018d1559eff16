"""SIGTERM and SIGINT: the first asks the process to stop, the second ends it at once.

The signal's number is written to a pipe by the C-level handler and read by a thread of its own. So it is
noticed while the main thread is deep in a user's code, and no lock is ever taken inside a signal handler.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def on_stop(stop: Callable[[], None]) -> None:
    """Call ``stop`` at the first signal. Must be called by the main thread, once."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _STOPPING:
        signal.signal(number, _ignore_signal)
    os.register_at_fork(
        before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_reset_in_child
    )
    threading.Thread(target=_read_signals, args=(reader, stop), name="signals", daemon=True).start()


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Python's side of the handler; the pipe carries the news."""


_held = threading.local()


def _block_signals() -> None:
    """A signal that reached a forked child before :func:`_reset_in_child` would be told to us, and be lost
    for the child.
    """
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _reset_in_child() -> None:
    """A forked child of a user's code must neither ignore its own signals nor write to our pipe."""
    signal.set_wakeup_fd(-1)
    for number in _STOPPING:
        signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


def _read_signals(reader: int, stop: Callable[[], None]) -> None:
    asked = False
    while byte := os.read(reader, 1):
        if byte[0] not in _STOPPING:
            continue
        if asked:
            os._exit(128 + byte[0])
        asked = True
        stop()
