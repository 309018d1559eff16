"""Streams to all members that beat: those who have answered keep theirs, the others share a few.

Anybody can send a heartbeat in the name of a member that is not there, and each stream costs a thread and a
connection that is tried again and again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from scar.placement import Member
from scar_detector.death_watch import DeathWatch

MAX_STRANGERS = 32  # streams at once to members that have never answered
STRANGER_SECONDS = 5.0  # how long one of them may try while others wait

SpawnThread = Callable[[str, Callable[[], None]], None]


class WatchList:
    """``spawn``: starts a guarded thread. ``on_broken``: see :class:`DeathWatch`. Any thread may call."""

    def __init__(self, spawn: SpawnThread, on_broken: Callable[[Member, bool], None]) -> None:
        self._spawn = spawn
        self._on_broken = on_broken
        self._watches: dict[str, DeathWatch] = {}  # by member key
        self._strangers: dict[str, float] = {}  # those of them that have never answered: since when
        self._waiting: dict[str, Member] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, member: Member) -> None:
        if not member.address:
            return
        with self._lock:
            self._waiting[member.key] = member
            self._start_waiting()

    def remove(self, key: str) -> None:
        with self._lock:
            self._waiting.pop(key, None)
            watch = self._drop(key)
            self._start_waiting()
        if watch is not None:
            watch.close()

    def rotate(self) -> None:
        """Strangers that have had their time make room for those who wait, and wait themselves."""
        oldest = time.monotonic() - STRANGER_SECONDS
        with self._lock:
            ended = []
            overdue = [key for key, since in self._strangers.items() if since < oldest]
            for key in overdue[: len(self._waiting)]:
                watch = self._drop(key)
                assert watch is not None
                ended.append(watch)
                self._waiting[key] = watch.member
            self._start_waiting()
        for watch in ended:
            watch.close()

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
            watches = list(self._watches.values())
        for watch in watches:
            watch.close()

    def _start_waiting(self) -> None:
        """As many as there is room for. The lock is held."""
        for key in list(self._waiting)[: MAX_STRANGERS - len(self._strangers)]:
            member = self._waiting.pop(key)
            self._strangers[key] = time.monotonic()
            watch = self._watches[key] = DeathWatch(member, self._on_broken, self._note_answer)
            self._spawn(f"watch-{member.name}", watch.run)

    def _drop(self, key: str) -> DeathWatch | None:
        self._strangers.pop(key, None)
        return self._watches.pop(key, None)

    def _note_answer(self, watch: DeathWatch) -> None:
        """It is who it says that it is."""
        with self._lock:
            if self._watches.get(watch.member.key) is watch:
                self._strangers.pop(watch.member.key, None)
                self._start_waiting()
