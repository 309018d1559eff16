"""The heartbeat of a process, every 100 ms: to Redis; where that fails, to the detector; where that fails, to recovery.

Each accepted one renews the lease, counted from before it was sent. A shard whose working thread is stuck falls silent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar import codec
from scar.errors import Fenced, LivenessUnavailable, ScarError
from scar.placement import Member, Role
from scar.transport import DETECTOR, RECOVERY, Link
from scar.v1 import detector_pb2, detector_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar_runtime.heart import Heart
from scar_runtime.liveness import Beats
from scar_runtime.metrics import BEATS

BEAT_SECONDS = 0.1
CALL_SECONDS = 0.3  # three paths that fail one after the other still fit into a lease
REDIS_PAUSE_SECONDS = 1.0  # after a failure; its timeout must not slow the other paths' beats
LAST_SECONDS = 2.0  # for the beat that is under way when the process ends
CONFIRM_SECONDS = 0.25  # between questions to recovery while the lease is lost

_log = logging.getLogger(__name__)


class Pulse:
    """Run by the chassis in a thread of its own. ``recovery``, ``detector``: host:port; empty: there is none."""

    def __init__(self, member: Member, heart: Heart, beats: Beats, *, detector: str, recovery: str) -> None:
        self._member = member
        self._heart = heart
        self._beats = beats
        self._detector = Link(detector, "detector", DETECTOR) if detector else None
        self._recovery = Link(recovery, "recovery", RECOVERY) if recovery and member.role is Role.SHARD else None
        self._redis_after = self._confirm_after = 0.0
        self._path = ""
        self._beating = threading.Lock()  # held for each beat, and for good once there are to be no more

    def run(self, stopping: threading.Event) -> None:
        """Beat until ``stopping`` is set. Raises :class:`Fenced` when recovery says that this incarnation is out."""
        while not stopping.is_set():  # the first at once: who has never beaten is not missed when it dies
            if self._member.role is not Role.SHARD or not self._heart.stuck:
                if not self._beating.acquire(blocking=False):
                    return
                try:
                    self.once()
                finally:
                    self._beating.release()
            stopping.wait(BEAT_SECONDS)

    def once(self) -> None:
        renewed = self._first(("redis", self._to_redis), ("detector", self._to_detector))
        if not renewed or (self._member.role is Role.SHARD and not self._heart.lease_valid()):
            self._to_recovery()

    def close(self) -> None:
        """Leave no heartbeat behind that would make the detector look for us: the one that is under way goes first."""
        self._beating.acquire(timeout=LAST_SECONDS)
        try:
            self._beats.forget(self._member.key)
        except LivenessUnavailable:
            _log.info("beat.left_behind", extra={"key": self._member.key})
        self._beats.close()
        for link in (self._detector, self._recovery):
            if link is not None:
                link.close()

    def _first(self, *paths: tuple[str, Callable[[float], bool]]) -> bool:
        """Send a beat on the first path that works. False: none did, or it says that we are behind or about to be accused."""
        for name, send in paths:
            asked = self._heart.now()
            try:
                renewed = send(asked)
            except ScarError as error:
                _log.debug("beat.failed", extra={"path": name, "reason": error.message})
                continue
            self._taken(name)
            if renewed:
                self._heart.renew(asked)
            return renewed
        return False

    def _to_redis(self, asked: float) -> bool:
        if asked < self._redis_after:
            raise LivenessUnavailable("Redis failed a moment ago")
        try:
            standing = self._beats.beat(self._member, self._heart.progress, self._heart.epoch)
        except LivenessUnavailable:
            self._redis_after = self._heart.now() + REDIS_PAUSE_SECONDS
            raise
        return standing.epoch <= self._heart.epoch and not standing.doomed

    def _to_detector(self, _asked: float) -> bool:
        if self._detector is None:
            raise LivenessUnavailable("no detector is configured")
        request = detector_pb2.BeatRequest(
            member=codec.member_to_proto(self._member), progress=self._heart.progress, epoch=self._heart.epoch
        )
        self._detector.call(detector_pb2_grpc.DetectorStub(self._detector.channel).Beat, request, CALL_SECONDS)
        return True

    def _to_recovery(self) -> None:
        """The last resort, and the only way back once the lease is lost: recovery knows the newest epoch for certain."""
        asked = self._heart.now()
        if self._recovery is None or self._heart.epoch == 0 or asked < self._confirm_after:
            return
        self._confirm_after = asked + CONFIRM_SECONDS
        request = recovery_pb2.RenewRequest(member=codec.member_to_proto(self._member))
        try:
            reply = self._recovery.call(recovery_pb2_grpc.RecoveryStub(self._recovery.channel).Renew, request, CALL_SECONDS)
        except Fenced:
            raise
        except ScarError as error:
            _log.debug("beat.failed", extra={"path": "recovery", "reason": error.message})
            return
        if reply.epoch == self._heart.epoch:
            self._taken("recovery")
            self._heart.renew(asked, confirmed=True)

    def _taken(self, path: str) -> None:
        if path != self._path:
            _log.info("beat.path", extra={"path": path, "before": self._path or "none"})
            for name in ("redis", "detector", "recovery"):
                BEATS.labels(name).set(name == path)
            self._path = path


def await_redis(beats: Beats, seconds: float) -> None:
    """Wait at most this long for Redis. Raises the last :class:`LivenessUnavailable`."""
    end = time.monotonic() + seconds
    while True:
        try:
            return beats.ping()
        except LivenessUnavailable:
            if time.monotonic() >= end:
                raise
        time.sleep(0.2)
