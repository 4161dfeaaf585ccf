"""The TLS context of a listener: versions, cipher suites, its key, and whom it trusts.

made = make_context(settings, "SASL_SSL")
made.context                 # for new connections; those that are there keep their own
"""

import ssl
from datetime import datetime
from typing import Final, NamedTuple

from headrace import config
from headrace.config import InvalidSetting, Settings
from headrace.security.key_stores import as_file, read_key, read_trusted

STRONG: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""The cipher suites of TLS 1.2, by OpenSSL's names: authenticated, with keys that are forgotten."""
NEWEST: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""Those of TLS 1.3, which Python cannot choose among."""
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_OLDER, _NEWER = config.TLS_PROTOCOLS


class MadeContext(NamedTuple):
    """A context, and until when its certificate is valid."""

    context: ssl.SSLContext
    expires: datetime
    subject: str


def make_context(settings: Settings, listener: str) -> MadeContext:
    """Return the context of a listener; InvalidSetting if its settings or files do not allow it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    enabled = settings.for_listener(listener, config.SSL_ENABLED_PROTOCOLS)
    suites = settings.for_listener(listener, config.SSL_CIPHER_SUITES)
    chosen, protocols = _choose_suites(suites, set(enabled))
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_2 if _OLDER in protocols else ssl.TLSVersion.TLSv1_3
    )
    context.maximum_version = (
        ssl.TLSVersion.TLSv1_3 if _NEWER in protocols else ssl.TLSVersion.TLSv1_2
    )
    context.set_ciphers(":".join(chosen))
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    key = read_key(settings, listener)
    with as_file(key.text) as name:
        try:
            # Never ask on a terminal: without a password the key is not encrypted.
            context.load_cert_chain(name, password=key.password or "")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or "the key cannot be read"
            raise InvalidSetting(
                f"listener {listener}: the key and its certificate cannot be used ({reason}); do "
                f"they belong together, and is {config.SSL_KEY_PASSWORD.name} right?"
            ) from None
    trusted = read_trusted(settings, listener)
    if trusted:
        # Whoever is in the store is trusted, as in Java: also an authority that is no root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=trusted)
        except (ssl.SSLError, ValueError, TypeError) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidSetting(
                f"listener {listener}: {config.SSL_TRUSTSTORE_LOCATION.name} has a certificate "
                f"that cannot be used ({reason})"
            ) from None
    context.verify_mode = _VERIFY[settings.for_listener(listener, config.SSL_CLIENT_AUTH).lower()]
    certificate = key.certificate
    return MadeContext(
        context, certificate.not_valid_after_utc, certificate.subject.rfc4514_string()
    )


def _choose_suites(suites: tuple[str, ...], protocols: set[str]) -> tuple[list[str], set[str]]:
    """Return the suites of TLS 1.2 and the versions that remain possible."""
    if not suites:
        return list(STRONG.values()), protocols
    by_name = {**STRONG, **{each: each for each in STRONG.values()}}
    name = config.SSL_CIPHER_SUITES.name
    unknown = [each for each in suites if each not in by_name and each not in NEWEST]
    if unknown:
        raise InvalidSetting(
            f"{name}: {unknown[0]} is not among the strong ones that a node has: "
            f"{', '.join(sorted({*STRONG, *NEWEST}))}"
        )
    older = [by_name[each] for each in suites if each in by_name]
    newer = NEWEST & set(suites)
    if _NEWER in protocols and newer and newer != NEWEST:
        raise InvalidSetting(
            f"{name}: must have all of TLS 1.3 or none, as they cannot be chosen among: "
            f"{', '.join(sorted(NEWEST))}"
        )
    remaining = protocols - ({_NEWER} if not newer else set()) - ({_OLDER} if not older else set())
    if not remaining:
        raise InvalidSetting(
            f"{name}: has no suite for {config.SSL_ENABLED_PROTOCOLS.name}="
            f"{','.join(sorted(protocols))}"
        )
    return older or list(STRONG.values()), remaining
