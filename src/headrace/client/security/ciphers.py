"""`ssl.cipher.suites`: Java's names for what OpenSSL calls otherwise. Pure."""

from typing import Final

from headrace.client.errors import InvalidSecurity

NAME: Final = "ssl.cipher.suites"
TLS_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_TLS_1_2: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}
"""What is authenticated and has forward secrecy; nothing else is offered."""


def check_ciphers(ciphers: tuple[str, ...], versions: tuple[str, ...]) -> None:
    """Raise InvalidSecurity for suites that cannot be honoured."""
    known = {*TLS_1_3, *_TLS_1_2, *_TLS_1_2.values()}
    for cipher in ciphers:
        if cipher not in known:
            raise InvalidSecurity(
                f"{NAME}: {cipher} is unknown or weak; the suites are {', '.join(sorted(known))}"
            )
    if not ciphers:
        return
    newest = TLS_1_3.intersection(ciphers)
    if newest and newest != TLS_1_3:
        raise InvalidSecurity(
            f"{NAME}: OpenSSL offers all suites of TLS 1.3 or none; name all of "
            f"{', '.join(sorted(TLS_1_3))}, or none"
        )
    if not narrowed_versions(ciphers, versions):
        raise InvalidSecurity(f"{NAME}: none of the suites belongs to ssl.enabled.protocols")


def narrowed_versions(ciphers: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the versions of TLS that have a suite."""
    if not ciphers:
        return versions
    has_newest = not TLS_1_3.isdisjoint(ciphers)
    has_older = bool(openssl_names(ciphers))
    return tuple(
        version for version in versions if (has_newest if version == "TLSv1.3" else has_older)
    )


def openssl_names(ciphers: tuple[str, ...]) -> str:
    """Return the suites of TLS 1.2 as OpenSSL takes them; empty if there are none."""
    older = (_TLS_1_2.get(name, name) for name in ciphers if name not in TLS_1_3)
    return ":".join(older)
