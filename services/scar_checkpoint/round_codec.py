"""Rounds as messages: what shards are asked, and what they answer."""

from __future__ import annotations

import numpy as np

from scar.errors import InvalidRequest
from scar.tables import Job
from scar.v1 import checkpoint_pb2, ps_pb2
from scar.wire.codec import ids_from_bytes
from scar_checkpoint.core.events import CopyBlocks, FinishRound, MeasureDistances
from scar_checkpoint.core.rounds import RoundSummary
from scar_runtime.checkpoint.selection import DistanceReport
from scar_runtime.checkpoint.selection_codec import write_selection


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


def reports_from_proto(job: Job, reply: ps_pb2.DistancesReply, skipped: bool) -> tuple[DistanceReport, ...]:
    """Raises :class:`scar.errors.ScarError` for what no shard of this job could have measured."""
    return tuple(_report_from_proto(job, entry, skipped) for entry in reply.tables)


def _report_from_proto(job: Job, entry: ps_pb2.TableDistances, skipped: bool) -> DistanceReport:
    ids = ids_from_bytes(entry.block_ids, job.table(entry.table).blocks)
    if len(entry.distances) != (0 if skipped else 4 * len(ids)):
        raise InvalidRequest(
            f"table {entry.table}: {len(entry.distances)} bytes of distances for {len(ids)} blocks"
        )
    return entry.table, ids, np.frombuffer(entry.distances, dtype="<f4")


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
        commit_seconds=summary.commit_seconds,
        missed=summary.missed,
        error=summary.error,
    )
