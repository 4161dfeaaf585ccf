"""OpenSSL's context for a client's settings, and what its errors mean to a user.

A context is made once for settings and files, and again when a file changed: new connections then
use the new certificates, open ones stay. Making one reads files and parses the system's CAs, which
takes milliseconds, so `open_connection` does it on a thread.
"""

import secrets
import ssl
import tempfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from headrace.client.errors import InvalidSecurity, NotReachable, TlsFailed
from headrace.client.security.ciphers import narrowed_versions, openssl_names
from headrace.client.security.settings import Stored, TlsSettings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

KEYTOOL: Final = (
    "keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
)
STORE_BYTES_MAX: Final = 4 * 1024 * 1024
CONTEXTS_MAX: Final = 32
"""How many contexts a process keeps."""

_JKS_MAGIC: Final = (bytes.fromhex("feedfeed"), bytes.fromhex("cececece"))
_PEM_MARK: Final = b"-----BEGIN "
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_HOST_MISMATCHES: Final = (62, 64)
"""OpenSSL's codes for a host name and an IP address that the certificate does not have."""

_Seen = tuple[tuple[str, int, int], ...]
_contexts: "OrderedDict[TlsSettings, tuple[_Seen, ssl.SSLContext]]" = OrderedDict()
_lock: Final = Lock()


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for settings; raise InvalidSecurity for material that cannot be used."""
    seen = _files(settings)
    with _lock:
        known = _contexts.get(settings)
        if known is not None and known[0] == seen:
            _contexts.move_to_end(settings)
            return known[1]
    context = _make_context(settings)
    with _lock:
        _contexts[settings] = seen, context
        while len(_contexts) > CONTEXTS_MAX:
            _contexts.popitem(last=False)
    return context


def explain_tls(error: Exception, address: str) -> TlsFailed | NotReachable:
    """Return the error of a failed handshake, with the way out."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_MISMATCHES:
            return TlsFailed(
                f"{address} has a certificate for another host ({error.verify_message}); connect "
                "by a name that is in the certificate, or issue one with this name"
            )
        return TlsFailed(
            f"the certificate of {address} is not trusted ({error.verify_message}); "
            "ssl.ca.location (or ssl.truststore.location) names the CA that signed it"
        )
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLError) and reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE"):
        return TlsFailed(f"{address} does not speak TLS; {_PLAIN}")
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        words = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
        hint = (
            "the broker wants a certificate of ours that it trusts: ssl.keystore.location"
            if "certificate" in words or "unknown ca" in words or "access denied" in words
            else "do ssl.enabled.protocols and ssl.cipher.suites fit the broker's?"
        )
        return TlsFailed(f"{address} ended TLS with '{words}'; {hint}")
    if isinstance(error, ssl.SSLError) and not isinstance(
        error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError
    ):
        return TlsFailed(f"TLS with {address} failed: {reason or error}")
    return NotReachable(f"{address} closed the connection during the TLS handshake; {_PLAIN}")


_PLAIN: Final = "if its listener has no TLS, set security.protocol=PLAINTEXT or SASL_PLAINTEXT"


def _files(settings: TlsSettings) -> _Seen:
    """Return what tells whether a file changed."""
    seen = []
    for stored in (settings.trusted, settings.chain, settings.key):
        if stored is not None and stored.path is not None:
            try:
                status = Path(stored.path).stat()
            except OSError as error:
                raise InvalidSecurity(f"{stored.path}: cannot be read: {error.strerror}") from None
            seen.append((stored.path, status.st_mtime_ns, status.st_size))
    return tuple(seen)


def _make_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_name
    context.verify_mode = ssl.CERT_REQUIRED
    versions = [
        _VERSIONS[version] for version in narrowed_versions(settings.ciphers, settings.versions)
    ]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    names = openssl_names(settings.ciphers)
    if names:
        context.set_ciphers(names)
    if settings.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        # Whoever is in the store is trusted, as in Java: also an authority that is no root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _trust(context, settings.trusted)
    if settings.chain is not None:
        _identify(context, settings.chain, settings.key)
    return context


def _trust(context: ssl.SSLContext, stored: Stored) -> None:
    data = _read(stored)
    where = stored.path or "the CA's PEM text"
    if _form(stored, data) == "PEM":
        try:
            context.load_verify_locations(cadata=data.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            raise InvalidSecurity(f"{where}: has no certificate that can be read") from None
        return
    store = _open_pkcs12(stored, data)
    found = [entry.certificate for entry in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise InvalidSecurity(f"{where}: holds no certificate to trust")
    context.load_verify_locations(cadata="".join(map(_pem, found)))


def _identify(context: ssl.SSLContext, chain: Stored, key: Stored | None) -> None:
    """Load the client's certificate and key, through files only this user can read, for a moment.

    Keys that come from a PKCS12 store are encrypted again for that moment.
    """
    data = _read(chain)
    password = chain.password if key is None else key.password
    one_time = "" if password is None else password.reveal()
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        if _form(chain, data) == "PKCS12":
            one_time = secrets.token_hex(32)
            data, key_data = _from_pkcs12(chain, data, one_time)
        else:
            key_data = data if key is None else _read(key)
        # OpenSSL asks on the terminal for a password that it was not given.
        if b"ENCRYPTED" in key_data and not one_time:
            raise InvalidSecurity(
                f"{_where(key or chain)}: is encrypted; ssl.key.password opens it"
            )
        chain_file, key_file = Path(folder, "chain.pem"), Path(folder, "key.pem")
        chain_file.write_bytes(data)
        key_file.write_bytes(key_data)
        try:
            context.load_cert_chain(chain_file, key_file, password=one_time)
        except (ssl.SSLError, ValueError):
            raise InvalidSecurity(
                f"{_where(chain)}: certificate and key cannot be loaded; is ssl.key.password "
                "right, and does the key belong to the first certificate?"
            ) from None


def _where(stored: Stored) -> str:
    return stored.path or "the PEM text of the key or certificate"


def _read(stored: Stored) -> bytes:
    if stored.text is not None:
        return stored.text.reveal().encode()
    assert stored.path is not None, "material is a file or a text"
    try:
        with Path(stored.path).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSecurity(f"{stored.path}: cannot be read: {error.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise InvalidSecurity(f"{stored.path}: is larger than {STORE_BYTES_MAX} bytes")
    return data


def _form(stored: Stored, data: bytes) -> str:
    """Return what the bytes are; raise InvalidSecurity for JKS, and for what is neither."""
    if data.startswith(_JKS_MAGIC):
        command = KEYTOOL.format(path=stored.path)
        raise InvalidSecurity(
            f"{stored.path}: is a Java key store (JKS), which only Java reads; convert it: "
            f"{command}"
        )
    form = "PEM" if _PEM_MARK in data else "PKCS12" if data[:1] == b"\x30" else None
    if form is None or stored.form not in (None, form):
        wanted = stored.form or "PEM or PKCS12"
        raise InvalidSecurity(f"{_where(stored)}: is not {wanted}")
    return form


def _open_pkcs12(stored: Stored, data: bytes) -> "PKCS12KeyAndCertificates":
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415  costs 50 ms

    password = None if stored.password is None else stored.password.reveal().encode()
    try:
        return pkcs12.load_pkcs12(data, password)
    except Exception as error:
        wrong = "is its password right?" if password is not None else "its password is missing"
        raise InvalidSecurity(
            f"{stored.path}: cannot be opened as PKCS12 ({type(error).__name__}); {wrong}"
        ) from None


def _from_pkcs12(stored: Stored, data: bytes, one_time: str) -> tuple[bytes, bytes]:
    """Return the chain and the key as PEM, the key encrypted with a password used once."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  costs 50 ms

    store = _open_pkcs12(stored, data)
    if store.key is None or store.cert is None:
        raise InvalidSecurity(f"{stored.path}: holds no key with its certificate")
    chain = _pem(store.cert.certificate) + "".join(
        _pem(entry.certificate) for entry in store.additional_certs
    )
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(one_time.encode()),
    )
    return chain.encode(), key


def _pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return certificate.public_bytes(Encoding.PEM).decode("ascii")
