"""Settings of a shard."""

from __future__ import annotations

from pydantic import Field

from scar_runtime.process.config import RedisSettings


class PsSettings(RedisSettings):
    """What a shard can be told, beside what every service can."""

    staged_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="Bytes of pushes that may wait to be applied; two whole pushes of each worker always fit",
    )
    shared_memory: bool = Field(
        True,
        description=(
            "Take large payloads of processes of this machine through memory that they share, where they can"
        ),
    )
    direct_calls: bool = Field(
        True,
        description="Take pushes, pulls and ends of clocks over TCP connections of their own, not by gRPC",
    )
    direct_port: int = Field(
        0,
        ge=0,
        le=65535,
        description=(
            "Where callers of other machines connect for that, on the host of `SCAR_LISTEN`; 0: any free port"
        ),
    )
    load_threads: int = Field(
        4, ge=1, le=64, description="Objects of the running checkpoint that are read at the same time"
    )
    leave_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="After SIGTERM: how long to hand blocks over to other shards, in seconds",
    )
