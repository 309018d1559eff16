"""Checkpoint policies as messages."""

from __future__ import annotations

from dataclasses import asdict

from scar.checkpoints import Checkpoint, CheckpointBudget
from scar.v1 import types_pb2


def policy_to_proto(policy: Checkpoint) -> types_pb2.CheckpointPolicy:
    message = types_pb2.CheckpointPolicy(
        selection=policy.selection, fraction=policy.fraction, period=policy.period, keep=policy.keep
    )
    if policy.budget is not None:
        message.budget.CopyFrom(types_pb2.CheckpointBudget(**asdict(policy.budget)))
    return message


def policy_from_proto(message: types_pb2.CheckpointPolicy) -> Checkpoint:
    """Raises :class:`scar.errors.ConfigError` for a policy that no user could have declared."""
    budget = None
    if message.HasField("budget"):
        budget = CheckpointBudget(message.budget.stall_share, message.budget.bytes_per_second)
    return Checkpoint(message.selection, message.fraction, message.period, message.keep, budget)
