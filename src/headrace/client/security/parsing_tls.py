"""The settings of TLS: whom to trust, who we are, and which versions and suites to speak. Pure."""

from typing import Final

from headrace.client.errors import InvalidSecurity
from headrace.client.security.ciphers import check_ciphers
from headrace.client.security.given import Given
from headrace.client.security.settings import TLS_VERSIONS, Stored, TlsSettings
from headrace.sasl.secret import Secret

_FORMS: Final = ("JKS", "PEM", "PKCS12")
_HOST_NAME: Final = "ssl.endpoint.identification.algorithm"
_CERTIFICATES: Final = ("ssl.certificate.location", "ssl.certificate.pem")


def parse_tls(given: Given) -> TlsSettings:
    algorithm = given.take(_HOST_NAME)
    if algorithm is not None and algorithm.lower() not in ("https", "", "none"):
        raise InvalidSecurity(
            f"{_HOST_NAME}={algorithm}: it is https, or empty for no check of the host name"
        )
    ciphers = _list(given.take("ssl.cipher.suites"))
    versions = _versions(given.take("ssl.enabled.protocols"))
    check_ciphers(ciphers, versions)
    chain, key = _identity(given)
    return TlsSettings(
        trusted=_trusted(given),
        chain=chain,
        key=key,
        checks_host_name=algorithm is None or algorithm.lower() == "https",
        versions=versions,
        ciphers=ciphers,
    )


def _list(value: str | None) -> tuple[str, ...]:
    return tuple(
        part.strip() for part in (value or "").replace(":", ",").split(",") if part.strip()
    )


def _versions(value: str | None) -> tuple[str, ...]:
    if value is None:
        return TLS_VERSIONS
    versions = _list(value)
    for version in versions:
        if version not in TLS_VERSIONS:
            raise InvalidSecurity(
                f"ssl.enabled.protocols={value}: {version} is not spoken here; "
                f"use {' and '.join(TLS_VERSIONS)}"
            )
    if not versions:
        raise InvalidSecurity("ssl.enabled.protocols: names no version of TLS")
    return versions


def _trusted(given: Given) -> Stored | None:
    names = (
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.ca.location",
        "ssl.ca.pem",
    )
    found = given.one(*names)
    form = _form(given, "ssl.truststore.type")
    password = given.secret("ssl.truststore.password")
    if found is None:
        if form is not None or password is not None:
            raise InvalidSecurity("ssl.truststore.location is missing beside its type or password")
        return None
    name, value = found
    return _stored(name, value, form, password)


def _identity(given: Given) -> tuple[Stored | None, Stored | None]:
    """Return the client's certificate chain and its key, which may be in the same place."""
    chain = given.one("ssl.keystore.location", "ssl.keystore.certificate.chain", *_CERTIFICATES)
    key = given.one("ssl.keystore.key", "ssl.key.location", "ssl.key.pem")
    form = _form(given, "ssl.keystore.type")
    store_password = given.secret("ssl.keystore.password")
    key_password = given.secret("ssl.key.password")
    if chain is None:
        if key is not None:
            raise InvalidSecurity(
                f"{key[0]}: a key needs its certificate, ssl.certificate.location"
            )
        for name, value in (
            ("ssl.keystore.type", form),
            ("ssl.keystore.password", store_password),
            ("ssl.key.password", key_password),
        ):
            if value is not None:
                raise InvalidSecurity(f"{name}: there is no key that it could be for")
        return None, None
    name, value = chain
    if name == "ssl.keystore.location":
        if key is not None:
            raise InvalidSecurity(
                f"{key[0]}: the key is in ssl.keystore.location; keep one of them"
            )
        if (
            store_password is not None
            and key_password is not None
            and store_password != key_password
        ):
            raise InvalidSecurity(
                "ssl.keystore.password and ssl.key.password differ; PKCS12 has one password"
            )
        return _stored(name, value, form, store_password or key_password), None
    if store_password is not None:
        raise InvalidSecurity("ssl.keystore.password: it is for ssl.keystore.location")
    if key is None and name != "ssl.certificate.location":
        raise InvalidSecurity(f"{name}: the key that belongs to it is missing")
    place = _stored(name, value, form, None if key is not None else key_password)
    return place, None if key is None else _stored(key[0], key[1], form, key_password)


_TEXTS: Final = (
    "ssl.truststore.certificates",
    "ssl.ca.pem",
    "ssl.keystore.certificate.chain",
    "ssl.certificate.pem",
    "ssl.keystore.key",
    "ssl.key.pem",
)


def _form(given: Given, name: str) -> str | None:
    form = given.take(name)
    if form is None:
        return None
    if form.upper() not in _FORMS:
        raise InvalidSecurity(f"{name}={form}: it is PEM or PKCS12")
    return form.upper()


def _stored(name: str, value: str, form: str | None, password: Secret | None) -> Stored:
    if not value:
        raise InvalidSecurity(f"{name}: is empty")
    is_text = name in _TEXTS
    if form not in (None, "PEM") and (is_text or not name.endswith("store.location")):
        raise InvalidSecurity(f"{name}: holds PEM, and its type says {form}")
    if form == "JKS":
        form = None  # Java reads PKCS12 by this name too; what a file is shows when it is read
    if is_text:
        if "-----BEGIN " not in value:
            raise InvalidSecurity(f"{name}: is not PEM; the name of a file goes to another setting")
        return Stored(text=Secret(value), form="PEM", password=password)
    return Stored(path=value, form=form, password=password)
