"""The names of clients' security settings: what is accepted, and why the others are refused.

Kafka's names (those of its Java clients) and librdkafka's, which Python programmers know from
confluent-kafka. Every accepted name has an effect; a test walks them.
"""

from difflib import get_close_matches
from typing import Final

PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "https.")

TLS_NAMES: Final = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
OAUTH_NAMES: Final = (
    "https.ca.location",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.token.file",
)
SASL_NAMES: Final = (
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    *OAUTH_NAMES,
)
SECURITY_NAMES: Final = ("security.protocol", *TLS_NAMES, *SASL_NAMES)
"""Every name that is accepted."""

_CLASS: Final = "it names a Java class, and none runs here"
_KERBEROS: Final = "Kerberos (GSSAPI) is not supported; use SCRAM-SHA-512, PLAIN or OAUTHBEARER"
_REFRESH: Final = "a token is renewed when a connection needs it; there is nothing to set"
_CLAIMS: Final = "the claims of a token are checked by the broker"
_OIDC: Final = "name 'sasl.oauthbearer.token.endpoint.url' and the client's id and secret instead"

REFUSED: Final = {
    "enable.ssl.certificate.verification": "certificates are always verified; "
    "'ssl.ca.location' names the CA to trust",
    "enable.sasl.oauthbearer.unsecure.jwt": "an unsigned token protects nothing",
    "https.ca.pem": "put the CA into a file and name it in 'https.ca.location'",
    "sasl.client.callback.handler.class": _CLASS,
    "sasl.login.callback.handler.class": f"{_CLASS}; pass a function: "
    "ClientSecurity.of(settings, token=function)",
    "sasl.login.class": _CLASS,
    "sasl.login.retry.backoff.max.ms": "'retry.backoff.max.ms' is for all retries",
    "sasl.login.retry.backoff.ms": "'retry.backoff.ms' is for all retries",
    "sasl.oauthbearer.assertion.file": "only client credentials are supported",
    "sasl.oauthbearer.config": "it makes unsigned tokens, which protect nothing",
    "sasl.oauthbearer.jwt.retriever.class": f"{_CLASS}; {_OIDC}",
    "sasl.oauthbearer.jwt.validator.class": f"{_CLASS}; {_CLAIMS}",
    "sasl.oauthbearer.method": _OIDC,
    "sasl.oauthbearer.scope.claim.name": _CLAIMS,
    "sasl.oauthbearer.sub.claim.name": _CLAIMS,
    "security.providers": _CLASS,
    "ssl.crl.location": "revocation lists are not checked here; leave it out knowingly",
    "ssl.curves.list": "OpenSSL chooses the curves",
    "ssl.engine.factory.class": _CLASS,
    "ssl.keymanager.algorithm": "it is of Java's TLS",
    "ssl.protocol": "'ssl.enabled.protocols' says which versions of TLS to speak",
    "ssl.provider": "it is of Java's TLS",
    "ssl.providers": "it is of OpenSSL's configuration file",
    "ssl.secure.random.implementation": "OpenSSL has its own",
    "ssl.sigalgs.list": "OpenSSL chooses the signature algorithms",
    "ssl.trustmanager.algorithm": "it is of Java's TLS",
}
_REFUSED_PREFIXES: Final = {
    "sasl.kerberos.": _KERBEROS,
    "sasl.login.refresh.": _REFRESH,
    "sasl.oauthbearer.expected.": _CLAIMS,
    "sasl.oauthbearer.jwks.": _CLAIMS,
    "sasl.oauthbearer.assertion.": "only client credentials are supported",
    "ssl.engine.": "engines of OpenSSL are not loaded",
}


def is_security_name(name: str) -> bool:
    """Return whether a setting belongs here, accepted or not."""
    return name.startswith(PREFIXES)


def why_refused(name: str) -> str | None:
    """Return why a name cannot be used, or None for one that can."""
    if name in SECURITY_NAMES:
        return None
    reason = REFUSED.get(name)
    if reason is not None:
        return reason
    for prefix, reason in _REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            return reason
    near = get_close_matches(name, SECURITY_NAMES, n=1, cutoff=0.6)
    return (
        f"there is no such setting; did you mean {near[0]!r}?"
        if near
        else ("it is not a security setting of a client; docs/client.md lists them")
    )
