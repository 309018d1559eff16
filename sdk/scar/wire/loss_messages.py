"""Losses on the wire: a worker's part of a clock's loss, and the loss of a whole clock."""

from __future__ import annotations

from scar.losses import LossPart, LossPoint, pack_metrics
from scar.v1 import ps_pb2


def part_to_proto(part: LossPart) -> ps_pb2.LossPart:
    return ps_pb2.LossPart(
        loss=part.loss,
        rank=part.rank,
        world=part.world,
        examples=part.examples,
        total=part.total,
        counted=part.counted,
        absent=part.absent,
        metrics=dict(part.metrics),
    )


def part_from_proto(message: ps_pb2.LossPart) -> LossPart:
    """Raises :class:`scar.errors.InvalidRequest` for metrics that no worker can have logged."""
    return LossPart(
        message.loss,
        message.rank,
        message.world,
        message.examples,
        message.total,
        message.counted,
        tuple(message.absent),
        pack_metrics(message.metrics),
    )


def point_to_proto(point: LossPoint) -> ps_pb2.LossPoint:
    message = ps_pb2.LossPoint(clock=point.clock, loss=point.loss, fraction=point.fraction)
    if point.metrics:  # most have none, and a map takes longer than all the rest
        message.metrics.update(point.metrics)
    return message


def point_from_proto(message: ps_pb2.LossPoint) -> LossPoint:
    metrics = tuple(sorted(message.metrics.items())) if message.metrics else ()
    return LossPoint(message.clock, message.loss, message.fraction or 1.0, metrics)


def point_from_header(header: ps_pb2.TensorHeader) -> LossPoint | None:
    """What a shard says of its newest loss with an answer to a pull; None: it has none."""
    if not header.loss_clock:
        return None
    metrics = tuple(sorted(header.metrics.items()))
    return LossPoint(header.loss_clock - 1, header.loss, header.loss_fraction or 1.0, metrics)
