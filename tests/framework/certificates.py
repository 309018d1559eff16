"""A private CA, and servers whose certificates it has signed."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


def make_ca(folder: Path) -> tuple[Path, Path]:
    """(certificate of a new CA, certificate and key of a server on this machine that it signed), in PEM."""
    folder.mkdir(parents=True)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _sign("test CA", ca_key, ca_key, "test CA", is_ca=True)
    server = _sign("test server", key, ca_key, "test CA", is_ca=False)
    ca_file, server_file = folder / "ca.crt", folder / "server.pem"
    ca_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server_file.write_bytes(server.public_bytes(serialization.Encoding.PEM) + private)
    return ca_file, server_file


def _sign(
    name: str, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey, issuer: str, is_ca: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - day,
        not_valid_after=now + day,
    )
    builder = builder.add_extension(x509.BasicConstraints(is_ca, None), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False
    )
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    return builder.add_extension(names, critical=False).sign(by, hashes.SHA256())


@contextmanager
def tls_before(port: int, server_file: Path) -> Iterator[int]:
    """A port that speaks TLS and passes what is said on to ``port``, which does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_file)
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(pump(reader, behind_writer), pump(behind_reader, writer))

    server = loop.run_until_complete(asyncio.start_server(serve, HOST, 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    server.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
