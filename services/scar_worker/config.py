"""Settings of a worker."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from scar_runtime.process.config import ServiceSettings


class WorkerSettings(ServiceSettings):
    """What a worker can be told, beside what every service can."""

    train: str = Field(
        "", description="Path of the training file: a Python file with a job and a training function"
    )
    arguments: str = Field(
        "", description="Arguments of that file, as a shell would write them; it finds them in sys.argv"
    )
    job: str = Field("", description="Name of the job to train; empty: that of the training file")
    start: Literal["no", "auto"] = Field(
        "no",
        description="auto: start the job, or resume it, when nobody else has; stay up after training",
    )
    workers: int = Field(
        0, ge=0, le=65535, description="With start=auto: workers of the job; 0: what the training file says"
    )
    shards: int = Field(
        0, ge=0, le=65534, description="With start=auto: shards of the job; 0: what the training file says"
    )
    function: str = Field(
        "train", description="Name of the training function in that file; it gets the worker"
    )
    timeout_seconds: float = Field(
        60.0,
        gt=0,
        le=86400,
        description="How long one pull, or the end of one clock, may take before training fails, in seconds",
    )
    outage_seconds: float = Field(
        0,
        ge=0,
        le=604800,
        description=(
            "How much longer it waits, in seconds, while the store is away and a recovery waits for it; 0: no"
            " limit"
        ),
    )
    patience_seconds: float = Field(
        600.0,
        gt=0,
        le=604800,
        description="How long to wait for the job to start and for the other workers, in seconds",
    )
    output: str = Field(
        "", description="File for what the training function prints; empty: where the log goes, too"
    )
    unacked_bytes: int = Field(
        256 << 20,
        ge=1 << 10,
        description="Bytes of pushes to one shard that may be unacknowledged before a push waits",
    )
