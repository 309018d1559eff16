"""`scar doctor`: do connections need a certificate, and for how long do those that are there last?"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scar.errors import ConfigError
from scar.wire.certificates import ROLES, Certificate, read_certificate
from scar.wire.credentials import active_certificate, active_token
from scar_cli.checks import HealthCheck
from scar_local.authority import role_files

DAY = 86400.0  # seconds
SOON_DAYS = 7.0


def check_certificates(folder: Path | None) -> list[HealthCheck]:
    """``folder``: of a cluster on this machine; None: only the certificate of this process is known."""
    if folder is not None:
        files = [role_files(folder, role) for role in ROLES]
        return [_check_expiry(partial(read_certificate, one)) for one in files]
    source = active_certificate()
    if source is None and active_token():
        return [HealthCheck("tls", "ok", "off: who can read the cluster's token may call every method")]
    if source is None:
        return [HealthCheck("tls", "ok", "off: whoever reaches a port may call every method there")]
    return [_check_expiry(source.current)]


def _check_expiry(read: Callable[[], Certificate]) -> HealthCheck:
    try:
        found = read()
    except ConfigError as error:
        return HealthCheck("tls", "fail", error.message, error.next_step)
    days = (found.expires - time.time()) / DAY
    if days <= 0:
        what = f"{found.identity.name} has expired"
        return HealthCheck("tls", "fail", what, "Renew it, for example by `scar tls renew`")
    text = f"{found.identity.name} expires in {days:.1f} days"
    if days < SOON_DAYS:
        return HealthCheck("tls", "warn", text, "Renew it soon, for example by `scar tls renew`")
    return HealthCheck("tls", "ok", text)
