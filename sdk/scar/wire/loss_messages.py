"""Losses on the wire: a worker's part of a clock's loss, and the loss of a whole clock."""

from __future__ import annotations

from scar.losses import LossPart, LossPoint
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
    )


def part_from_proto(message: ps_pb2.LossPart) -> LossPart:
    return LossPart(
        message.loss,
        message.rank,
        message.world,
        message.examples,
        message.total,
        message.counted,
        tuple(message.absent),
    )


def point_to_proto(point: LossPoint) -> ps_pb2.LossPoint:
    return ps_pb2.LossPoint(clock=point.clock, loss=point.loss, fraction=point.fraction)


def point_from_proto(message: ps_pb2.LossPoint) -> LossPoint:
    return LossPoint(message.clock, message.loss, message.fraction or 1.0)


def point_from_header(header: ps_pb2.TensorHeader) -> LossPoint | None:
    """What a shard says of its newest loss with an answer to a pull; None: it has none."""
    if not header.loss_clock:
        return None
    return LossPoint(header.loss_clock - 1, header.loss, header.loss_fraction or 1.0)
