"""Settings of the checkpoint coordinator."""

from __future__ import annotations

from pydantic import Field

from scar_runtime.process.config import RedisSettings


class CheckpointSettings(RedisSettings):
    round_timeout_seconds: float = Field(
        30.0,
        gt=0,
        description=(
            "A shard that has not answered a step of a round after this long, in seconds, misses the round"
        ),
    )
    keep_seconds: float = Field(
        30.0,
        ge=0,
        description=(
            "A manifest beyond the last K stays this long, in seconds, for a recovery that has just read it"
        ),
    )
