"""``MemberService``: answers "are you alive, and does your work move?" for every process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc

from scar import codec
from scar.errors import Busy
from scar.placement import Member
from scar.v1 import member_pb2, member_pb2_grpc
from scar_runtime.heart import Heart

MAX_WATCHERS = 16  # each holds a thread of the server


class MemberServicer(member_pb2_grpc.MemberServiceServicer):
    def __init__(self, member: Member, heart: Heart) -> None:
        self._member = member
        self._heart = heart
        self._watchers: set[threading.Event] = set()
        self._closed = False
        self._lock = threading.Lock()

    def Probe(self, _request: member_pb2.ProbeRequest, _context: grpc.ServicerContext) -> member_pb2.ProbeReply:
        return self._reply()

    def Watch(self, _request: member_pb2.ProbeRequest, context: grpc.ServicerContext) -> Iterator[member_pb2.ProbeReply]:
        ended = threading.Event()
        with self._lock:
            if self._closed or len(self._watchers) >= MAX_WATCHERS:
                raise Busy(f"{self._member.key} is watched by {len(self._watchers)} already, or is stopping")
            self._watchers.add(ended)
        try:
            if context.add_callback(ended.set):
                yield self._reply()
                ended.wait()
        finally:
            with self._lock:
                self._watchers.discard(ended)

    def close(self) -> None:
        """End every watch: this process is about to go."""
        with self._lock:
            self._closed = True
            for ended in self._watchers:
                ended.set()

    def _reply(self) -> member_pb2.ProbeReply:
        heart = self._heart
        return member_pb2.ProbeReply(
            member=codec.member_to_proto(self._member),
            progress=heart.progress,
            epoch=heart.epoch,
            idle=heart.idle,
            lapsed=heart.epoch > 0 and not heart.lease_valid(),
        )
