"""The certificate of this process: three files, proved before they are used, and read again when they change.

A certificate is for a role: its one DNS name is ``<role>.<cluster>.scar``. It says who calls and who answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scar.errors import ConfigError

ROLES = ("worker", "shard", "checkpoint", "recovery", "detector", "operator", "reader")
VARIABLES = {"cert": "SCAR_TLS_CERT", "key": "SCAR_TLS_KEY", "ca": "SCAR_TLS_CA"}
LOOK_SECONDS = 1.0  # between two looks at the files

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"({'|'.join(ROLES)})\.({_LABEL}(?:\.{_LABEL})*)\.scar")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TlsIdentity:
    """Whom a certificate names. ``role``: one of :data:`ROLES`."""

    role: str
    cluster: str

    @property
    def name(self) -> str:
        """The DNS name in the certificate."""
        return f"{self.role}.{self.cluster}.scar"

    def peer_name(self, role: str) -> str:
        """The name that a peer of this role has in the same cluster."""
        return TlsIdentity(role, self.cluster).name


def find_identity(names: Iterable[str]) -> TlsIdentity | None:
    """Whom these names of a certificate mean; None: nobody, or more than one."""
    found = [match for match in map(_NAME.fullmatch, names) if match]
    return TlsIdentity(found[0][1], found[0][2]) if len(found) == 1 else None


@dataclass(frozen=True)
class TlsFiles:
    """Where certificate (with its chain), private key and the authorities to believe are, as PEM."""

    cert: Path
    key: Path
    ca: Path

    def signature(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file does. Raises :class:`ConfigError` when one is not there."""
        try:
            states = [os.stat(path) for path in (self.cert, self.key, self.ca)]
        except OSError as error:
            raise _unusable(str(error.filename), str(error.strerror)) from error
        return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def files_of(settings: Mapping[str, str]) -> TlsFiles | None:
    """``settings``: as :data:`VARIABLES` has them. None: TLS is off. Raises :class:`ConfigError` when only
    some are set.
    """
    given = {field: settings.get(variable, "") for field, variable in VARIABLES.items()}
    missing = [VARIABLES[field] for field, path in given.items() if not path]
    if len(missing) == len(given):
        return None
    if missing:
        there = [variable for variable in VARIABLES.values() if variable not in missing]
        raise ConfigError(
            f"{' and '.join(there)} set, but {' and '.join(missing)} not: this would be half of TLS",
            f"Set {', '.join(VARIABLES.values())} to files that `scar tls init` makes, or none of them",
        )
    return TlsFiles(**{field: Path(path) for field, path in given.items()})


@dataclass(frozen=True)
class Certificate:
    """What the files held when they were read. ``expires``: seconds since 1970. ``context``: for connections
    that are no gRPC channel; it checks the peer's name. ``server_context``: for those who open them.
    """

    identity: TlsIdentity
    expires: float
    context: ssl.SSLContext
    server_context: ssl.SSLContext
    cert: bytes
    key: bytes
    ca: bytes


def read_certificate(files: TlsFiles) -> Certificate:
    """Raises :class:`ConfigError` for files that no peer would accept, and says why."""
    before = files.signature()
    try:
        cert, key, ca = (path.read_bytes() for path in (files.cert, files.key, files.ca))
        context = client_context(files, ca.decode("ascii"))
        server = server_context(files, ca.decode("ascii"))
        shown = _handshake(context, server)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        raise _unusable(str(files.cert), f"it does not fit its key and authority ({reason})") from error
    except (OSError, ValueError) as error:
        raise _unusable(str(files.cert), str(error)) from error
    if files.signature() != before:
        raise _unusable(str(files.cert), "it was replaced while it was read")
    identity = find_identity(name for kind, name in shown.get("subjectAltName", ()) if kind == "DNS")
    if identity is None:
        raise _unusable(str(files.cert), "it has no DNS name ROLE.CLUSTER.scar, or several")
    expires = float(ssl.cert_time_to_seconds(shown["notAfter"]))
    return Certificate(identity, expires, context, server, cert, key, ca)


class CertificateSource:
    """The certificate as the files have it now. Files that cannot be used, as they are half written or have
    expired, do not replace those that could. Any thread may ask.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._signature = files.signature()
        self._current = read_certificate(files)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._complained = ""

    @property
    def identity(self) -> TlsIdentity:
        """It never changes."""
        return self._current.identity

    def current(self) -> Certificate:
        """A new object after every change of the files."""
        if time.monotonic() - self._looked >= LOOK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._current

    def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            signature = self.files.signature()
            if signature == self._signature:
                return
            fresh = read_certificate(self.files)
            if fresh.identity != self.identity:
                raise _unusable(str(self.files.cert), f"it is for {fresh.identity.name} now")
        except ConfigError as error:
            if error.message != self._complained:
                self._complained = error.message
                _log.warning("tls.not_renewed", extra={"reason": error.message})
            return
        self._current = fresh
        self._signature = signature
        self._complained = ""
        _log.info("tls.renewed", extra={"certificate": fresh.identity.name, "expires": fresh.expires})


def client_context(files: TlsFiles, authorities: str) -> ssl.SSLContext:
    """It checks the peer's name, and speaks HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authorities)
    context.load_cert_chain(files.cert, files.key, password=_no_password)
    context.set_alpn_protocols(["h2"])
    return context


def server_context(files: TlsFiles, authorities: str) -> ssl.SSLContext:
    """It demands a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authorities)
    context.load_cert_chain(files.cert, files.key, password=_no_password)
    context.num_tickets = 0  # nobody resumes
    return context


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> dict[str, Any]:
    """Both ends of a connection in memory: what they accept, a peer will. What the certificate says."""
    client.check_hostname = False
    there = ssl.MemoryBIO()
    back = ssl.MemoryBIO()
    caller = client.wrap_bio(back, there)
    answerer = server.wrap_bio(there, back, server_side=True)
    for end in (caller, answerer, caller, answerer):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    client.check_hostname = True
    shown = caller.getpeercert()
    return shown or {}


def _no_password() -> str:
    raise ValueError("its key has a password")


def _unusable(file: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the certificate {file} cannot be used: {reason}",
        f"Renew the files that {', '.join(VARIABLES.values())} name, for example by `scar tls init`",
    )
