"""Who we are, and whom we believe: all connections of this process, both ways, by TLS or by the token of a
cluster on one machine. Without settings there is neither.

A client demands that the certificate of who answers has the role that a method belongs to: pods are called by
address, so the name comes from the role. A server demands a certificate of the same cluster, and reads the
caller's role from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from scar.errors import ConfigError
from scar.wire.certificates import (
    VARIABLES,
    Certificate,
    CertificateSource,
    TlsFiles,
    TlsIdentity,
    files_of,
    find_identity,
)
from scar.wire.cluster_token import TOKEN_FILE, carries_token, read_token
from scar.wire.loopback import is_loopback

INSECURE = "SCAR_INSECURE"  # true: a server may be reached by other machines without TLS
SUBJECT_NAMES = "x509_subject_alternative_name"  # of gRPC's description of a peer

_SERVICE_ROLES = {  # who answers the methods of a service; anybody answers scar.v1.MemberService
    "scar.v1.ShardData": "shard",
    "scar.v1.ShardControl": "shard",
    "scar.v1.Recovery": "recovery",
    "scar.v1.Checkpoint": "checkpoint",
    "scar.v1.Detector": "detector",
    "scar.v1.Worker": "worker",
    "scar.chaos.Recorder": "operator",
}


@dataclass(frozen=True)
class ProcessCredentials:
    """How this process says who it is, and knows who calls: by certificates, by a token, or not at all."""

    certificate: CertificateSource | None = None
    token: str = ""


_process: dict[str, ProcessCredentials] = {}  # "own": of this process, once they are known


def use_certificate(files: TlsFiles | None) -> CertificateSource | None:
    """From now on this process is who these files say, and has no token; None: TLS is off. Raises
    :class:`ConfigError`.
    """
    return use_credentials(files, None).certificate


def use_token(file: Path) -> None:
    """From now on this process carries this token, without TLS. Raises :class:`ConfigError`."""
    use_credentials(None, file)


def use_credentials(files: TlsFiles | None, token_file: Path | None) -> ProcessCredentials:
    """What settings say. Raises :class:`ConfigError`, also for certificates and a token at once."""
    if files is not None and token_file is not None:
        raise ConfigError(
            f"{', '.join(VARIABLES.values())} and {TOKEN_FILE} are set, and a process has either",
            f"Unset {TOKEN_FILE}, or turn TLS off by unsetting the others",
        )
    certificate = CertificateSource(files) if files is not None else None
    token = read_token(token_file) if token_file is not None else ""
    restore_credentials(ProcessCredentials(certificate, token))
    return _process["own"]


def restore_credentials(credentials: ProcessCredentials) -> None:
    """Go back to what :func:`active_credentials` returned before."""
    _process["own"] = credentials


def active_credentials() -> ProcessCredentials:
    """Of this process. The environment says them, until one of the functions above does."""
    if "own" not in _process:
        token_file = os.environ.get(TOKEN_FILE, "")
        use_credentials(files_of(os.environ), Path(token_file) if token_file else None)
    return _process["own"]


def active_certificate() -> CertificateSource | None:
    """Of this process; None: TLS is off."""
    return active_credentials().certificate


def active_token() -> str:
    """Of this process; empty: it has none."""
    return active_credentials().token


def answering_role(method: str, known: str = "") -> str:
    """Whose certificate has to answer ``/service/method``; ``known``: where the service does not say it."""
    role = _SERVICE_ROLES.get(method.lstrip("/").rpartition("/")[0], known)
    if not role:
        raise ConfigError(
            f"nobody said which role answers {method}", "Pass role= where the channel is opened"
        )
    return role


def channel_credentials(certificate: Certificate) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(certificate.ca, certificate.key, certificate.cert)


def server_credentials(source: CertificateSource) -> grpc.ServerCredentials:
    """Of a server that demands a certificate. gRPC asks for its own anew at each connection."""
    shown = [source.current()]

    def renew() -> grpc.ServerCertificateConfiguration | None:
        fresh = source.current()
        if fresh is shown[0]:
            return None
        shown[0] = fresh
        return _server_configuration(fresh)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(shown[0]), renew, require_client_authentication=True
    )


def bind_server(server: grpc.Server, listen: str, insecure: bool = False) -> int:
    """Take a port as this process serves: with its certificate, if it has one. Raises RuntimeError, and
    :class:`ConfigError` for one that other machines reach without TLS, unless that is meant (``insecure``).
    """
    source = active_certificate()
    if source is None:
        if not insecure and not is_loopback(listen):
            raise ConfigError(
                f"other machines reach {listen}, and without TLS whoever does may read and change everything",
                f"Set {', '.join(VARIABLES.values())} to certificates, or listen on 127.0.0.1; if your"
                f" network keeps strangers out, accept it by {INSECURE}=true (--insecure)",
            )
        return int(server.add_insecure_port(listen))
    return int(server.add_secure_port(listen, server_credentials(source)))


def caller_identity(context: grpc.ServicerContext) -> TlsIdentity | None:
    """Whom the caller's certificate names; None: nobody of ours."""
    peer: Mapping[str, list[bytes]] = context.auth_context()
    return find_identity(name.decode("ascii", "replace") for name in peer.get(SUBJECT_NAMES, ()))


def has_token(context: grpc.ServicerContext, token: str) -> bool:
    """Whether a call carries this token; empty: none is asked for."""
    return not token or carries_token(context.invocation_metadata(), token)


def _server_configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(certificate.key, certificate.cert)], certificate.ca)
