"""Why did a process do what it did? Asks it for its story: the last events that its cores have handled."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from scar.errors import ConfigError, from_rpc
from scar.placement import Role
from scar.v1 import member_pb2, member_pb2_grpc, types_pb2
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus

STORY_SECONDS = 3.0  # that a process may take to answer
KINDS = {
    types_pb2.ROLE_SHARD: "ps",
    types_pb2.ROLE_WORKER: "worker",
    types_pb2.ROLE_CHECKPOINT: "checkpoint",
    types_pb2.ROLE_RECOVERY: "recovery",
    types_pb2.ROLE_DETECTOR: "detector",
}


def read_story(observer: ClusterObserver, name: str, last: int = 0) -> member_pb2.GetStoryReply:
    """``name``: as `scar status` has it, or a kind and a number ("recovery-0") where names are a platform's;
    ``last``: entries at most, 0: all. Raises :class:`ConfigError` for a name that nobody has, else what the
    process answers.
    """
    member = find_member(observer.read(), name)
    stub = member_pb2_grpc.MemberServiceStub(observer.channel_to(member.address, Role(member.role).label))
    try:
        reply: member_pb2.GetStoryReply = stub.GetStory(
            member_pb2.GetStoryRequest(last=last), timeout=STORY_SECONDS
        )
    except grpc.RpcError as error:
        raise from_rpc(error, name) from error
    return reply


def find_member(status: ClusterStatus, name: str) -> types_pb2.Member:
    """The member of this name, of all that anybody knows. Raises :class:`ConfigError`."""
    known = _known_members(status)
    if name in known:
        return known[name]
    kind, _, number = name.rpartition("-")
    alike = [known[other] for other in sorted(known) if KINDS.get(known[other].role) == kind]
    if number.isdigit() and int(number) < len(alike):
        return alike[int(number)]
    raise ConfigError(
        f"no process {name!r} is known", f"Choose one of {', '.join(sorted(known)) or 'none: nobody answers'}"
    )


def _known_members(status: ClusterStatus) -> Mapping[str, types_pb2.Member]:
    """By name, the newest knowledge last: the detector's, recovery's, the epoch's."""
    members = [view.member for view in status.members.values()]
    members += status.recovery.members if status.recovery else ()
    if status.epoch:
        members += [*status.epoch.shards, *status.epoch.workers]
    return {member.name: member for member in members if member.address}
