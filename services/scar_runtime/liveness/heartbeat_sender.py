"""The heartbeat of a process: to Redis; where that fails, to the detector; where that fails, to
recovery.

Each accepted one renews the lease, counted from before it was sent. A shard whose working thread is stuck
falls silent. A worker runs a user's code, so it has no way to Redis: the detector hands its heartbeats on.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from scar.errors import Fenced, LivenessUnavailable, ScarError
from scar.placement import Member, Role
from scar.v1 import detector_pb2, detector_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar.version import PROTOCOL
from scar.wire import codec
from scar.wire.timing import TIMING
from scar.wire.transport import DETECTOR, RECOVERY, Link
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.metrics import BEATS

BEAT_SECONDS = TIMING.heartbeat
CALL_SECONDS = TIMING.beat_timeout
REDIS_PAUSE_SECONDS = TIMING.redis_pause
LAST_SECONDS = 2.0  # for the beat that is under way when the process ends
CONFIRM_SECONDS = TIMING.confirm_every

_log = logging.getLogger(__name__)


class HeartbeatSender:
    """Run by the chassis in a thread of its own. ``heartbeats``: None for a process without Redis.
    ``secret``: of the member, for recovery. ``recovery``, ``detector``: host:port; empty: there is none.
    """

    def __init__(
        self,
        member: Member,
        liveness: ProgressMonitor,
        heartbeats: HeartbeatStore | None,
        *,
        secret: bytes,
        detector: str,
        recovery: str,
    ) -> None:
        self._member = member
        self._secret = secret
        self._liveness = liveness
        self._heartbeats = heartbeats
        self._detector = Link(detector, "detector", DETECTOR) if detector else None
        self._recovery = (
            Link(recovery, "recovery", RECOVERY) if recovery and member.role is Role.SHARD else None
        )
        self._paths = {"detector": self._send_to_detector}
        if heartbeats is not None:
            self._paths = {"redis": partial(self._send_to_redis, heartbeats), **self._paths}
        self._redis_after = self._confirm_after = 0.0
        self._path = ""
        self._beating = threading.Lock()  # held for each beat, and for good once there are to be no more

    def run(self, stopping: threading.Event) -> None:
        """Beat until ``stopping`` is set. Raises :class:`Fenced` when recovery says that this incarnation
        is out.
        """
        while not stopping.is_set():  # the first at once: who has never beaten is not missed when it dies
            if self._member.role is not Role.SHARD or not self._liveness.is_stuck:
                if not self._beating.acquire(blocking=False):
                    return
                try:
                    self.send_heartbeat()
                finally:
                    self._beating.release()
            stopping.wait(BEAT_SECONDS)

    def send_heartbeat(self) -> None:
        renewed = self._send_on_first_path()
        if not renewed or (self._member.role is Role.SHARD and not self._liveness.lease_valid()):
            self._ask_recovery()

    def close(self) -> None:
        """Leave no heartbeat behind that would make the detector look for us: the one that is under way
        goes first.
        """
        self._beating.acquire(timeout=LAST_SECONDS)
        if self._heartbeats is not None:
            self._forget_beats(self._heartbeats)
        for link in (self._detector, self._recovery):
            if link is not None:
                link.close()

    def _forget_beats(self, heartbeats: HeartbeatStore) -> None:
        try:
            heartbeats.forget_member(self._member.key)
        except LivenessUnavailable:
            _log.info("beat.left_behind", extra={"key": self._member.key})
        heartbeats.close()

    def _send_on_first_path(self) -> bool:
        """Send a beat on the first path that works. False: none did, or it says that we are behind or
        about to be accused.
        """
        for name, send in self._paths.items():
            asked = self._liveness.now()
            try:
                renewed = send(asked)
            except ScarError as error:
                _log.debug("beat.failed", extra={"path": name, "reason": error.message})
                continue
            self._note_path(name)
            if renewed:
                self._liveness.renew_lease(asked)
            return renewed
        return False

    def _send_to_redis(self, heartbeats: HeartbeatStore, asked: float) -> bool:
        if asked < self._redis_after:
            raise LivenessUnavailable("Redis failed a moment ago")
        try:
            standing = heartbeats.record_heartbeat(
                self._member, self._liveness.progress, self._liveness.epoch, PROTOCOL
            )
        except LivenessUnavailable:
            self._redis_after = self._liveness.now() + REDIS_PAUSE_SECONDS
            raise
        return standing.epoch <= self._liveness.epoch and not standing.lease_blocked

    def _send_to_detector(self, _asked: float) -> bool:
        if self._detector is None:
            raise LivenessUnavailable("no detector is configured")
        request = detector_pb2.BeatRequest(
            member=codec.member_to_proto(self._member),
            progress=self._liveness.progress,
            epoch=self._liveness.epoch,
        )
        self._detector.call(
            detector_pb2_grpc.DetectorStub(self._detector.channel).Beat, request, CALL_SECONDS
        )
        return True

    def _ask_recovery(self) -> None:
        """The last resort, and the only way back once the lease is lost: recovery knows the newest epoch
        for certain.
        """
        asked = self._liveness.now()
        if self._recovery is None or self._liveness.epoch == 0 or asked < self._confirm_after:
            return
        self._confirm_after = asked + CONFIRM_SECONDS
        request = recovery_pb2.RenewRequest(member=codec.member_to_proto(self._member), secret=self._secret)
        try:
            reply = self._recovery.call(
                recovery_pb2_grpc.RecoveryStub(self._recovery.channel).Renew, request, CALL_SECONDS
            )
        except Fenced:
            raise
        except ScarError as error:
            _log.debug("beat.failed", extra={"path": "recovery", "reason": error.message})
            return
        if reply.epoch == self._liveness.epoch:
            self._note_path("recovery")
            self._liveness.renew_lease(asked, confirmed=True)

    def _note_path(self, path: str) -> None:
        if path != self._path:
            _log.info("beat.path", extra={"path": path, "before": self._path or "none"})
            for name in (*self._paths, *(["recovery"] if self._recovery is not None else [])):
                BEATS.labels(name).set(name == path)
            self._path = path


def await_redis(heartbeats: HeartbeatStore, seconds: float) -> None:
    """Wait at most this long for Redis. Raises the last :class:`LivenessUnavailable`."""
    end = time.monotonic() + seconds
    while True:
        try:
            return heartbeats.ping()
        except LivenessUnavailable:
            if time.monotonic() >= end:
                raise
        time.sleep(0.2)
