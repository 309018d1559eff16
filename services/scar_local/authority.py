"""Makes certificates for a cluster: an authority of its own, and one certificate for each role.

DIR/ca.crt, ca.key    the authority; its key is needed to renew, and by no process of the cluster
DIR/<role>.crt, .key  what processes of that role show; files of the same names replace them when renewed
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from scar.errors import ConfigError
from scar.wire.certificates import ROLES, VARIABLES, TlsFiles, TlsIdentity, find_identity
from scar_local.private_files import replace_file

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS = 365  # that certificates last
AUTHORITY_DAYS = 3650
SKEW = timedelta(minutes=5)  # clocks of other machines may be behind


def role_files(folder: Path, role: str) -> TlsFiles:
    """What a process of this role reads."""
    return TlsFiles(folder / f"{role}.crt", folder / f"{role}.key", folder / "ca.crt")


def role_variables(folder: Path | None, role: str) -> dict[str, str]:
    """The same as environment variables; None: empty ones, which turn TLS off."""
    if folder is None:
        return dict.fromkeys(VARIABLES.values(), "")
    files = role_files(folder.absolute(), role)
    return {variable: str(getattr(files, field)) for field, variable in VARIABLES.items()}


def create_authority(folder: Path, cluster: str, days: float = DAYS) -> None:
    """A new authority in ``folder``, and a certificate for each role. Raises :class:`ConfigError` for a name
    that no certificate can carry.
    """
    if find_identity([TlsIdentity(ROLES[0], cluster).name]) is None:
        raise ConfigError(
            f"{cluster!r} cannot be part of a certificate's name", "Use a-z, 0-9 and -, with dots in between"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = CertificateAuthority.generate(cluster)
    _write_pair(folder, "ca", authority.certificate, authority.key)
    authority.issue_roles(folder, days)


def renew_certificates(folder: Path, days: float = DAYS) -> None:
    """New certificates for all roles, by the authority in ``folder``. Raises :class:`ConfigError`."""
    CertificateAuthority.load(folder).issue_roles(folder, days)


@dataclass(frozen=True)
class CertificateAuthority:
    """Signs certificates of one cluster."""

    cluster: str
    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @classmethod
    def generate(cls, cluster: str) -> CertificateAuthority:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        key = _new_key()
        name = _common_name(cluster)
        builder = _dated_builder(AUTHORITY_DAYS).subject_name(name).issuer_name(name)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signed = (
            builder.public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(ca=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(cluster, signed, key)

    @classmethod
    def load(cls, folder: Path) -> CertificateAuthority:
        """Raises :class:`ConfigError` when it is not there."""
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
            key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
            # the subject is parsed when it is asked for
            name = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
            raise ConfigError(
                f"{folder} has no authority that can sign: {error}", f"Make one by `scar tls init {folder}`"
            ) from error
        if not isinstance(key, EllipticCurvePrivateKey) or not name:
            raise ConfigError(f"{folder} has the authority of another tool", "Renew it by that tool")
        return cls(str(name[0].value), certificate, key)

    def issue_roles(self, folder: Path, days: float) -> None:
        for role in ROLES:
            key = _new_key()
            _write_pair(folder, role, self.sign_name(TlsIdentity(role, self.cluster).name, key, days), key)

    def sign_name(self, name: str, key: EllipticCurvePrivateKey, days: float) -> x509.Certificate:
        """A certificate of this name for who holds the key."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            _dated_builder(days)
            .subject_name(_common_name(name))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _common_name(text: str) -> x509.Name:
    """A common name has at most 64 characters; peers look at the DNS name."""
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def _dated_builder(days: float) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - SKEW)
        .not_valid_after(end)
    )


def _key_usage(ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(folder: Path, name: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
    """Each file is replaced at once; who reads between the two keeps what he has."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    replace_file(folder / f"{name}.key", secret)
    replace_file(folder / f"{name}.crt", certificate.public_bytes(Encoding.PEM), 0o644)
