"""Who starts a local cluster is its operator: this process gets the operator's certificate, or a token."""

from __future__ import annotations

import secrets
import threading

from scar.wire.credentials import (
    ProcessCredentials,
    active_credentials,
    active_token,
    restore_credentials,
    use_certificate,
    use_token,
)
from scar_local.authority import create_authority, role_files
from scar_local.directory import ClusterDirectory
from scar_local.private_files import replace_file

TOKEN_BYTES = 32

_lock = threading.Lock()
_running: list[ClusterDirectory] = []  # clusters of this process
_before: dict[str, ProcessCredentials] = {}  # "own": what this process had before the first of them


def become_operator(home: ClusterDirectory, tls: bool) -> None:
    """Make new credentials for this cluster and take them. A token is shared with the other clusters that
    this process runs at the moment, since it carries one in all of its calls.
    """
    with _lock:
        if not _running:
            _before["own"] = active_credentials()
        shared = active_token() if _running else ""
        _running.append(home)
        if tls:
            home.token.unlink(missing_ok=True)
            create_authority(home.certificates, "local")
            use_certificate(role_files(home.certificates, "operator"))
        else:
            replace_file(home.token, (shared or secrets.token_urlsafe(TOKEN_BYTES)).encode())
            use_token(home.token)


def resign_operator(home: ClusterDirectory) -> None:
    """The cluster has ended; after the last one this process is who it was before. Safe to call twice."""
    with _lock:
        if home not in _running:
            return
        _running.remove(home)
        if not _running:
            restore_credentials(_before.pop("own"))


def take_operator_credentials(home: ClusterDirectory, tls: bool) -> None:
    """Speak as the operator of a cluster that another process runs: who may read its folder is that."""
    if tls:
        use_certificate(role_files(home.certificates, "operator"))
    else:
        use_token(home.token)
