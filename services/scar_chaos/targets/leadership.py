"""Which of several coordinators leads."""

from __future__ import annotations

import grpc

from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar.wire.transport import open_channel


def is_leader(component: str, address: str, timeout: float) -> bool:
    """Whether the coordinator at this address says that it leads, within ``timeout`` seconds."""
    with open_channel(address) as channel:
        try:
            if component == "recovery":
                recovery = recovery_pb2_grpc.RecoveryStub(channel)
                return bool(recovery.Status(recovery_pb2.RecoveryStatusRequest(), timeout=timeout).leader)
            checkpoint = checkpoint_pb2_grpc.CheckpointStub(channel)
            return bool(checkpoint.Status(checkpoint_pb2.CheckpointStatusRequest(), timeout=timeout).leader)
        except grpc.RpcError:
            return False
