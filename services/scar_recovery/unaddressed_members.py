"""Signs of life of members that have no address: workers that joined by the SDK alone, which nobody can call.

They call us: such a worker always waits here for the next epoch, its call ends with its process, and who does
not call again is missing. And a detector may hand its heartbeats on to Redis. Any thread may ask.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from scar.errors import LivenessUnavailable
from scar.wire.timing import TIMING
from scar_runtime.liveness.heartbeat_store import HeartbeatStore

LOOK_SECONDS = TIMING.heartbeat / 2
ANSWER_SECONDS = 4 * TIMING.heartbeat  # of silence in which one that lives would have called, or beaten
# since a call that is sign enough: where many wait, most are answered at once, and call again
RECENT_SECONDS = 10 * TIMING.heartbeat
# without a call: a user's code may keep Python's lock for seconds
MISSING_SECONDS = 100 * TIMING.heartbeat


class CallContext(Protocol):
    """Of a call that is being served."""

    def is_active(self) -> bool: ...


class UnaddressedMembers:
    """``heartbeats``: of everybody."""

    def __init__(self, heartbeats: HeartbeatStore) -> None:
        self._heartbeats = heartbeats
        self._calls: set[tuple[str, CallContext]] = set()
        self._called: dict[str, float] = {}  # when a member was last seen to call, or to wait
        self._missed: dict[str, float] = {}  # when we met a member, or said last that it is missing
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, key: str, call: CallContext) -> Iterator[None]:
        """The member with this key waits for an answer to this call."""
        with self._lock:
            self._calls.add((key, call))
            self._called[key] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._calls.discard((key, call))
                if call.is_active():
                    self._called[key] = time.monotonic()

    def is_alive(self, key: str) -> bool:
        """Whether it waits for an answer, or has just had one, or sends heartbeats. Looks for
        :data:`ANSWER_SECONDS`. Without Redis nobody knows, so it is.
        """
        first = self._count_beats(key)
        end = time.monotonic() + ANSWER_SECONDS
        while not self._has_called(key):
            count = self._count_beats(key)
            if count != first or count is None:
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def find_missing(self, keys: Iterable[str]) -> list[str]:
        """Those that have not called for :data:`MISSING_SECONDS`, of members that say who calls; each again
        after as long.
        """
        now = time.monotonic()
        wanted = set(keys)
        with self._lock:
            waiting = wanted & {key for key, call in self._calls if call.is_active()}
            self._called = {key: when for key, when in self._called.items() if key in wanted}
            self._called |= dict.fromkeys(waiting, now)
            self._missed = {key: self._missed.get(key, now) for key in wanted}
            seen = {key: max(met, self._called.get(key, met)) for key, met in self._missed.items()}
            missing = [key for key, when in seen.items() if now - when > MISSING_SECONDS]
            self._missed |= dict.fromkeys(missing, now)
        return missing

    def may_be_missed(self, key: str) -> bool:
        """Whether its silence means anything: it has sent heartbeats once. Who never did joined without a
        detector, and is not watched at all.
        """
        return bool(self._count_beats(key))

    def _has_called(self, key: str) -> bool:
        with self._lock:
            calls = [call for caller, call in self._calls if caller == key]
            recent = time.monotonic() - self._called.get(key, -math.inf) < RECENT_SECONDS
        return recent or any(call.is_active() for call in calls)

    def _count_beats(self, key: str) -> int | None:
        """0: there are none; None: Redis does not say."""
        try:
            beat = self._heartbeats.read_heartbeat(key)
        except LivenessUnavailable:
            return None
        return beat.count if beat is not None else 0
