"""Settings of a worker."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from scar_runtime.config import ServiceSettings


class WorkerSettings(ServiceSettings):
    """What a worker can be told, beside what every service can."""

    train: str = Field("", description="Path of the training file: a Python file with a job and a training function")
    job: str = Field("", description="Name of the job to train; empty: that of the training file")
    start: Literal["no", "auto"] = Field(
        "no",
        description="auto: start the job, or go on with it, when nobody else has; stay up after training",
    )
    workers: int = Field(0, ge=0, le=65535, description="With start=auto: workers of the job; 0: what the training file says")
    shards: int = Field(0, ge=0, le=65534, description="With start=auto: shards of the job; 0: what the training file says")
    function: str = Field("train", description="Name of the training function in that file; it gets the worker")
    timeout_seconds: float = Field(
        60.0,
        gt=0,
        le=86400,
        description="How long one pull, or the end of one clock, may take before training fails, in seconds",
    )
    patience_seconds: float = Field(
        600.0, gt=0, le=604800, description="How long to wait for the job to start and for the other workers, in seconds"
    )
    unacked_bytes: int = Field(
        256 << 20, ge=1 << 10, description="Bytes of pushes to one shard that may be unacknowledged before a push waits"
    )
