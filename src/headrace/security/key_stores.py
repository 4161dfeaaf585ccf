"""Keys and certificates from settings: PEM, as files or as text, and PKCS12 files.

Everything becomes PEM, which is what `ssl` takes. JKS is refused with the command that converts it.
No error has a secret in it.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12KeyAndCertificates,
    load_pkcs12,
)

from headrace import config
from headrace.config import InvalidSetting, Setting, Settings

STORE_BYTES_MAX: Final = 1024 * 1024
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"
_PEM_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<what>[A-Z0-9 ]+)-----.*?-----END (?P=what)-----", re.DOTALL
)
_CERTIFICATE: Final = "CERTIFICATE"


class KeyMaterial(NamedTuple):
    """A key with its certificates, as PEM."""

    text: bytes
    """The key, then its certificate, then those that signed it."""
    password: str | None
    """The password of the key, if it is encrypted."""
    certificate: x509.Certificate
    """The first: the node's own."""

    def __repr__(self) -> str:
        return "KeyMaterial(hidden)"


class _Source(NamedTuple):
    """The settings of a store, and what they say."""

    location: Setting[str | None]
    type: Setting[str]
    path: str | None
    kind: str
    password: str | None


def store_files(settings: Settings, listener: str) -> tuple[str, ...]:
    """Return the files that the key and the trusted certificates of a listener are in."""
    stores = (config.SSL_KEYSTORE_LOCATION, config.SSL_TRUSTSTORE_LOCATION)
    return tuple(filter(None, (settings.for_listener(listener, each) for each in stores)))


def read_key(settings: Settings, listener: str) -> KeyMaterial:
    """Return the key and the certificates of a listener; InvalidSetting if they cannot be read."""
    key_text = settings.for_listener(listener, config.SSL_KEYSTORE_KEY)
    chain_text = settings.for_listener(listener, config.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    source = _source(
        settings,
        listener,
        (config.SSL_KEYSTORE_LOCATION, config.SSL_KEYSTORE_TYPE, config.SSL_KEYSTORE_PASSWORD),
    )
    key_password = settings.for_listener(listener, config.SSL_KEY_PASSWORD)
    if key_text or chain_text:
        if source.path:
            raise InvalidSetting(
                f"{source.location.name}: must be left out if {config.SSL_KEYSTORE_KEY.name} and "
                f"{config.SSL_KEYSTORE_CERTIFICATE_CHAIN.name} are given"
            )
        if source.kind != config.PEM:
            raise InvalidSetting(f"{config.SSL_KEYSTORE_KEY.name}: needs {source.type.name}=PEM")
        name = config.SSL_KEYSTORE_KEY.name
        return _pem_key(f"{key_text or ''}\n{chain_text or ''}", key_password, name)
    data = _read(source)
    if source.kind == config.PEM:
        return _pem_key(_text(data, source), key_password, source.location.name)
    store = _pkcs12(data, source)
    if store.key is None or store.cert is None:
        raise InvalidSetting(f"{_where(source)}: has no key with a certificate")
    certificates = [store.cert, *store.additional_certs]
    pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for each in certificates:
        pem += each.certificate.public_bytes(Encoding.PEM)
    return KeyMaterial(pem, None, store.cert.certificate)


def read_trusted(settings: Settings, listener: str) -> str:
    """Return the certificates that sign those of clients as PEM, empty if there are none."""
    text = settings.for_listener(listener, config.SSL_TRUSTSTORE_CERTIFICATES)
    source = _source(
        settings,
        listener,
        (
            config.SSL_TRUSTSTORE_LOCATION,
            config.SSL_TRUSTSTORE_TYPE,
            config.SSL_TRUSTSTORE_PASSWORD,
        ),
    )
    if text:
        if source.path:
            raise InvalidSetting(
                f"{source.location.name}: must be left out if "
                f"{config.SSL_TRUSTSTORE_CERTIFICATES.name} is given"
            )
        return _certificates(text, config.SSL_TRUSTSTORE_CERTIFICATES.name)
    if not source.path:
        return ""
    data = _read(source)
    if source.kind == config.PEM:
        return _certificates(_text(data, source), source.location.name)
    store = _pkcs12(data, source)
    found = [*store.additional_certs, *([store.cert] if store.cert is not None else [])]
    if not found:
        raise InvalidSetting(f"{_where(source)}: has no certificate")
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)


@contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """Return the name of a file with the data, in memory where the system can do that."""
    try:
        descriptor = os.memfd_create("headrace-key")
    except (AttributeError, OSError):
        with tempfile.NamedTemporaryFile() as file:  # only this user can read it
            file.write(data)
            file.flush()
            yield file.name
        return
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _source(
    settings: Settings,
    listener: str,
    of: tuple[Setting[str | None], Setting[str], Setting[str | None]],
) -> _Source:
    location, kind, password = of
    return _Source(
        location,
        kind,
        settings.for_listener(listener, location),
        settings.for_listener(listener, kind).upper(),
        settings.for_listener(listener, password),
    )


def _where(source: _Source) -> str:
    return f"{source.location.name}={source.path}"


def _read(source: _Source) -> bytes:
    assert source.path is not None
    try:
        with Path(source.path).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSetting(f"{_where(source)}: {error.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise InvalidSetting(f"{_where(source)}: is larger than {STORE_BYTES_MAX} bytes")
    is_pkcs12 = data.startswith(_DER_SEQUENCE)
    if data.startswith(_JKS_MAGICS):
        raise InvalidSetting(
            f"{_where(source)}: is a JKS store, which only Java reads; convert it with `keytool "
            f"-importkeystore -srckeystore {source.path} -destkeystore {source.path}.p12 "
            f"-deststoretype PKCS12` and set {source.type.name}=PKCS12"
        )
    if source.kind not in (config.JKS, config.PKCS12, config.PEM):
        raise InvalidSetting(f"{source.type.name}={source.kind}: must be PEM or PKCS12")
    if (source.kind == config.PEM) == is_pkcs12:
        actual = config.PKCS12 if is_pkcs12 else config.PEM
        raise InvalidSetting(
            f"{_where(source)}: is not {source.kind}; set {source.type.name}={actual} if it is that"
        )
    return data


def _text(data: bytes, source: _Source) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidSetting(f"{_where(source)}: is not PEM") from None


def _pkcs12(data: bytes, source: _Source) -> PKCS12KeyAndCertificates:
    password = None if source.password is None else source.password.encode()
    try:
        return load_pkcs12(data, password)
    except Exception:  # whatever the library makes of damaged bytes
        raise InvalidSetting(
            f"{_where(source)}: is not PKCS12, or its password is another one"
        ) from None


def _pem_key(text: str, password: str | None, where: str) -> KeyMaterial:
    blocks = list(_PEM_BLOCK.finditer(text))
    keys = [each[0] for each in blocks if each["what"].endswith("PRIVATE KEY")]
    chain = [each[0] for each in blocks if each["what"] == _CERTIFICATE]
    if len(keys) != 1 or not chain:
        raise InvalidSetting(f"{where}: must have one private key and its certificate, as PEM")
    first = _certificate(chain[0], where)
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and not password:
        raise InvalidSetting(
            f"{where}: the key is encrypted, {config.SSL_KEY_PASSWORD.name} must have its password"
        )
    pem = "\n".join((*keys, *chain, "")).encode()
    return KeyMaterial(pem, password if is_encrypted else None, first)


def _certificates(text: str, where: str) -> str:
    found = [each[0] for each in _PEM_BLOCK.finditer(text) if each["what"] == _CERTIFICATE]
    if not found:
        raise InvalidSetting(f"{where}: has no certificate, as PEM")
    for each in found:
        _certificate(each, where)
    return "\n".join((*found, ""))


def _certificate(pem: str, where: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise InvalidSetting(f"{where}: a certificate of it cannot be read") from None
