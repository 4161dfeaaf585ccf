"""Apache Kafka with every kind of secured listener that a client meets."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.certificates import Identity, make_ca, make_identity, write
from tests.jvm.kafka_broker import kafka
from tools.ports import free_ports

USER = "ann"
PASSWORD = "canary-5e1f = secret"
"""Found in no output."""
SESSION_MS = 3000
"""How long a session with PLAIN lasts."""
_MODULES = "org.apache.kafka.common.security"
_ISSUER, _AUDIENCE = "https://issuer.example", "kafka"


class Secured(NamedTuple):
    """The broker's addresses, by listener, and what its clients need."""

    folder: Path
    plaintext: str
    sasl_ssl: str
    """SCRAM, PLAIN with short sessions, OAUTHBEARER; its certificate is for 127.0.0.1."""
    ssl: str
    """Wants a certificate of the client."""
    sasl_plaintext: str
    ca: Identity
    client: Identity
    token_key: rsa.RSAPrivateKey

    @property
    def ca_path(self) -> Path:
        return self.folder / "ca.pem"

    def scram(self, **more: str) -> dict[str, str]:
        """Return what a client of SASL_SSL with SCRAM sets."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.ca_path),
        } | {name.replace("_", "."): value for name, value in more.items()}

    def token(self, seconds: int = 600) -> str:
        """Return a signed token that the broker accepts."""
        now = int(time.time())
        claims = {
            "sub": USER, "iss": _ISSUER, "aud": _AUDIENCE, "iat": now, "exp": now + seconds
        }  # fmt: skip
        signed = f"{_json({'alg': 'RS256', 'kid': 'one', 'typ': 'JWT'})}.{_json(claims)}"
        signature = self.token_key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"


@contextmanager
def secured_kafka(folder: Path) -> Iterator[Secured]:
    """Run the broker."""
    ca = make_ca()
    broker = make_identity(ca, "broker", ["127.0.0.1"])
    token_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write(folder / "ca.pem", ca.certificate_pem())
    write(folder / "broker.pem", broker.key_pem(), broker.certificate_pem())
    keys = folder / "jwks.json"
    keys.write_text(json.dumps({"keys": [_jwk(token_key)]}))
    sasl_ssl, ssl, sasl_plaintext = free_ports(3)
    with kafka(
        folder / "data",
        extra=_settings(folder, keys),
        more_listeners={"SASL_SSL": sasl_ssl, "SSL": ssl, "SASL_PLAINTEXT": sasl_plaintext},
        format_options=[
            option
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for option in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ],
        java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"],
    ) as plaintext:
        yield Secured(
            folder,
            plaintext,
            f"127.0.0.1:{sasl_ssl}",
            f"127.0.0.1:{ssl}",
            f"127.0.0.1:{sasl_plaintext}",
            ca,
            make_identity(ca, "client"),
            token_key,
        )


def _settings(folder: Path, keys: Path) -> dict[str, str]:
    sasl_ssl = "listener.name.sasl_ssl"
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        ),
        f"{sasl_ssl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl_ssl}.plain.connections.max.reauth.ms": str(SESSION_MS),
        f"{sasl_ssl}.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        f"{sasl_ssl}.scram-sha-256.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        ),
        f"{sasl_ssl}.scram-sha-512.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        ),
        f"{sasl_ssl}.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        f"{sasl_ssl}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": _ISSUER,
        "sasl.oauthbearer.expected.audience": _AUDIENCE,
    }


def _jwk(key: rsa.RSAPrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    return {
        "kty": "RSA",
        "kid": "one",
        "alg": "RS256",
        "use": "sig",
        "n": _base64(numbers.n.to_bytes(256, "big")),
        "e": _base64(numbers.e.to_bytes(3, "big")),
    }


def _json(value: dict[str, object]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
