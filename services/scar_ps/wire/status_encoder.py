"""What a shard says of itself and of the copies that it keeps, as messages."""

from __future__ import annotations

from scar.blocks import BlockState
from scar.v1 import ps_pb2
from scar.wire import codec, loss_messages
from scar_ps.core.loads import UnreadableLoad
from scar_ps.core.status import ShardSummary, TableSummary
from scar_ps.core.traffic import TrafficSummary


def encode_status(summary: ShardSummary, serving: bool, problem: str) -> ps_pb2.ShardStatus:
    return ps_pb2.ShardStatus(
        member=codec.member_to_proto(summary.member),
        epoch=summary.epoch,
        clock=summary.clock,
        tables=[_encode_table(table) for table in summary.tables],
        losses=[loss_messages.point_to_proto(loss) for loss in summary.losses],
        pushes=summary.counts.pushes,
        duplicates=summary.counts.duplicates,
        stale=summary.counts.stale,
        round=summary.round,
        saved_clock=summary.saved_clock,
        saved_age=summary.saved_age,
        serving=serving,
        problem=problem,
        finished=summary.finished,
        replicas=summary.replicas,
        unreadable=[_encode_unreadable(one) for one in summary.unreadable],
        adopted=summary.adopted,
        traffic=_encode_traffic(summary.traffic),
    )


def _encode_table(table: TableSummary) -> ps_pb2.TableStatus:
    return ps_pb2.TableStatus(
        table=table.table,
        blocks=table.blocks,
        loading=table.loading,
        unsettled=table.unsettled,
        bytes=table.bytes,
        keys=_encode_keys(table),
    )


def _encode_keys(table: TableSummary) -> ps_pb2.KeyedRows | None:
    if table.keys is None:
        return None
    tally, rows, capacity = table.keys
    return ps_pb2.KeyedRows(
        rows=rows,
        capacity=capacity,
        created=tally.created,
        evicted=tally.evicted,
        expired=tally.expired,
        unadmitted=tally.unadmitted,
        refused=tally.refused,
    )


def _encode_traffic(traffic: TrafficSummary) -> ps_pb2.Traffic:
    blocks = [
        ps_pb2.BlockTraffic(
            table=table, block_ids=codec.ids_to_bytes(ids), traffic=amounts.astype("<f8").tobytes()
        )
        for table, (ids, amounts) in traffic.blocks.items()
    ]
    return ps_pb2.Traffic(seconds=traffic.seconds, bytes=int(traffic.bytes), blocks=blocks)


def _encode_unreadable(one: UnreadableLoad) -> ps_pb2.Unreadable:
    return ps_pb2.Unreadable(
        table=one.load.table,
        block_ids=codec.ids_to_bytes(one.ids),
        manifest=one.load.manifest,
        object_key=one.load.object_key,
        reason=one.reason,
    )


def encode_kept(state: BlockState) -> ps_pb2.Kept:
    """One answer to a claim."""
    return ps_pb2.Kept(
        table=state.table,
        block_ids=codec.ids_to_bytes(state.ids),
        clock=state.clock,
        watermark=dict(state.watermark),
    )
