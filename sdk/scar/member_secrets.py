"""How a member proves that it is who joined: it shows a secret, of which others know the hash.

Incarnations are public; a secret is drawn when the process starts, and leaves it only in calls that speak for
it. The hash is part of :class:`scar.placement.Member` and so of each epoch: a new leader knows it, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from scar.errors import PermissionDenied
from scar.placement import Member

SECRET_BYTES = 32


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def hash_secret(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def check_secret(member: Member, known: bytes, secret: bytes) -> None:
    """Raises :class:`PermissionDenied` unless ``known`` is the hash of this secret. b"" is nobody's hash: who
    joined a version without secrets has none to show.
    """
    if known and not hmac.compare_digest(known, hash_secret(secret)):
        raise PermissionDenied(
            f"who calls is not {member.key}: it did not show the secret with which that member joined",
            "Nobody can speak for another member; a restarted process joins as a new incarnation",
        )
