"""Security settings: every name acts or is refused, and none shows a secret."""

import pickle
import re
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.client.errors import InvalidSecurity
from headrace.client.security.names import REFUSED, SECURITY_NAMES, why_refused
from headrace.client.security.settings import PLAINTEXT, ClientSecurity

CANARY = "canary-0c5f2b"
PEM = f"-----BEGIN CERTIFICATE-----\n{CANARY}\n-----END CERTIFICATE-----"

SSL = {"security.protocol": "SSL"}
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "ann",
    "sasl.password": CANARY,
}
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = OAUTH | {
    "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": CANARY,
}
TRUST = SSL | {"ssl.truststore.location": "trust.p12"}
STORE = SSL | {"ssl.keystore.location": "key.p12"}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def without(settings: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_LONG = "sasl.oauthbearer.client.credentials.client"
EXAMPLES: dict[str, tuple[dict[str, str], str]] = {
    "security.protocol": ({}, "SSL"),
    "ssl.ca.location": (SSL, "ca.pem"),
    "ssl.ca.pem": (SSL, PEM),
    "ssl.certificate.location": (SSL, "client.pem"),
    "ssl.certificate.pem": (SSL | {"ssl.key.location": "key.pem"}, PEM),
    "ssl.cipher.suites": (SSL, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    "ssl.enabled.protocols": (SSL, "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": (SSL, ""),
    "ssl.key.location": (SSL | {"ssl.certificate.location": "client.pem"}, "key.pem"),
    "ssl.key.password": (STORE, CANARY),
    "ssl.key.pem": (SSL | {"ssl.certificate.location": "client.pem"}, PEM),
    "ssl.keystore.certificate.chain": (SSL | {"ssl.keystore.key": PEM}, PEM),
    "ssl.keystore.key": (SSL | {"ssl.keystore.certificate.chain": PEM}, PEM),
    "ssl.keystore.location": (SSL, "key.p12"),
    "ssl.keystore.password": (STORE, CANARY),
    "ssl.keystore.type": (STORE, "PKCS12"),
    "ssl.truststore.certificates": (SSL, PEM),
    "ssl.truststore.location": (SSL, "trust.p12"),
    "ssl.truststore.password": (TRUST, CANARY),
    "ssl.truststore.type": (TRUST, "PKCS12"),
    "sasl.jaas.config": (
        without(SCRAM, "sasl.username", "sasl.password"),
        f'{JAAS} username="ann" password="{CANARY}";',
    ),
    "sasl.mechanism": (without(SCRAM, "sasl.mechanism"), "PLAIN"),
    "sasl.mechanisms": (without(SCRAM, "sasl.mechanism"), "SCRAM-SHA-512"),
    "sasl.password": (without(SCRAM, "sasl.password"), CANARY),
    "sasl.username": (without(SCRAM, "sasl.username"), "ann"),
    "https.ca.location": (ENDPOINT, "ca.pem"),
    "sasl.login.connect.timeout.ms": (ENDPOINT, "1000"),
    "sasl.login.read.timeout.ms": (ENDPOINT, "1000"),
    f"{_LONG}.id": (without(ENDPOINT, _ID), "me"),
    f"{_LONG}.secret": (without(ENDPOINT, _SECRET), CANARY),
    "sasl.oauthbearer.client.id": (without(ENDPOINT, _ID), "me"),
    "sasl.oauthbearer.client.secret": (without(ENDPOINT, _SECRET), CANARY),
    "sasl.oauthbearer.extensions": (ENDPOINT, "logicalCluster=lkc-1,identityPoolId=p"),
    "sasl.oauthbearer.scope": (ENDPOINT, "kafka"),
    "sasl.oauthbearer.token": (OAUTH, CANARY),
    "sasl.oauthbearer.token.endpoint.url": (OAUTH, "file:///tmp/token"),
    "sasl.oauthbearer.token.file": (OAUTH, "token.jwt"),
}
"""For each accepted name: settings beside which it acts, and a value."""


def test_every_accepted_name_has_an_example() -> None:
    assert set(EXAMPLES) == set(SECURITY_NAMES)


@pytest.mark.parametrize("name", SECURITY_NAMES)
def test_an_accepted_name_acts_and_where_it_could_not_it_is_refused_by_name(name: str) -> None:
    beside, value = EXAMPLES[name]
    security = ClientSecurity.of(beside | {name: value})
    with suppress(InvalidSecurity):  # nothing works without some
        assert security != ClientSecurity.of(beside)
    assert CANARY not in repr(security) + str(security)
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security) == hash(pickle.loads(pickle.dumps(security)))
    if name != "security.protocol":
        with pytest.raises(InvalidSecurity, match=re.escape(name)):
            ClientSecurity.of({name: value})


@pytest.mark.parametrize("name", [*REFUSED, "sasl.kerberos.service.name", "ssl.truststor.location"])
def test_other_names_are_refused_with_a_reason(name: str) -> None:
    assert why_refused(name)
    with pytest.raises(InvalidSecurity, match=re.escape(name)):
        ClientSecurity.of(SCRAM | {name: "x"})


def test_nothing_set_is_plaintext() -> None:
    assert ClientSecurity.of({}) == PLAINTEXT
    assert ClientSecurity.of({"security.protocol": "plaintext"}) == PLAINTEXT


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security.protocol": "TLS"}, "SASL_SSL"),
        (without(SCRAM, "sasl.mechanism"), "sasl.mechanism is missing"),
        (SCRAM | {"sasl.mechanism": "GSSAPI"}, "Kerberos"),
        (SCRAM | {"sasl.mechanisms": "PLAIN"}, "keep one"),
        (SCRAM | {"sasl.jaas.config": f"{JAAS} username=u;"}, "sasl.username: is in"),
        (SCRAM | {"sasl.oauthbearer.token": CANARY}, "no effect"),
        (SCRAM | {"ssl.ca.location": "a", "ssl.truststore.location": "b"}, "keep one"),
        (SCRAM | {"ssl.enabled.protocols": "TLSv1.1"}, "not spoken"),
        (SCRAM | {"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "weak"),
        (SCRAM | {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "all of"),
        (SCRAM | {"ssl.endpoint.identification.algorithm": "ldap"}, "https"),
        (SCRAM | {"ssl.key.location": "key.pem"}, "certificate"),
        (SCRAM | {"ssl.ca.pem": f"/{CANARY}"}, "not PEM"),
        (OAUTH, "none is given"),
        (ENDPOINT | {"sasl.oauthbearer.token": CANARY}, "are given"),
        (
            ENDPOINT | {"sasl.oauthbearer.token.endpoint.url": f"http://x/{CANARY}"},
            "https://",
        ),
        (OAUTH | {"sasl.oauthbearer.token": CANARY, "sasl.oauthbearer.scope": "x"}, "no effect"),
    ],
)
def test_what_contradicts_or_misses_is_refused_without_a_secret(
    settings: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidSecurity, match=re.escape(words)) as refused:
        ClientSecurity.of(settings)
    assert CANARY not in str(refused.value)


def test_jaas_lines_are_read_as_people_paste_them() -> None:
    text = f"""{JAAS} \\
        username='o"brien' password="a\\"b;c=d \\\\ {CANARY}" tokenauth=true ;"""
    sasl = ClientSecurity.of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": text.replace("\\\n", "\n"),
        }
    ).sasl
    assert sasl is not None
    assert sasl.username == 'o"brien'
    assert sasl.password.reveal() == f'a"b;c=d \\ {CANARY}'
    assert sasl.extensions == (("tokenauth", "true"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'{JAAS} username="ann" password="{CANARY}"',
        f'{JAAS} username="ann" password="{CANARY};',
        f'{JAAS} username="ann" password="{CANARY}"; {JAAS} username=x password=y;',
        f'{JAAS} username="ann" password="{CANARY}" serviceName=kafka;',
        f'{JAAS} username="ann" password;',
        f'com.example.{CANARY} required username="ann";',
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{CANARY}";',
    ],
)
def test_a_wrong_jaas_line_is_refused_without_quoting_it(text: str) -> None:
    settings = without(SCRAM, "sasl.username", "sasl.password") | {"sasl.jaas.config": text}
    with pytest.raises(InvalidSecurity, match="jaas") as refused:
        ClientSecurity.of(settings)
    assert CANARY not in str(refused.value)


def test_a_file_of_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("\n".join(f"{name} = {value}" for name, value in SCRAM.items()))
    assert ClientSecurity.from_file(path) == ClientSecurity.of(SCRAM)
