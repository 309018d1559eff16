"""``MemberService``: "are you alive, does your work move, why did you do that?", for every process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import grpc

from scar.errors import Busy
from scar.event_log import StorySource
from scar.placement import Member
from scar.v1 import member_pb2, member_pb2_grpc
from scar.version import PROTOCOL
from scar.wire import codec
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.story_codec import story_to_proto

MAX_WATCHERS = 16  # each holds a thread of the server


class MemberServicer(member_pb2_grpc.MemberServiceServicer):
    """``stories``: of the cores that this process runs now."""

    def __init__(
        self,
        member: Member,
        liveness: ProgressMonitor,
        stories: Callable[[], Sequence[StorySource]] = tuple,
    ) -> None:
        self._member = member
        self._stories = stories
        self._liveness = liveness
        self._watchers: set[threading.Event] = set()
        self._closed = False
        self._lock = threading.Lock()

    def Probe(
        self, _request: member_pb2.ProbeRequest, _context: grpc.ServicerContext
    ) -> member_pb2.ProbeReply:
        return self._probe_reply()

    def Watch(
        self, _request: member_pb2.ProbeRequest, context: grpc.ServicerContext
    ) -> Iterator[member_pb2.ProbeReply]:
        ended = threading.Event()
        with self._lock:
            if self._closed or len(self._watchers) >= MAX_WATCHERS:
                raise Busy(f"{self._member.key} is watched by {len(self._watchers)} already, or is stopping")
            self._watchers.add(ended)
        try:
            if context.add_callback(ended.set):
                yield self._probe_reply()
                ended.wait()
        finally:
            with self._lock:
                self._watchers.discard(ended)

    def GetStory(
        self, request: member_pb2.GetStoryRequest, _context: grpc.ServicerContext
    ) -> member_pb2.GetStoryReply:
        return member_pb2.GetStoryReply(
            member=codec.member_to_proto(self._member),
            entries=story_to_proto(self._stories(), request.last),
        )

    def close(self) -> None:
        """End every watch: this process is about to go."""
        with self._lock:
            self._closed = True
            for ended in self._watchers:
                ended.set()

    def _probe_reply(self) -> member_pb2.ProbeReply:
        liveness = self._liveness
        return member_pb2.ProbeReply(
            member=codec.member_to_proto(self._member),
            progress=liveness.progress,
            epoch=liveness.epoch,
            idle=liveness.idle_seconds,
            lapsed=liveness.epoch > 0 and not liveness.lease_valid(),
            protocol=PROTOCOL,
        )
