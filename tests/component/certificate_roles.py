"""One process that is one role after another, by its certificates."""

from __future__ import annotations

from pathlib import Path

from scar.wire.certificates import CertificateSource
from scar.wire.credentials import use_certificate
from scar_local.authority import role_files


def become(folder: Path, role: str) -> CertificateSource:
    """From now on connections of this process are of this role. ``folder``: of an authority."""
    source = use_certificate(role_files(folder, role))
    assert source is not None
    return source
