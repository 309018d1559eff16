"""Settings of a service: one field is one environment variable ``SCAR_<NAME>`` and one flag ``--<name>``; the
flag wins.

    class PsSettings(RedisSettings):
        rebalance: bool = Field(True, description="...")

    settings = load_settings(PsSettings)

Secrets (the store's keys) are not settings; they come from the variables that the store's library reads.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict, SettingsError

from scar.errors import ConfigError
from scar.wire.certificates import VARIABLES, TlsFiles, files_of
from scar.wire.timing import MOST_LEASE, TIMING, heartbeat_seconds
from scar_runtime.store.schemes import URL_EXAMPLES, URL_PATTERN

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
    advertise: str = Field(
        "", description="host or host:port that others use to reach this process; empty: where it listens"
    )
    store: str = Field(
        "file:///var/lib/scar",
        pattern=URL_PATTERN,
        description=f"Object store: {URL_EXAMPLES}",
    )
    store_key: str = Field(
        "",
        description="File with the secret that signs what is believed of the store; empty: it is not signed",
    )
    recovery: str = Field("", description="host:port of the recovery coordinator")
    detector: str = Field("", description="host:port of the failure detector")
    checkpoint: str = Field("", description="host:port of the checkpoint coordinator")
    cluster: str = Field(
        "scar", pattern=r"^[A-Za-z0-9_.-]{1,63}$", description="Prefix of this cluster's keys in Redis"
    )
    peer_addresses: Literal["own", "any"] = Field(
        "own",
        description="For the recovery coordinator and the failure detector. own: a member's address has to be"
        " on the machine that it calls from; any: it may be elsewhere, as where addresses are translated",
    )
    lease_seconds: float = Field(
        TIMING.lease,
        ge=0.5,
        le=MOST_LEASE,
        description="A shard serves this long, in seconds, after its last accepted heartbeat",
    )
    traces: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="URL of an OTLP receiver over gRPC, such as http://collector:4317, that gets traces of"
        " pushes, rounds and recoveries; needs scar-ps[otel]; empty: none",
    )
    metrics_port: int = Field(
        -1, ge=-1, le=65535, description="Port of the Prometheus metrics; 0: any free port, -1: none"
    )
    health_port: int = Field(
        -1,
        ge=-1,
        le=65535,
        description="Port on which health alone is asked for, without credentials: for a kubelet; 0: any free"
        " port, -1: only where everything else is",
    )
    log_format: Literal["json", "text"] = Field(
        "json", description="One JSON object a line, or text for people"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe records that are written"
    )
    tls_cert: str = Field("", description="File of this process's certificate, as PEM; empty: no TLS")
    tls_key: str = Field("", description="File of its private key, as PEM")
    tls_ca: str = Field("", description="File of the authorities whose certificates are accepted, as PEM")
    token_file: str = Field(
        "",
        description="File with the token of a cluster on one machine, without TLS: every call carries it, and"
        " one without it is denied; empty: none",
    )
    insecure: bool = Field(
        False, description="Serve beyond this machine without TLS, to whoever reaches the port"
    )
    address_file: str = Field("", description="File that gets the real host:port after binding; empty: none")

    @property
    def tls_files(self) -> TlsFiles | None:
        """None: TLS is off. Raises :class:`ConfigError` when only some of them are set."""
        given = {"cert": self.tls_cert, "key": self.tls_key, "ca": self.tls_ca}
        return files_of({VARIABLES[field]: path for field, path in given.items()})

    @field_validator("listen", "recovery", "detector", "checkpoint")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        if value and not re.fullmatch(r"\S+:\d{1,5}", value):
            raise ValueError("it must be host:port")
        return value


class RedisSettings(ServiceSettings):
    """What services that reach Redis can be told, too: all but workers, which run a user's code."""

    redis: str = Field(
        "redis://127.0.0.1:6379/0", pattern=r"^(rediss?|unix)://", description="Redis that carries heartbeats"
    )
    redis_ca: str = Field(
        "",
        description="File with the CA certificates that Redis is held to, for rediss://; empty: the system's",
    )


def load_settings(cls: type[Settings], argv: Sequence[str] | None = None) -> Settings:
    """Settings from flags (``argv``; None: the process's) and the environment.

    Raises :class:`ConfigError` that names the variable and the flag of the first bad value.
    """
    heartbeat_seconds(os.environ)
    flags = None if argv is None else list(argv)
    try:
        return CliApp.run(cls, cli_args=flags, cli_exit_on_error=False)
    except ValidationError as error:
        raise _explain_problem(cls, error.errors()[0]) from None
    except SettingsError as error:
        raise ConfigError(
            str(error), f"Run with --help for the settings of this service, or set {PREFIX}<NAME>"
        ) from None


def variable(field: str) -> str:
    """``lease_seconds`` as a person writes it: ``SCAR_LEASE_SECONDS (--lease-seconds)``."""
    return f"{PREFIX}{field.upper()} (--{field.replace('_', '-')})"


def without_password(url: str) -> str:
    """A URL as it may be shown: what stands before the last @ of its authority is left out."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _explain_problem(cls: type[ServiceSettings], problem: Any) -> ConfigError:
    field = str(problem["loc"][0]) if problem["loc"] else ""
    known = cls.model_fields.get(field)
    meaning = f". {known.description}" if known is not None and known.description else ""
    reason = str(problem["msg"]).removeprefix("Value error, ")
    shown = without_password(str(problem["input"]))
    if field == "redis" and "://" not in shown and "@" not in str(problem["input"]):
        shown = "..."  # it may be the password alone
    return ConfigError(
        f"{variable(field)} is {shown!r}, but {reason[:1].lower()}{reason[1:]}",
        f"Correct it{meaning}",
    )
