"""Bringing epochs to shards: one thread a shard, so that nobody waits for a slow one; in order, without gaps, until answered.

A shard that is in the newest epoch is tried for ever (when it is dead, the detector says so). One that left the epoch is told
for a while, so that a process that was frozen stops the sooner; its lease has run out anyway.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from scar.errors import ScarError
from scar.placement import Epoch, Member
from scar_recovery.chronicle import Chronicle
from scar_recovery.shards import Shards

RETRY = 0.2  # seconds after a shard did not answer
POLL = 0.01  # seconds between first questions whether the blocks are loaded; doubled up to POLL_MOST
POLL_MOST = 0.1
IDLE = 1.0  # seconds between looks at the chronicle without news
FAREWELL = 10.0  # seconds for which a shard that left is told

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who wants to know how far the shards are."""

    def heard(self, number: int, key: str, clock: int) -> None:
        """A shard has adopted this epoch; its open clock."""
        ...

    def served(self, number: int, clock: int) -> None:
        """All shards of the newest epoch serve all their blocks; the highest open clock."""
        ...


class Couriers:
    """``spawn(name, target)`` runs a guarded thread; ``listener`` is called from these threads."""

    def __init__(
        self, shards: Shards, chronicle: Chronicle, listener: Listener, spawn: Callable[[str, Callable[[], None]], None]
    ) -> None:
        self._shards, self._chronicle = shards, chronicle
        self._listener, self._spawn = listener, spawn
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._epoch: Epoch | None = None
        self._ready: dict[str, int] = {}  # shard key -> open clock, of those that serve everything in the newest epoch
        self._stopping = threading.Event()

    def deliver(self, epoch: Epoch) -> None:
        """Tell every shard of this epoch and of the one before. Call it before the epoch is appended to the chronicle."""
        with self._lock:
            former, self._epoch, self._ready = self._epoch, epoch, {}
            for member in {m.key: m for m in (*(former.shards if former else ()), *epoch.shards)}.values():
                if member.key not in self._running:
                    self._running.add(member.key)
                    self._spawn(f"courier {member.key}", partial(self._run, member))

    def join(self, timeout: float) -> None:
        """Wait until nobody is left to be told, at most ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while self._running and time.monotonic() < end:
            time.sleep(POLL)

    def stop(self) -> None:
        """Call it before the chronicle is closed."""
        self._stopping.set()

    def _run(self, member: Member) -> None:
        known, left, problem = -1, 0.0, ""  # -1: what the shard knows must be found out first
        while not self._stopping.is_set():
            epoch = self._newest()
            left = 0.0 if epoch.shard_index(member.key) >= 0 else left or time.monotonic()
            if left and (known >= epoch.number or time.monotonic() - left > FAREWELL):
                break
            try:
                known = self._bring(member, known, epoch)
            except ScarError as error:
                if error.message != problem:
                    problem = error.message
                    _log.info("adopt.failed", extra={"shard": member.key, "reason": problem})
                if left and self._shards.refuses(member):
                    break
                self._stopping.wait(RETRY)
            else:
                self._chronicle.wait_beyond(known, IDLE)
        with self._lock:
            self._running.discard(member.key)
        self._shards.forget(member)

    def _newest(self) -> Epoch:
        """What was delivered last; the chronicle may be a moment behind."""
        with self._lock:
            assert self._epoch is not None
            return self._epoch

    def _bring(self, member: Member, known: int, epoch: Epoch) -> int:
        """Tell the shard what it has not heard and wait until it has loaded. Returns the newest epoch that it knows."""
        if known < 0:
            known = self._first(member, epoch.number)
        loading = 0
        while known < epoch.number:
            reply, loading = self._shards.adopt(member, self._chronicle.get(known + 1))
            if reply <= known:
                raise ScarError(f"{member.key} stays at epoch {reply}")
            known = reply
        if known == epoch.number and epoch.shard_index(member.key) >= 0 and member.key not in self._ready:
            self._await_loaded(member, epoch.number, loading)
        return known

    def _first(self, member: Member, newest: int) -> int:
        """What a shard knows that this leader has not spoken to yet: at least nothing before it became a member."""
        known = self._shards.state(member).epoch if newest > 1 else 0
        if known:
            return min(known, newest)
        number = newest
        while number > 1 and any(shard.incarnation == member.incarnation for shard in self._chronicle.get(number - 1).shards):
            number -= 1
        return number - 1

    def _await_loaded(self, member: Member, number: int, loading: int) -> None:
        poll = POLL
        state = self._shards.state(member)
        self._listener.heard(number, member.key, state.clock)
        while (loading or state.loading) and self._newest().number == number and not self._stopping.wait(poll):
            poll = min(2 * poll, POLL_MOST)
            state, loading = self._shards.state(member), 0
        if state.epoch == number and not state.loading:
            self._complete(member.key, number, state.clock)

    def _complete(self, key: str, number: int, clock: int) -> None:
        with self._lock:
            epoch = self._epoch
            if epoch is None or epoch.number != number:
                return
            self._ready[key] = clock
            done = all(member.key in self._ready for member in epoch.shards)
            highest = max(self._ready.values())
        if done:
            self._listener.served(number, highest)
