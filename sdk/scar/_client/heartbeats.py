"""Heartbeats of a worker that runs without a service chassis, straight to the failure detector."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scar.errors import ScarError
from scar.placement import Member
from scar.v1 import detector_pb2, detector_pb2_grpc
from scar.wire import codec
from scar.wire.timing import TIMING
from scar.wire.transport import DETECTOR, Link

BEAT_SECONDS = TIMING.heartbeat
CALL_SECONDS = 1.0


class HeartbeatStream:
    """One beat per heartbeat interval from a thread of its own until closed. ``state`` tells (progress, epoch
    number).
    """

    def __init__(self, detector: str, member: Member, state: Callable[[], tuple[int, int]]) -> None:
        self._member = codec.member_to_proto(member)
        self._state = state
        self._link = Link(detector, "detector", DETECTOR)
        self._stub = detector_pb2_grpc.DetectorStub(self._link.channel)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scar-beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._link.close()
        self._thread.join(CALL_SECONDS)

    def _run(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            progress, epoch = self._state()
            beat = detector_pb2.BeatRequest(member=self._member, progress=progress, epoch=epoch)
            try:
                self._link.call(self._stub.Beat, beat, CALL_SECONDS)
            except ScarError:
                continue  # the next beat is the retry; a detector that is away accuses nobody
