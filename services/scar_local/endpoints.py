"""Where the services of a local cluster listen, and stubs to call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import grpc

from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, detector_pb2_grpc, ps_pb2_grpc, recovery_pb2_grpc
from scar.wire.transport import CHECKPOINT, RECOVERY
from scar_admin.channels import ChannelCache


class ServiceEndpoints:
    """``addresses``: of the coordinators, by kind. ``standby``: there are two of each kind that has a leader.

    ``address_of``: host:port of a process by its name.
    """

    def __init__(self, standby: bool, address_of: Callable[[str], str]) -> None:
        self.addresses: Mapping[str, str] = {}
        self._standby = standby
        self._address_of = address_of
        # unlike the observer's they stay open to a shard outside the epoch
        self._channels = ChannelCache()

    @property
    def recovery_address(self) -> str:
        return self.addresses.get("recovery", "")

    @property
    def checkpoint_address(self) -> str:
        return self.addresses.get("checkpoint", "")

    @property
    def detector_address(self) -> str:
        return self.addresses.get("detector", "")

    @property
    def recovery(self) -> recovery_pb2_grpc.RecoveryStub:
        return recovery_pb2_grpc.RecoveryStub(
            self._channels.channel_to(self.recovery_address, self._leader_service(RECOVERY))
        )

    @property
    def checkpoint(self) -> checkpoint_pb2_grpc.CheckpointStub:
        return checkpoint_pb2_grpc.CheckpointStub(
            self._channels.channel_to(self.checkpoint_address, self._leader_service(CHECKPOINT))
        )

    @property
    def detector(self) -> detector_pb2_grpc.DetectorStub:
        return detector_pb2_grpc.DetectorStub(self._channels.channel_to(self.detector_address))

    def save_all(self, timeout: float) -> None:
        """A round of everything that has changed. Whoever asks goes on all the same when it cannot be had."""
        request = checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0)
        with suppress(grpc.RpcError):
            self.checkpoint.Trigger(request, timeout=timeout)

    def shard(self, name: str) -> ps_pb2_grpc.ShardControlStub:
        """Control stub of a shard process at its present address."""
        return ps_pb2_grpc.ShardControlStub(self._channels.channel_to(self._address_of(name)))

    def _leader_service(self, service: str) -> str:
        """Of two coordinators the one that leads has to answer."""
        return service if self._standby else ""

    def close(self) -> None:
        self._channels.close()
