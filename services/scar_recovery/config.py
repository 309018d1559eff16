"""Settings of the recovery coordinator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from scar_recovery.witness import NOTICES
from scar_runtime.config import ServiceSettings


class RecoverySettings(ServiceSettings):
    leader_seconds: float = Field(
        1.0, ge=0.5, le=60, description="A standby leads when the leader has not renewed its claim for so long, in seconds"
    )
    rebalance: bool = Field(True, description="Move blocks live to shards that join, until all hold about as many")
    flush_seconds: float = Field(
        3.0,
        ge=0,
        le=3600,
        description="Seconds for saving a shard that goes, its most changed blocks first; 0: it is not saved",
    )
    kubernetes: Literal["auto", "off"] = Field(
        "auto", description="auto: in a pod that may, watch the release's pods and the nodes as one more witness of deaths"
    )
    notice_taints: str = Field(
        ",".join(sorted(NOTICES)), description="Taints, separated by commas, of nodes that are about to go: their shards drain"
    )
    move_bytes: int = Field(64 << 20, ge=1, description="Values and slots that one live move carries at most, in bytes")

    @property
    def notices(self) -> frozenset[str]:
        return frozenset(taint.strip() for taint in self.notice_taints.split(",") if taint.strip())
