"""Certificates of a cluster's own: its CA, what the CA signs for nodes, and how they are checked.

    key = new_key()
    authority = make_authority(now)                       # the key of a CA, and its certificate
    request = make_request(key)                           # what travels; the key never does
    certificate = sign(request, name, authority, valid)   # at a node that has the CA's key
    node_of(certificate)                                  # NodeName(node=3, folder_id=...)

All keys are P-256. Certificates are DER here; keys are PEM when they are stored. Nothing of a
request counts but its key: whose it is has been proven before.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.security.node_names import NodeName, has_pin, parse_name, pin_of_key

PrivateKey = ec.EllipticCurvePrivateKey

REQUEST_BYTES_MAX: Final = 4096
CERTIFICATE_BYTES_MAX: Final = 8192
BACKDATED: Final = timedelta(hours=1)
"""Certificates begin before they are made: clocks of other machines may be late."""
AUTHORITY_LIFETIME: Final = timedelta(days=3650)
_USAGES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class BadCertificate(ValueError):
    """A certificate or a request that is not what it has to be."""


class Authority(NamedTuple):
    """A CA whose key is here."""

    key: PrivateKey
    certificate: bytes

    @property
    def fingerprint(self) -> bytes:
        return fingerprint(self.certificate)

    def __repr__(self) -> str:
        return f"Authority({self.fingerprint.hex()})"


class Validity(NamedTuple):
    """From when to when a certificate is valid."""

    begins: datetime
    ends: datetime

    @property
    def renewal_due(self) -> datetime:
        """When two thirds of the time are over."""
        return self.begins + (self.ends - self.begins) * 2 / 3


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def read_key(pem: str) -> PrivateKey:
    """Return a key that was stored; BadCertificate if it is none."""
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        raise BadCertificate("a private key that cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCertificate("a private key of another kind than P-256")
    return key


def pem_of(certificate: bytes) -> str:
    """Return a certificate as PEM."""
    return _load(certificate).public_bytes(Encoding.PEM).decode()


def is_readable(certificate: bytes) -> bool:
    """Return whether these bytes are a certificate at all."""
    try:
        _load(certificate)
    except BadCertificate:
        return False
    return True


def fingerprint(certificate: bytes) -> bytes:
    """Return the SHA-256 of a certificate, by which the metadata log names it."""
    return hashlib.sha256(certificate).digest()


def pin_of(certificate: bytes) -> str:
    """Return the pin of a certificate's public key: `sha256:` and 64 digits."""
    key = _load(certificate).public_key()
    return pin_of_key(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def validity_of(certificate: bytes) -> Validity:
    loaded = _load(certificate)
    return Validity(loaded.not_valid_before_utc, loaded.not_valid_after_utc)


def node_of(certificate: bytes) -> NodeName | None:
    """Return which node a certificate is for, None if it names none, or several."""
    try:
        names = _load(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        return None
    return parse_name(uris[0]) if len(uris) == 1 else None


def in_order(authorities: Iterable[bytes]) -> list[bytes]:
    """Return CAs in the order in which they were made; those of a cluster have times of their own.

    The newest is the one to go to, whoever looks.
    """
    return sorted(authorities, key=lambda each: (validity_of(each).begins, fingerprint(each)))


def make_authority(now: datetime, others: Iterable[bytes] = ()) -> Authority:
    """Return a new CA, which begins later than others that the cluster has."""
    key = new_key()
    begins = (now - BACKDATED).replace(microsecond=0)
    for each in others:
        begins = max(begins, validity_of(each).begins + timedelta(seconds=1))
    # OpenSSL finds who signed by the name: each CA has another.
    serial = x509.random_serial_number()
    subject = _common_name(f"headrace cluster CA {serial:040x}"[:64])
    usage = x509.KeyUsage(*(False, False, False, False, False, True, True, False, False))
    builder = (
        _builder(subject, subject, key.public_key(), Validity(begins, begins + AUTHORITY_LIFETIME))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return Authority(key, certificate.public_bytes(Encoding.DER))


def make_request(key: PrivateKey) -> bytes:
    """Return a request (CSR) for a certificate, which proves that its maker has the key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name("headrace node"))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def sign(request: bytes, name: NodeName, authority: Authority, validity: Validity) -> bytes:
    """Return a certificate for the key of a request; BadCertificate if the request is no good."""
    try:
        loaded = x509.load_der_x509_csr(request)
        key = loaded.public_key()
        is_signed = loaded.is_signature_valid
    except Exception:
        raise BadCertificate("a certificate request that cannot be read") from None
    if not is_signed or not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadCertificate("a certificate request without the proof of a P-256 key")
    if not isinstance(key.curve, ec.SECP256R1):
        raise BadCertificate("a certificate request with another key than P-256")
    issuer = _load(authority.certificate)
    ends = min(validity.ends, issuer.not_valid_after_utc)
    begins = max(validity.begins, issuer.not_valid_before_utc)
    if not begins < ends:
        raise BadCertificate(
            f"a certificate until {ends}, when its CA is valid from {begins} on: the clock of the "
            "controller is wrong, or the CA has ended"
        )
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = _for_node(name, issuer.subject, key, Validity(begins, ends))
    builder = builder.add_extension(signer, critical=False)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(Encoding.DER)


def sign_itself(key: PrivateKey, name: NodeName, now: datetime) -> bytes:
    """Return a certificate that nobody vouches for: a node's own, until it has another."""
    validity = Validity(now - BACKDATED, now + AUTHORITY_LIFETIME)
    builder = _for_node(name, _node_subject(name), key.public_key(), validity)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Return whether a CA has signed a certificate; nothing is said about its time."""
    try:
        _load(certificate).verify_directly_issued_by(_load(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def has_key(authority: Authority) -> bool:
    """Return whether the key of a CA is that of its certificate."""
    return authority.key.public_key() == _load(authority.certificate).public_key()


def find_signer(certificate: bytes, authorities: Iterable[bytes]) -> bytes | None:
    """Return the fingerprint of the CA that has signed a certificate, None if none of them has."""
    for each in authorities:
        if is_signed_by(certificate, each):
            return fingerprint(each)
    return None


def check_pinned(
    certificate: bytes, authorities: Iterable[bytes], pins: Iterable[str], now: datetime
) -> NodeName:
    """Return which node a certificate is for that a pinned CA has signed, else BadCertificate.

    `authorities` are what the other side says that its CAs are: only the pins vouch for them.
    """
    expected = tuple(pins)
    offered = list(authorities)
    pinned = [each for each in offered if has_pin(expected, pin_of(each))]
    if not pinned:
        what = ", ".join(map(pin_of, offered)) or "none"
        raise BadCertificate(f"its CA is {what}, and the pin is {', '.join(expected)}")
    if find_signer(certificate, pinned) is None:
        raise BadCertificate("its certificate is not signed by the CA that is pinned")
    validity = validity_of(certificate)
    if not validity.begins <= now <= validity.ends:
        raise BadCertificate(
            f"its certificate is valid from {validity.begins} to {validity.ends}, not now"
        )
    name = node_of(certificate)
    if name is None:
        raise BadCertificate("its certificate names no node")
    return name


def valid_for(days: int, now: datetime) -> Validity:
    """Return the time of a certificate that is made now."""
    return Validity(now - BACKDATED, now + timedelta(days=days))


def moment(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def _for_node(
    name: NodeName, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: Validity
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(*(True, False, False, False, False, False, False, False, False))
    return (
        _builder(_node_subject(name), issuer, key, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name.uri)]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    validity: Validity,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.begins)
        .not_valid_after(validity.ends)
    )


def _node_subject(name: NodeName) -> x509.Name:
    return _common_name(f"headrace node {name.node}")


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _load(certificate: bytes) -> x509.Certificate:
    try:
        if len(certificate) > CERTIFICATE_BYTES_MAX:
            raise ValueError("too large")
        return x509.load_der_x509_certificate(certificate)
    except (ValueError, TypeError):
        raise BadCertificate("a certificate that cannot be read") from None
