"""Certificates for tests, made with `cryptography`: a CA, and what it signs."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Identity(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        protection: KeySerializationEncryption = NoEncryption()
        if password is not None:
            protection = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()

    def store(self, password: str) -> bytes:
        """Return key and certificate as PKCS12."""
        return pkcs12.serialize_key_and_certificates(
            b"client", self.key, self.certificate, None, BestAvailableEncryption(password.encode())
        )


def make_ca(name: str = "Test CA") -> Identity:
    """Return a CA that signs itself."""
    return _sign(name, None, is_ca=True)


def make_identity(ca: Identity, name: str, hosts: Sequence[str] = ()) -> Identity:
    """Return a key with a certificate from the CA, for these host names and IP addresses."""
    return _sign(name, ca, hosts=hosts)


def trust_store(ca: Identity, password: str) -> bytes:
    """Return a PKCS12 store that trusts a CA and holds no key."""
    return pkcs12.serialize_key_and_certificates(
        None, None, None, [ca.certificate], BestAvailableEncryption(password.encode())
    )


def write(path: Path, *texts: str) -> Path:
    """Write PEM texts to a file."""
    path.write_text("".join(texts))
    return path


def _sign(
    name: str, ca: Identity | None, *, hosts: Sequence[str] = (), is_ca: bool = False
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = subject if ca is None else ca.certificate.subject
    now = datetime.datetime.now(datetime.UTC)
    usage = {
        "digital_signature": True,
        "content_commitment": False,
        "key_encipherment": False,
        "data_encipherment": False,
        "key_agreement": False,
        "key_cert_sign": is_ca,
        "crl_sign": is_ca,
        "encipher_only": False,
        "decipher_only": False,
    }
    signer = key if ca is None else ca.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts:
        names = [_host(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Identity(key, builder.sign(signer, hashes.SHA256()))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
