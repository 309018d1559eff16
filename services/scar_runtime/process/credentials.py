"""Who this service is: what its settings say, and whether that fits its role."""

from __future__ import annotations

from pathlib import Path

from scar.errors import ConfigError
from scar.placement import Role
from scar.wire.certificates import CertificateSource
from scar.wire.credentials import use_credentials
from scar_runtime.process.config import ServiceSettings, variable


def take_credentials(settings: ServiceSettings, role: Role) -> CertificateSource | None:
    """From now on this process has its certificate, its token or neither. Raises :class:`ConfigError`."""
    token_file = Path(settings.token_file) if settings.token_file else None
    source = use_credentials(settings.tls_files, token_file).certificate
    if source is not None and source.identity.role != role.label:
        raise ConfigError(
            f"{settings.tls_cert} is a certificate for the role {source.identity.role},"
            f" and this is a {role.label}",
            f"Set {variable('tls_cert')} and {variable('tls_key')} to the files of that role",
        )
    return source
