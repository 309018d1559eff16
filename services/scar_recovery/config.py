"""Settings of the recovery coordinator."""

from __future__ import annotations

from pydantic import Field

from scar_runtime.config import ServiceSettings


class RecoverySettings(ServiceSettings):
    rebalance: bool = Field(True, description="Move blocks live to shards that join, until all hold about as many")
    move_bytes: int = Field(64 << 20, ge=1, description="Values and slots that one live move carries at most, in bytes")
