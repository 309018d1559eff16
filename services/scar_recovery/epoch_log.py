"""Epochs as members ask for them: in order, without gaps, and at once when a new one appears."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scar.errors import Fenced, ObjectNotFound
from scar.v1 import recovery_pb2, types_pb2

KEPT_BYTES = 64 << 20  # of epochs in memory; older ones are read from the store again
REPLY_BYTES = 32 << 20  # of epochs in one answer; the caller asks again for the rest
MAX_WAIT = 30.0  # seconds
MAX_WAITERS = 32  # of the server's 64 threads
BUSY_WAIT = 0.05  # seconds that further waiters are held, so that they do not ask in a tight loop


class EpochLog:
    """The newest epochs of one job. ``read(number)`` gets an older one from the store.

    Safe to use from any thread.
    """

    def __init__(self, read: Callable[[int], types_pb2.Epoch]) -> None:
        self._read = read
        self._epochs: dict[int, types_pb2.Epoch] = {}
        self._bytes = 0
        self._waiters = 0
        self._closed = False
        self._changed = threading.Condition()
        self._question: recovery_pb2.HoldingsQuestion | None = None
        self.newest = 0

    def append(self, epoch: types_pb2.Epoch) -> None:
        """The next epoch; wakes everybody who waits for it."""
        with self._changed:
            self._epochs[epoch.number] = epoch
            self._bytes += epoch.ByteSize()
            self.newest = max(self.newest, epoch.number)
            while self._bytes > KEPT_BYTES and len(self._epochs) > 1:
                self._bytes -= self._epochs.pop(min(self._epochs)).ByteSize()
            self._changed.notify_all()

    def get(self, number: int) -> types_pb2.Epoch:
        """Raises what the store raises."""
        return self._epochs.get(number) or self._read(number)

    def ask(self, question: recovery_pb2.HoldingsQuestion | None) -> None:
        """Have workers asked with their next answer; None: no more."""
        with self._changed:
            self._question = question
            self._changed.notify_all()

    def open_question(self, answered: str) -> recovery_pb2.HoldingsQuestion | None:
        """What is asked of workers, unless it is what they have answered last (its id)."""
        question = self._question
        return question if question is not None and question.id != answered else None

    def after(self, number: int, wait: float, answered: str | None = None) -> list[types_pb2.Epoch]:
        """Epochs after this one, ascending (0: the newest only).

        Waits up to ``wait`` seconds for one; [] when none came. ``answered``: id of the question that the
        caller has answered last, another one ends the wait; None: it is not to be asked.
        """
        newest = self._wait_for(number, min(wait, MAX_WAIT), answered)
        if newest <= number:
            return []
        if number == 0:
            return [self.get(newest)]
        found: list[types_pb2.Epoch] = []
        size = 0
        for later in range(number + 1, newest + 1):
            found.append(self._get_kept(later))
            size += found[-1].ByteSize()
            if size > REPLY_BYTES:
                break
        return found

    def _get_kept(self, number: int) -> types_pb2.Epoch:
        try:
            return self.get(number)
        except ObjectNotFound as error:
            raise Fenced(f"epoch {number} is not kept any more: who has missed it cannot follow") from error

    def wait_beyond(self, number: int, timeout: float, answered: str | None = None) -> int:
        """Number of the newest epoch, once it is above ``number``, or ``timeout`` seconds have passed, or
        there is a question.
        """

        def is_due() -> bool:
            asked = answered is not None and self.open_question(answered) is not None
            return self.newest > number or asked or self._closed

        with self._changed:
            self._changed.wait_for(is_due, timeout)
            return self.newest

    def close(self) -> None:
        """Nobody waits any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for(self, number: int, wait: float, answered: str | None) -> int:
        if self.newest > number or wait <= 0:
            return self.newest
        with self._changed:
            patience = wait if self._waiters < MAX_WAITERS else min(wait, BUSY_WAIT)
            self._waiters += 1
        try:
            return self.wait_beyond(number, patience, answered)
        finally:
            with self._changed:
                self._waiters -= 1
