"""Settings of a service: one field is one environment variable ``SCAR_<NAME>`` and one flag ``--<name>``; the flag wins.

    class PsSettings(ServiceSettings):
        rebalance: bool = Field(True, description="...")

    settings = load_settings(PsSettings)

Secrets (the store's keys) are not settings; they come from the ``AWS_*`` variables only.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict, SettingsError

from scar.errors import ConfigError

Settings = TypeVar("Settings", bound="ServiceSettings")
PREFIX = "SCAR_"


class ServiceSettings(BaseSettings):
    """What every service can be told."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_exit_on_error=False,
        validate_default=True,
    )

    name: str = Field(
        default_factory=socket.gethostname,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
        description="Member name, the same after every restart, such as ps-0",
    )
    listen: str = Field("127.0.0.1:0", description="host:port to serve on; port 0 is any free port")
    advertise: str = Field("", description="host or host:port that others use to reach this process; empty: where it listens")
    redis: str = Field("redis://127.0.0.1:6379/0", pattern=r"^(rediss?|unix)://", description="Redis that carries heartbeats")
    store: str = Field(
        "file:///var/lib/scar", pattern=r"^(file|s3)://", description="Object store: file:///dir or s3://bucket/prefix"
    )
    recovery: str = Field("", description="host:port of the recovery coordinator")
    detector: str = Field("", description="host:port of the failure detector")
    checkpoint: str = Field("", description="host:port of the checkpoint coordinator")
    cluster: str = Field("scar", pattern=r"^[A-Za-z0-9_.-]{1,63}$", description="Prefix of this cluster's keys in Redis")
    lease_seconds: float = Field(
        2.0, ge=0.5, le=60, description="A shard serves this long, in seconds, after its last accepted heartbeat"
    )
    metrics_port: int = Field(-1, ge=-1, le=65535, description="Port of the Prometheus metrics; 0: any free port, -1: none")
    log_format: Literal["json", "text"] = Field("json", description="One JSON object a line, or text for people")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe records that are written")
    address_file: str = Field("", description="File that gets the real host:port after binding; empty: none")

    @field_validator("listen", "recovery", "detector", "checkpoint")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        if value and not re.fullmatch(r"\S+:\d{1,5}", value):
            raise ValueError("it must be host:port")
        return value


def load_settings(cls: type[Settings], argv: Sequence[str] | None = None) -> Settings:
    """Settings from flags (``argv``; None: the process's) and the environment.

    Raises :class:`ConfigError` that names the variable and the flag of the first bad value.
    """
    flags = None if argv is None else list(argv)
    try:
        return CliApp.run(cls, cli_args=flags, cli_exit_on_error=False)
    except ValidationError as error:
        raise _explain(cls, error.errors()[0]) from None
    except SettingsError as error:
        raise ConfigError(str(error), f"Run with --help for the settings of this service, or set {PREFIX}<NAME>") from None


def variable(field: str) -> str:
    """``lease_seconds`` as a person writes it: ``SCAR_LEASE_SECONDS (--lease-seconds)``."""
    return f"{PREFIX}{field.upper()} (--{field.replace('_', '-')})"


def _explain(cls: type[ServiceSettings], problem: Any) -> ConfigError:
    field = str(problem["loc"][0]) if problem["loc"] else ""
    known = cls.model_fields.get(field)
    meaning = f". {known.description}" if known is not None and known.description else ""
    reason = str(problem["msg"]).removeprefix("Value error, ")
    return ConfigError(
        f"{variable(field)} is {problem['input']!r}, but {reason[:1].lower()}{reason[1:]}", f"Correct it{meaning}"
    )
