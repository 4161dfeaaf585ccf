"""Certificates for tests: an authority, and what it signs."""

import datetime
import ipaddress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Signed(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        form = PrivateFormat.PKCS8
        return self.key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def locked_key_pem(self, password: str) -> str:
        lock = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock).decode()

    def pkcs12(self, password: str) -> bytes:
        lock = BestAvailableEncryption(password.encode())
        return serialize_key_and_certificates(b"node", self.key, self.certificate, [], lock)

    def trust_store(self, password: str) -> bytes:
        lock = BestAvailableEncryption(password.encode())
        return serialize_java_truststore([PKCS12Certificate(self.certificate, b"ca")], lock)


def sign(
    names: dict[x509.ObjectIdentifier, str] | str,
    by: Signed | None = None,
    *,
    days: float = 365,
    is_authority: bool = False,
) -> Signed:
    """Return a new key and a certificate of it; an authority's own if nobody signs it.

    With `is_authority` it may sign others although somebody else has signed it.
    """
    is_authority = is_authority or by is None
    if isinstance(names, str):
        names = {NameOID.COMMON_NAME: names}
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in names.items()])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    if is_authority:
        usage = x509.KeyUsage(*(True, False, False, False, False, True, True, False, False))
        builder = builder.add_extension(usage, critical=True)
    if by is not None:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
        hosts = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = builder.add_extension(issuer, False)
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), False)
    signer = key if by is None else by.key
    return Signed(key, builder.sign(signer, hashes.SHA256()))


@cache
def authority() -> Signed:
    """Return the authority that tests trust."""
    return sign("test authority")


def write_node(folder: Path, signed: Signed | None = None) -> dict[str, str]:
    """Write a node's key and certificates as PEM; return the settings for them.

    `ca.pem` beside it has the authority.
    """
    folder.mkdir(parents=True, exist_ok=True)
    node = signed or sign("localhost", authority())
    (folder / "node.pem").write_text(node.key_pem + node.certificate_pem)
    (folder / "ca.pem").write_text(authority().certificate_pem)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "node.pem")}
