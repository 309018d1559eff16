"""Settings of the recovery coordinator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from scar.wire.timing import TIMING
from scar_recovery.core.pod_evidence import NOTICES
from scar_runtime.process.config import RedisSettings


class RecoverySettings(RedisSettings):
    leader_seconds: float = Field(
        TIMING.leader_lease,
        ge=0.5,
        le=60,
        description="A standby takes over when the leader has not renewed its lease for so many seconds",
    )
    rebalance: bool = Field(
        True, description="Move blocks live to shards that join, until all hold about the same number"
    )
    flush_seconds: float = Field(
        3.0,
        ge=0,
        le=3600,
        description=(
            "Seconds for saving a shard that leaves, most changed blocks first, before its blocks move; what"
            " is left is saved beside; 0: it is not saved"
        ),
    )
    flush_bytes: int = Field(
        16 << 20,
        ge=1,
        description="Bytes of the first part, about, that is saved of a shard that leaves; later ones grow",
    )
    offer_seconds: float = Field(
        2.0,
        gt=0,
        le=60,
        description=(
            "Seconds to hear from every worker what it holds of lost blocks (jobs with sources=workers);"
            " then silent ones are no source"
        ),
    )
    kubernetes: Literal["auto", "off"] = Field(
        "auto",
        description=(
            "auto: in a pod that may, watch the release's pods and the nodes as one more witness of deaths"
        ),
    )
    release: str = Field("", description="Name of the Helm release whose pods are watched; empty: none are")
    notice_taints: str = Field(
        ",".join(sorted(NOTICES)),
        description="Taints, separated by commas, of nodes that are about to go: their shards drain",
    )
    move_bytes: int = Field(
        64 << 20,
        ge=1,
        description="Values and slots that move at once to shards that have come, in bytes: pushes wait",
    )

    traffic_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description=(
            "Seconds between looks at what shards send and receive: hot blocks of one that has much more than"
            " the others change places with cold ones; 0: never"
        ),
    )

    traffic_bytes: int = Field(
        1 << 20,
        ge=1,
        description="Bytes a second of the busiest shard, below which no blocks change places",
    )

    @property
    def notices(self) -> frozenset[str]:
        return frozenset(taint.strip() for taint in self.notice_taints.split(",") if taint.strip())
