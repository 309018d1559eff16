"""Rounds as messages: what shards are asked, and what they answer."""

from __future__ import annotations

from scar.errors import InvalidRequest
from scar.tables import Job
from scar.v1 import checkpoint_pb2, ps_pb2
from scar_checkpoint.core.events import (
    CopyBlocks,
    CountKeys,
    DistancesMeasured,
    FinishRound,
    KeysCounted,
    MeasureDistances,
)
from scar_checkpoint.core.rounds import RoundSummary
from scar_runtime.checkpoint.selection_codec import counts_from_proto, write_selection
from scar_runtime.checkpoint.top_keys import KeyRange


def distances_request(action: MeasureDistances, author: str) -> ps_pb2.DistancesRequest:
    return ps_pb2.DistancesRequest(
        epoch=action.epoch,
        round=action.round,
        min_clock=action.min_clock,
        skip=action.skip,
        author=author,
    )


def save_request(action: CopyBlocks) -> ps_pb2.SaveRequest:
    request = ps_pb2.SaveRequest(epoch=action.epoch, round=action.round)
    if action.baselines is not None:
        request.changed_rows = True
        request.baselines.extend(action.baselines)
    write_selection(action.selection, request)
    return request


def finish_request(action: FinishRound, author: str) -> ps_pb2.FinishRequest:
    return ps_pb2.FinishRequest(
        round=action.round,
        committed=action.committed,
        manifest=action.manifest,
        author=author,
        object_key=action.object_key,
    )


def count_request(action: CountKeys) -> ps_pb2.CountRequest:
    return ps_pb2.CountRequest(
        epoch=action.epoch, round=action.round, depth=action.within.depth, prefix=action.within.prefix
    )


def measured_from_proto(
    job: Job, action: MeasureDistances, reply: ps_pb2.DistancesReply
) -> DistancesMeasured:
    """Raises :class:`InvalidRequest` for what no shard of this job could have measured."""
    if reply.settled > job.blocks:
        raise InvalidRequest(f"{reply.settled} blocks in a job of {job.blocks}")
    counts = counts_from_proto(reply.counts, KeyRange(), job.blocks)
    return DistancesMeasured(action.round, action.shard.key, reply.clock, reply.settled, counts)


def counted_from_proto(job: Job, action: CountKeys, reply: ps_pb2.CountReply) -> KeysCounted:
    """Raises :class:`InvalidRequest` for what no shard of this job could have counted."""
    counts = counts_from_proto(reply.counts, action.within, job.blocks)
    return KeysCounted(action.round, action.shard.key, action.within, counts)


def summary_to_proto(summary: RoundSummary) -> checkpoint_pb2.RoundReport:
    return checkpoint_pb2.RoundReport(
        round=summary.round,
        manifest=summary.manifest,
        clock=summary.clock,
        blocks_total=summary.blocks_total,
        blocks_saved=summary.blocks_saved,
        bytes=summary.bytes,
        select_seconds=summary.select_seconds,
        copy_seconds=summary.copy_seconds,
        stall_seconds=summary.stall_seconds,
        commit_seconds=summary.commit_seconds,
        missed=summary.missed,
        error=summary.error,
        unchanged=summary.unchanged,
    )
