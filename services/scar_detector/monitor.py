"""Carries out what the core decides, and turns what happens into events: heartbeats, broken streams, answers.

One thread handles all events in the order in which they came; another one reads Redis, which may take long.
Streams, probes and reports have threads of their own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scar.errors import Busy, LivenessUnavailable, NotServing
from scar.event_log import StorySource
from scar.placement import Member
from scar.wire.timing import TIMING
from scar_detector.core.detector import Detector
from scar_detector.core.events import (
    URGENT_EVENTS,
    AccuseMember,
    BlockLease,
    ClearSuspicion,
    DetectorAction,
    DetectorEvent,
    ForgetMember,
    HeartbeatSeen,
    LeaseBlocked,
    ProbeAnswered,
    ProbeMember,
    RedisRead,
    RedisUnreadable,
    SendReport,
    StreamBroken,
    Tick,
    WatchMember,
)
from scar_detector.core.member_state import DetectorView
from scar_detector.core.policy import DetectorPolicy
from scar_detector.prober import probe_member
from scar_detector.reporter import DeathReporter
from scar_detector.watch_list import SpawnThread, WatchList
from scar_runtime.liveness.heartbeat_store import HeartbeatStore

READ_SECONDS = TIMING.read_every
TICK_SECONDS = 1.5 * READ_SECONDS  # a look around that no read of Redis has brought by then
ASK_RECOVERY = "Ask the recovery coordinator for the newest epoch"

_log = logging.getLogger(__name__)


class Monitor:
    """The lock guards the core, which others may look at."""

    def __init__(
        self,
        own_key: str,
        heartbeats: HeartbeatStore,
        reporter: DeathReporter,
        policy: DetectorPolicy,
        spawn: SpawnThread,
    ) -> None:
        """``own_key``: the detector's, which it does not watch. ``spawn``: starts a guarded thread."""
        self._own_key = own_key
        self._heartbeats = heartbeats
        self._reporter = reporter
        self._policy = policy
        self._core = Detector(policy)
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[tuple[float, DetectorEvent]] = queue.SimpleQueue()
        self._next_tick = time.monotonic()
        self._counts: dict[str, int] = {}  # heartbeats seen, by member key
        self._reading = threading.Lock()  # one read at a time, handed in before the next begins
        self._watches = WatchList(spawn, lambda one, hung_up: self._post(StreamBroken(one, hung_up)))
        self._probes = ThreadPoolExecutor(max_workers=32, thread_name_prefix="probe")
        self._redis_readable = False
        self._decided = threading.Event()
        self.has_read = threading.Event()  # Redis was read, or found unreadable, at least once

    # --- threads

    def read_heartbeats(self, stopping: threading.Event) -> None:
        """Read all heartbeats, twice per heartbeat interval."""
        while not stopping.wait(READ_SECONDS):
            self._read_once()
            self.has_read.set()

    def run(self, stopping: threading.Event, alive: Callable[[], None]) -> None:
        """Handle events as they come, and let the core look around as often as Redis is read.

        ``alive`` is called each time.
        """
        while not stopping.is_set():
            alive()
            self._turn()
            self._watches.rotate()
        self._decided.set()

    def close(self) -> None:
        """After ``stopping`` is set."""
        self._decided.wait(1.0)
        self._reporter.close()
        self._probes.shutdown(wait=False, cancel_futures=True)
        self._watches.close()

    # --- calls

    def accept_beat(self, member: Member, progress: int, epoch: int) -> None:
        """A heartbeat sent to us goes on to Redis, where every detector sees it. Raises :class:`NotServing`
        when it must not renew the sender's lease: Redis is out of our reach, knows a newer epoch, or that the
        sender is to be accused.
        """
        with self._lock:
            has_room = self._core.has_room(member)
        if not has_room:
            raise Busy(f"{self._policy.max_members} members are watched already")
        if not self._redis_readable:
            self._post(HeartbeatSeen(member, progress))
            raise NotServing("Redis cannot be read", ASK_RECOVERY)
        standing = self._heartbeats.record_heartbeat(member, progress, epoch)
        if standing.lease_blocked or standing.epoch > epoch:
            raise NotServing(f"{member.key} is behind, or is being declared dead", ASK_RECOVERY)

    def list_members(self) -> tuple[list[DetectorView], bool, str]:
        """Everybody, whether Redis answers, and why nobody is accused."""
        with self._lock:
            return self._core.list_members(time.monotonic()), self._redis_readable, self._core.problem

    def story(self) -> StorySource:
        return StorySource("detector", self._core.story, time.monotonic)

    # --- events

    def _post(self, event: DetectorEvent) -> None:
        self._events.put((time.monotonic(), event))

    def _turn(self) -> None:
        """Handle what waits; then a tick, if heartbeats were read, one is due, or something has happened
        that cannot wait.
        """
        urgent = False
        for when, event in self._wait_for_events():
            self._handle(event, when)
            urgent = urgent or isinstance(event, (*URGENT_EVENTS, RedisRead))
        now = time.monotonic()
        if urgent or now >= self._next_tick:
            self._next_tick = now + TICK_SECONDS
            self._handle(Tick(), now)

    def _wait_for_events(self) -> list[tuple[float, DetectorEvent]]:
        """All that wait now, or the next one; none when the next tick is due before."""
        try:
            found = [self._events.get(timeout=max(0.0, self._next_tick - time.monotonic()))]
        except queue.Empty:
            return []
        for _ in range(self._events.qsize()):
            found.append(self._events.get())
        return found

    def _handle(self, event: DetectorEvent, now: float) -> None:
        with self._lock:
            actions = self._core.handle(event, now)
        for action in actions:
            self._carry_out(action)

    def _read_once(self) -> bool:
        """False: Redis cannot be read."""
        with self._reading:
            try:
                heartbeats = self._heartbeats.read_heartbeats()
            except LivenessUnavailable as error:
                if self._redis_readable or not self.has_read.is_set():
                    _log.warning("redis.unavailable", extra={"reason": error.message})
                self._redis_readable = False
                self._post(RedisUnreadable())
                return False
            if not self._redis_readable:
                _log.info("redis.read", extra={"members": len(heartbeats)})
            self._redis_readable = True
            fresh = []
            for key, beat in heartbeats.items():
                if key != self._own_key and self._counts.get(key) != beat.count:
                    self._counts[key] = beat.count
                    fresh.append(HeartbeatSeen(beat.member, beat.progress))
            self._post(RedisRead(tuple(fresh)))
        return True

    # --- actions

    def _carry_out(self, action: DetectorAction) -> None:
        match action:
            case WatchMember(member):
                self._watch_member(member)
            case ProbeMember(member):
                self._probes.submit(self._probe_member, member)
            case BlockLease(member):
                self._block_lease(member)
            case AccuseMember():
                self._log_accusation(action)
            case SendReport():
                self._reporter.send_report(action, self._post)
            case ClearSuspicion(member):
                self._unblock_lease(member)
            case ForgetMember(member):
                self._forget_member(member)

    def _watch_member(self, member: Member) -> None:
        _log.info("member.met", extra={"key": member.key, "address": member.address})
        self._watches.add(member)

    def _probe_member(self, member: Member) -> None:
        self._post(ProbeAnswered(member, probe_member(member)))

    def _block_lease(self, member: Member) -> None:
        """First the mark, then one more look: a heartbeat that renewed the lease came before the mark and
        is seen now.
        """
        try:
            self._heartbeats.block_lease(member.key, self._own_key)
            done = self._read_once()
        except LivenessUnavailable:
            self._post(RedisUnreadable())
            done = False
        self._post(LeaseBlocked(member, done))

    def _unblock_lease(self, member: Member) -> None:
        _log.info("member.cleared", extra={"key": member.key})
        try:
            self._heartbeats.unblock_lease(member.key, self._own_key)
        except LivenessUnavailable as error:
            _log_unavailable(error, member)

    def _forget_member(self, member: Member) -> None:
        """Its last heartbeat goes, too. If Redis does not let us, it is met again and proved dead again."""
        try:
            self._heartbeats.forget_member(member.key)
        except LivenessUnavailable as error:
            _log_unavailable(error, member)
        with self._reading:
            self._counts.pop(member.key, None)
        self._watches.remove(member.key)

    @staticmethod
    def _log_accusation(accusation: AccuseMember) -> None:
        key = accusation.member.key
        fields = {"key": key, "proved": accusation.proved, "evidence": accusation.evidence}
        _log.warning("member.accused", extra=fields)


def _log_unavailable(error: LivenessUnavailable, member: Member) -> None:
    _log.warning("redis.unavailable", extra={"reason": error.message, "key": member.key})
