"""Settings of a node's protection: TLS, SASL, who may do what. Kafka's names and meanings.

Most of them can be said for one listener, as `listener.name.NAME.SETTING`, and those of SASL for
one mechanism of it, as `listener.name.NAME.MECHANISM.SETTING` (`Settings.for_listener`). What a
node does not have is not here, and is refused by name (`protection`).
"""

from typing import Final

from headrace.config.setting import (
    DAY_MS,
    boolean,
    choice,
    class_name,
    int32,
    int64,
    optional,
    secret,
    string,
    words,
)

JKS: Final = "JKS"
PKCS12: Final = "PKCS12"
PEM: Final = "PEM"
STORE_TYPES: Final = (JKS, PKCS12, PEM)
TLS_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OAUTH_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)
NODE_USER: Final = "headrace-node"
"""The user that nodes are to each other; nobody else can be."""
NODE_LISTENER: Final = "HEADRACE-NODES"
"""The listener on loopback that a protected node opens for other nodes and for itself."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that a node has."""


def super_users(text: str) -> tuple[str, ...]:
    """Return the principals of a list that is separated by semicolons, each TYPE:NAME."""
    found = tuple(each.strip() for each in text.split(";") if each.strip())
    for each in found:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise ValueError("must be a list of TYPE:NAME, as User:alice, separated by semicolons")
    return found


def _users(text: str) -> str:
    super_users(text)
    return text


# TLS

SSL_KEYSTORE_TYPE: Final = string(
    "ssl.keystore.type",
    JKS,
    "The form of the node's key and certificates: PEM or PKCS12. JKS has to be converted first.",
)
SSL_KEYSTORE_LOCATION: Final = optional(
    string(
        "ssl.keystore.location",
        "",
        "The file with the node's key and certificates. It is read again when it has changed.",
    )
)
SSL_KEYSTORE_PASSWORD: Final = secret(
    "ssl.keystore.password", "The password of ssl.keystore.location."
)
SSL_KEY_PASSWORD: Final = secret(
    "ssl.key.password", "The password of the key itself, if it has one."
)
SSL_KEYSTORE_KEY: Final = secret(
    "ssl.keystore.key", "The node's key, as PEM text instead of a file."
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final = secret(
    "ssl.keystore.certificate.chain",
    "The node's certificate and those that signed it, as PEM text instead of a file.",
)
SSL_TRUSTSTORE_TYPE: Final = string(
    "ssl.truststore.type",
    JKS,
    "The form of the certificates that sign those of clients: PEM or PKCS12. JKS has to be "
    "converted first.",
)
SSL_TRUSTSTORE_LOCATION: Final = optional(
    string(
        "ssl.truststore.location",
        "",
        "The file with the certificates that sign those of clients. It is read again when it has "
        "changed.",
    )
)
SSL_TRUSTSTORE_PASSWORD: Final = secret(
    "ssl.truststore.password", "The password of ssl.truststore.location."
)
SSL_TRUSTSTORE_CERTIFICATES: Final = secret(
    "ssl.truststore.certificates",
    "The certificates that sign those of clients, as PEM text instead of a file.",
)
SSL_CLIENT_AUTH: Final = choice(
    "ssl.client.auth",
    "none",
    "Whether clients need a certificate of their own, may have one, or are not asked for one.",
    of=("required", "requested", "none"),
)
SSL_ENABLED_PROTOCOLS: Final = words(
    "ssl.enabled.protocols",
    TLS_PROTOCOLS,
    "The versions of TLS that clients may use: TLSv1.2, TLSv1.3.",
)
SSL_CIPHER_SUITES: Final = words(
    "ssl.cipher.suites",
    (),
    "The cipher suites that clients may use, by the names of TLS or of OpenSSL; by default those "
    "that OpenSSL and this node consider strong.",
)
SSL_PRINCIPAL_MAPPING_RULES: Final = string(
    "ssl.principal.mapping.rules",
    "DEFAULT",
    "Rules that make a user's name of the distinguished name of a client's certificate.",
)

# SASL

SASL_ENABLED_MECHANISMS: Final = words(
    "sasl.enabled.mechanisms",
    ("GSSAPI",),
    f"How clients may authenticate: {', '.join(MECHANISMS)}. The default of Kafka's is not "
    "supported, so listeners with SASL need a value.",
)
SASL_JAAS_CONFIG: Final = secret(
    "sasl.jaas.config",
    "The users of PLAIN, as Kafka's PlainLoginModule has them (user_NAME=PASSWORD).",
)
SASL_SERVER_CALLBACK_HANDLER_CLASS: Final = class_name(
    "sasl.server.callback.handler.class",
    "Accepted for OAUTHBEARER with the name of Kafka's validator, which is what is done here.",
)
SASL_SERVER_MAX_RECEIVE_SIZE: Final = int32(
    "sasl.server.max.receive.size",
    512 * 1024,
    "The largest request of a client that is not authenticated yet.",
)
CONNECTIONS_MAX_REAUTH_MS: Final = int64(
    "connections.max.reauth.ms",
    0,
    "After how long a client has to authenticate again, at most; 0 for never, unless its token "
    "expires.",
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: Final = int32(
    "connection.failed.authentication.delay.ms",
    100,
    "How long a client that failed to authenticate waits for the response.",
    at_least=0,
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final = optional(
    string(
        "sasl.oauthbearer.jwks.endpoint.url",
        "",
        "Where the keys are that sign tokens: a URL with https, or file:// and a path.",
    )
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Final = int64(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often these keys are read again."
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = words(
    "sasl.oauthbearer.expected.audience", (), "The audiences of which a token must have one."
)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final = optional(
    string("sasl.oauthbearer.expected.issuer", "", "The issuer that a token must have.")
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME: Final = string(
    "sasl.oauthbearer.scope.claim.name", "scope", "The claim of a token that has its scope."
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = string(
    "sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that has the user's name."
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = int32(
    "sasl.oauthbearer.clock.skew.seconds",
    30,
    "How far the clock of the issuer of tokens may be off.",
)

# Rights

AUTHORIZER_CLASS_NAME: Final = string(
    "authorizer.class.name",
    "",
    "Whether requests need rights: Kafka's StandardAuthorizer, whose rules hold here, or nothing.",
)
SUPER_USERS: Final = string(
    "super.users",
    "",
    "The users who may do everything, as User:NAME, separated by semicolons.",
    read=_users,
    allowed="a list of TYPE:NAME, separated by semicolons",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = boolean(
    "allow.everyone.if.no.acl.found",
    False,
    "Whether a resource that no ACL is about is everybody's.",
)

# Delegation tokens

DELEGATION_TOKEN_SECRET_KEY: Final = secret(
    "delegation.token.secret.key",
    "The secret that delegation tokens follow from, the same on every node; without one there are "
    "none.",
)
DELEGATION_TOKEN_MAX_LIFETIME_MS: Final = int64(
    "delegation.token.max.lifetime.ms",
    7 * DAY_MS,
    "How long a delegation token can be renewed, counted from its creation.",
    at_least=1,
)
DELEGATION_TOKEN_EXPIRY_TIME_MS: Final = int64(
    "delegation.token.expiry.time.ms",
    DAY_MS,
    "How long a delegation token is valid after its creation or a renewal.",
    at_least=1,
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS: Final = int64(
    "delegation.token.expiry.check.interval.ms",
    3_600_000,
    "How often delegation tokens that have expired are removed; they cannot be used before that.",
    at_least=1,
)

# Headrace's own

INSECURE: Final = boolean(
    "headrace.insecure",
    False,
    "Whether listeners that other machines reach may have neither encryption nor authentication.",
)
AUTHENTICATION_TIMEOUT_MS: Final = int32(
    "headrace.authentication.timeout.ms",
    10_000,
    "How long a client may take to authenticate, and for the handshake of TLS before that.",
    at_least=100,
)
HANDSHAKES_MAX: Final = int32(
    "headrace.handshakes.max",
    1000,
    "How many connections may be in the handshake of TLS or authenticate at once; beyond that, the "
    "oldest one of the host that has the most is closed.",
    at_least=1,
)
DELEGATION_TOKENS_MAX: Final = int32(
    "headrace.delegation.tokens.max",
    1000,
    "How many delegation tokens an owner may have; further ones are refused.",
    at_least=1,
)

AUDIT_LOG: Final = string(
    "headrace.audit.log",
    "",
    "The file for who changed what, was denied what, and logged in, as JSON lines; a relative path "
    "is in the data folder. Empty for none.",
)
AUDIT_LOG_MAX_BYTES: Final = int64(
    "headrace.audit.log.max.bytes",
    64 * 1024 * 1024,
    "How large a file of the audit log becomes before another one is begun.",
    at_least=1024,
)
AUDIT_LOG_FILES: Final = int32(
    "headrace.audit.log.files",
    8,
    "How many files of the audit log are kept, with the one that is written.",
    at_least=1,
)
AUDIT_QUEUE_EVENTS: Final = int32(
    "headrace.audit.queue.events",
    10_000,
    "How many events wait to be written to the audit log; further ones are dropped and counted.",
    at_least=1,
)

TLS: Final = (
    SSL_KEYSTORE_TYPE,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_TRUSTSTORE_TYPE,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_CLIENT_AUTH,
    SSL_ENABLED_PROTOCOLS,
    SSL_CIPHER_SUITES,
    SSL_PRINCIPAL_MAPPING_RULES,
)
SASL: Final = (
    SASL_ENABLED_MECHANISMS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
)
MECHANISM: Final = (
    SASL_JAAS_CONFIG,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    CONNECTIONS_MAX_REAUTH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
)
"""What may be said for one mechanism of a listener, too."""
RIGHTS: Final = (AUTHORIZER_CLASS_NAME, SUPER_USERS, ALLOW_EVERYONE_IF_NO_ACL_FOUND)
TOKENS: Final = (
    DELEGATION_TOKEN_SECRET_KEY,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    DELEGATION_TOKENS_MAX,
)
AUDIT: Final = (AUDIT_LOG_MAX_BYTES, AUDIT_LOG_FILES, AUDIT_QUEUE_EVENTS)
"""What needs `headrace.audit.log`."""
OF_LISTENERS: Final = frozenset(each.name for each in (*TLS, *SASL, *MECHANISM))
OF_MECHANISMS: Final = frozenset(each.name for each in MECHANISM)
ACTING: Final = frozenset(each.name for each in (*TLS, *SASL, *MECHANISM, *RIGHTS, *TOKENS))
"""The settings of Kafka's protection that act here."""
