"""A process is asked for its story over the wire."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from scar.event_log import EventRing, StorySource
from scar.placement import Member, Role
from scar.v1 import member_pb2, member_pb2_grpc
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.member_servicer import MemberServicer
from scar_runtime.process.server import bind_port, make_server

SHARD = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa")


@dataclass(frozen=True)
class EpochAdopted:
    number: int


@dataclass(frozen=True)
class LoadBlocks:
    table: str


def test_every_process_tells_its_story() -> None:
    ring = EventRing()
    for number in range(5):
        ring.note(blocks=number)
        ring.record(10.0 + number, EpochAdopted(number), [LoadBlocks("w")])
    sources = [StorySource("shard", ring, lambda: 20.0)]
    server = make_server(workers=4)
    servicer = MemberServicer(SHARD, ProgressMonitor(), lambda: sources)
    member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(address) as channel:
        stub = member_pb2_grpc.MemberServiceStub(channel)
        whole = stub.GetStory(member_pb2.GetStoryRequest(), timeout=5)
        newest = stub.GetStory(member_pb2.GetStoryRequest(last=1), timeout=5)
    server.stop(0).wait(5)
    assert whole.member.name == "ps-0"
    assert [entry.event.fields[0].value for entry in whole.entries] == ["0", "1", "2", "3", "4"]
    (entry,) = newest.entries
    assert (entry.core, entry.event.name, entry.facts[0].value) == ("shard", "EpochAdopted", "4")
    assert [action.name for action in entry.actions] == ["LoadBlocks"]
