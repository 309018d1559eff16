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
BY_COMMAND = "for example by `scar tls renew`"
BY_CHART = "as tls.mode of the release does it: with the default by `helm upgrade` (docs/security.md)"


def check_certificates(folder: Path | None, how: str = BY_COMMAND) -> list[HealthCheck]:
    """``folder``: of a cluster on this machine; None: only the certificate of this process is known.
    ``how``: they are renewed.
    """
    if folder is not None:
        files = [role_files(folder, role) for role in ROLES]
        return [_check_expiry(partial(read_certificate, one), how) for one in files]
    source = active_certificate()
    if source is None and active_token():
        return [HealthCheck("tls", "ok", "off: who can read the cluster's token may call every method")]
    if source is None:
        return [HealthCheck("tls", "ok", "off: whoever reaches a port may call every method there")]
    return [_check_expiry(source.current, how)]


def _check_expiry(read: Callable[[], Certificate], how: str) -> HealthCheck:
    try:
        found = read()
    except ConfigError as error:
        return HealthCheck("tls", "fail", error.message, error.next_step)
    days = (found.expires - time.time()) / DAY
    if days <= 0:
        what = f"{found.identity.name} has expired"
        return HealthCheck("tls", "fail", what, f"Renew it, {how}")
    text = f"{found.identity.name} expires in {days:.1f} days"
    if days < SOON_DAYS:
        return HealthCheck("tls", "warn", text, f"Renew it soon, {how}")
    return HealthCheck("tls", "ok", text)
