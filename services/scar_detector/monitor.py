"""Feeds the core and carries out what it decides: reads Redis, keeps streams open, asks, reports."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scar.errors import Busy, LivenessUnavailable, NotServing
from scar.placement import Member
from scar_detector.detector import Accuse, Action, Bar, Clear, Detector, Forget, Policy, Probe, View
from scar_detector.prober import probe
from scar_detector.reporter import Reporter
from scar_detector.watcher import Watcher
from scar_runtime.liveness import Beat, Beats

READ_SECONDS = 0.05
MAX_MEMBERS = 4096
ASK_RECOVERY = "Ask the recovery coordinator for the newest epoch"

_log = logging.getLogger(__name__)
Spawn = Callable[[str, Callable[[], None]], None]


class Monitor:
    """Two threads: ``read`` may wait for Redis, ``decide`` never does more than the core asks. The lock guards the core."""

    def __init__(self, own_key: str, beats: Beats, reporter: Reporter, policy: Policy, spawn: Spawn) -> None:
        """``own_key``: the detector's, which it does not watch. ``spawn``: starts a guarded thread."""
        self._own_key = own_key
        self._beats = beats
        self._reporter = reporter
        self._spawn = spawn
        self._core = Detector(policy)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._counts: dict[str, int] = {}  # heartbeats seen, by member key
        self._watchers: dict[str, Watcher | None] = {}  # None: the member has no address
        self._probes = ThreadPoolExecutor(max_workers=32, thread_name_prefix="probe")
        self._redis = False
        self._decided = threading.Event()
        self.looked = threading.Event()  # Redis was read, or found unreadable, at least once

    def read(self, stopping: threading.Event) -> None:
        """Read all heartbeats every 50 ms."""
        while not stopping.wait(READ_SECONDS):
            self._read_once()
            self.looked.set()

    def decide(self, stopping: threading.Event, alive: Callable[[], None]) -> None:
        """Tick every 50 ms, and at once when something has happened. ``alive`` is called each time."""
        while not stopping.is_set():
            alive()
            self._wake.wait(READ_SECONDS)
            self._wake.clear()
            with self._lock:
                actions = self._core.tick(time.monotonic())
            for action in actions:
                self._carry_out(action)
        self._decided.set()

    def beat(self, member: Member, progress: int, epoch: int) -> None:
        """A heartbeat sent to us goes on to Redis, where every detector sees it. Raises :class:`NotServing` when it must not
        renew the sender's lease: Redis is out of our reach, knows a newer epoch, or that the sender is to be accused.
        """
        with self._lock:
            redis, room = self._redis, member.key in self._watchers or len(self._watchers) < MAX_MEMBERS
            if room and not redis:
                self._hear(member, progress)
        if not room:
            raise Busy(f"{MAX_MEMBERS} members are watched already")
        if not redis:
            raise NotServing("Redis cannot be read", ASK_RECOVERY)
        standing = self._beats.beat(member, progress, epoch)
        if standing.doomed or standing.epoch > epoch:
            raise NotServing(f"{member.key} is behind, or is being declared dead", ASK_RECOVERY)

    def look(self) -> tuple[list[View], bool, str]:
        """Everybody, whether Redis answers, and why nobody is accused."""
        with self._lock:
            return self._core.view(time.monotonic()), self._redis, self._core.problem

    def close(self) -> None:
        """After ``stopping`` is set."""
        self._decided.wait(1.0)
        self._reporter.close()
        self._probes.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            watchers = list(self._watchers.values())
        for watcher in watchers:
            if watcher is not None:
                watcher.close()

    def _read_once(self) -> bool:
        """False: Redis cannot be read."""
        try:
            beats = self._beats.read()
        except LivenessUnavailable as error:
            if self._redis or not self.looked.is_set():
                _log.warning("redis.unavailable", extra={"reason": error.message})
            with self._lock:
                self._redis = False
                self._core.unheard()
            return False
        with self._lock:
            if not self._redis:
                _log.info("redis.read", extra={"members": len(beats)})
            self._redis = True
            self._core.seen()
            for beat in beats.values():
                self._take(beat)
        return True

    def _take(self, beat: Beat) -> None:
        key = beat.member.key
        if key != self._own_key and self._counts.get(key) != beat.count:
            self._counts[key] = beat.count
            self._hear(beat.member, beat.progress)

    def _hear(self, member: Member, progress: int) -> bool:
        """Called with the lock held. False: it is unknown, and there is no room for one more."""
        if member.key not in self._watchers:
            if len(self._watchers) >= MAX_MEMBERS:
                return False
            self._watchers[member.key] = self._watch(member)
            _log.info("member.met", extra={"key": member.key, "address": member.address})
        self._core.heard(member, progress, time.monotonic())
        return True

    def _watch(self, member: Member) -> Watcher | None:
        if not member.address:
            return None
        watcher = Watcher(member, self._stream_broke)
        self._spawn(f"watch-{member.name}", watcher.run)
        return watcher

    def _stream_broke(self, member: Member, hung_up: bool) -> None:
        with self._lock:
            self._core.broken(member, hung_up=hung_up)
        self._wake.set()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Probe(member):
                self._probes.submit(self._probe, member)
            case Bar(member):
                self._bar(member)
            case Accuse():
                self._accuse(action)
            case Clear(member):
                self._clear(member)
            case Forget(member):
                self._forget(member)

    def _probe(self, member: Member) -> None:
        answer = probe(member)
        with self._lock:
            self._core.probed(member, answer, time.monotonic())
        self._wake.set()

    def _bar(self, member: Member) -> None:
        """First the mark, then one more look: a heartbeat that renewed the lease came before the mark and is seen now."""
        try:
            self._beats.doom(member.key, self._own_key)
            done = self._read_once()
        except LivenessUnavailable:
            done = False
        with self._lock:
            if not done:
                self._core.unheard()
            self._core.barred(member, done=done)
        self._wake.set()

    def _accuse(self, accusation: Accuse) -> None:
        _log.warning(
            "member.accused",
            extra={"key": accusation.member.key, "proved": accusation.proved, "evidence": accusation.evidence},
        )
        self._reporter.report(accusation)

    def _clear(self, member: Member) -> None:
        _log.info("member.cleared", extra={"key": member.key})
        self._reporter.withdraw(member)
        self._try(lambda: self._beats.spare(member.key, self._own_key), member.key)

    def _forget(self, member: Member) -> None:
        """Its last heartbeat goes, too. If Redis does not let us, it is met again and proved dead again."""
        self._try(lambda: self._beats.forget(member.key), member.key)
        with self._lock:
            watcher = self._watchers.pop(member.key, None)
            self._counts.pop(member.key, None)
        if watcher is not None:
            watcher.close()

    @staticmethod
    def _try(call: Callable[[], None], key: str) -> None:
        try:
            call()
        except LivenessUnavailable as error:
            _log.warning("redis.unavailable", extra={"reason": error.message, "key": key})
