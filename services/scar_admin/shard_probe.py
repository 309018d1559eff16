"""Whether the shards that an epoch names are there, asked without a recovery coordinator."""

from __future__ import annotations

from collections.abc import Iterable

from scar.v1.ps_pb2 import ShardStatusRequest
from scar.v1.ps_pb2_grpc import ShardControlStub
from scar.v1.types_pb2 import Member
from scar_admin.channels import ChannelCache
from scar_admin.observer import StatusSweep

ANSWER_SECONDS = 1.0  # for a shard to say that it is there


def any_shard_answers(shards: Iterable[Member]) -> bool:
    """Another process at the address of one is another incarnation, and does not count."""
    channels = ChannelCache()
    sweep = StatusSweep(ANSWER_SECONDS)
    try:
        answers = {
            shard.incarnation: sweep.ask(
                shard.name,
                ShardControlStub(channels.channel_to(shard.address)).Status,
                ShardStatusRequest(),
            )
            for shard in shards
        }
        replies = {incarnation: answer() for incarnation, answer in answers.items()}
    finally:
        channels.close()
    return any(
        reply is not None and reply.member.incarnation == incarnation
        for incarnation, reply in replies.items()
    )
