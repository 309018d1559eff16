"""Where Redis is, and whose certificate it has to show."""

from __future__ import annotations

from urllib.parse import quote

from scar.errors import ConfigError
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.process.config import PREFIX, RedisSettings, ServiceSettings, variable

REDIS_CA = f"{PREFIX}REDIS_CA"  # what a program without settings reads


def with_redis_ca(url: str, ca_file: str) -> str:
    """The URL with which a client trusts the certificates of ``ca_file`` alone; empty: those of the system.

    Raises :class:`ConfigError` when the connection would not be encrypted, or nobody can read the file.
    """
    if not ca_file or "ssl_ca_certs=" in url:
        return url
    if not url.startswith("rediss://"):
        raise ConfigError(
            f"{variable('redis_ca')} is set, but the URL of Redis does not ask for TLS",
            f"Begin {variable('redis')} with rediss://",
        )
    try:
        with open(ca_file, "rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"{variable('redis_ca')} cannot be read: {error}",
            "Set it to a file with the CA's certificates in PEM",
        ) from None
    return f"{url}{'&' if '?' in url else '?'}ssl_ca_certs={quote(ca_file)}"


def open_heartbeats(settings: ServiceSettings) -> HeartbeatStore | None:
    """None for a worker. Raises :class:`ConfigError`."""
    if not isinstance(settings, RedisSettings):
        return None
    return HeartbeatStore(with_redis_ca(settings.redis, settings.redis_ca), settings.cluster)
