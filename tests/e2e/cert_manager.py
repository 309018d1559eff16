"""Plays the part of cert-manager where a cluster has none: its kinds `Issuer` and `Certificate`, and Secrets
as its documents say. A cluster that has cert-manager is left to it.

What a Certificate does not ask for (usages, names, an authority) its Secret does not have, so a chart that
asks for too little is found here as it is there.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from kubernetes import client
from kubernetes.client import ApiException

GROUP, VERSION = "cert-manager.io", "v1"
KINDS = {"certificates": "Certificate", "issuers": "Issuer"}
USAGES = {"server auth": ExtendedKeyUsageOID.SERVER_AUTH, "client auth": ExtendedKeyUsageOID.CLIENT_AUTH}
LOOK = 0.5  # seconds between two looks at what is wanted
NOT_FOUND = 404
Key = ec.EllipticCurvePrivateKey
Pair = tuple[x509.Certificate, Key]


@contextmanager
def certificates_issued(namespace: str) -> Iterator[None]:
    """Meanwhile Certificates of this namespace get their Secrets."""
    definitions = [_definition(plural, kind) for plural, kind in KINDS.items()]
    api = client.ApiextensionsV1Api()
    known = {one.metadata.name for one in api.list_custom_resource_definition().items}
    if f"certificates.{GROUP}" in known:
        yield
        return
    for definition in definitions:
        api.create_custom_resource_definition(definition)
    controller = CertificateController(namespace)
    controller.start()
    try:
        yield
    finally:
        controller.stop()
        for definition in definitions:
            api.delete_custom_resource_definition(definition["metadata"]["name"])
    assert not controller.failed, controller.failed


def _definition(plural: str, kind: str) -> dict[str, Any]:
    """Any content: what it has to be is checked by the chart's own tests."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


class CertificateController:
    """Issues what is missing, again and again. ``failed``: what went wrong, if anything did."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._objects, self._core = client.CustomObjectsApi(), client.CoreV1Api()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="certificates", daemon=True)
        self.failed = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        while not self._ended.wait(LOOK):
            try:
                for one in self._list("certificates"):
                    self._issue(one["spec"])
            except ApiException as error:
                if error.status != NOT_FOUND:  # kinds are known some time after they are made
                    self.failed = str(error)
            except Exception as error:
                self.failed = repr(error)

    def _list(self, plural: str) -> list[dict[str, Any]]:
        found: dict[str, Any] = self._objects.list_namespaced_custom_object(
            GROUP, VERSION, self._namespace, plural
        )
        items: list[dict[str, Any]] = found["items"]
        return items

    def _issue(self, spec: Mapping[str, Any]) -> None:
        """Nothing where the Secret is there, or its issuer is not there yet, or not ready."""
        if self._secret(spec["secretName"]) is not None:
            return
        issuers = {one["metadata"]["name"]: one["spec"] for one in self._list("issuers")}
        issuer = issuers.get(spec["issuerRef"]["name"])
        if issuer is None:
            return
        key = ec.generate_private_key(ec.SECP256R1())
        if "selfSigned" in issuer:
            certificate = sign(spec, key, None)
            authority = certificate
        else:
            held = self._secret(issuer["ca"]["secretName"])
            if held is None:
                return
            authority, certificate = held[0], sign(spec, key, held)
        files = {"ca.crt": pem(authority), "tls.crt": pem(certificate), "tls.key": _key_bytes(key)}
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        body = {"metadata": {"name": spec["secretName"]}, "type": "kubernetes.io/tls", "data": data}
        self._core.create_namespaced_secret(self._namespace, body)

    def _secret(self, name: str) -> Pair | None:
        try:
            data = self._core.read_namespaced_secret(name, self._namespace).data
        except ApiException as error:
            if error.status == NOT_FOUND:
                return None
            raise
        key = load_pem_private_key(base64.b64decode(data["tls.key"]), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])), key


def sign(spec: Mapping[str, Any], key: Key, issuer: Pair | None) -> x509.Certificate:
    """What the Certificate asks for. ``issuer``: certificate and key; None: it signs itself."""
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, spec["commonName"][:64])])
    hours = float(spec["duration"].removesuffix("h"))
    authority = bool(spec.get("isCA"))
    builder = (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=hours))
        .subject_name(name)
        .issuer_name(issuer[0].subject if issuer else name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if wanted := [USAGES[usage] for usage in spec.get("usages", ()) if usage in USAGES]:
        builder = builder.add_extension(x509.ExtendedKeyUsage(wanted), critical=False)
    if names := spec.get("dnsNames"):
        alternatives = x509.SubjectAlternativeName([x509.DNSName(one) for one in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_bytes(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
