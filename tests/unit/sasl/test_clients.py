"""The client's machines of the SASL mechanisms."""

import pickle
from collections.abc import Callable

import pytest

from headrace.sasl import scram
from headrace.sasl.client import SaslClient
from headrace.sasl.errors import (
    CredentialsRefused,
    InvalidSaslMessage,
    PeerNotAuthentic,
    SaslError,
)
from headrace.sasl.oauthbearer import OAuthBearerClient
from headrace.sasl.plain import PlainClient
from headrace.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, Mechanism
from headrace.sasl.scram_client import ScramClient
from headrace.sasl.secret import Secret

scramp = pytest.importorskip("scramp")

PASSWORD = Secret("pencil-7f2a")
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda it: it.name)
def test_scram_convinces_another_implementation_and_is_convinced(mechanism: Mechanism) -> None:
    client = ScramClient(mechanism, "us,er=", PASSWORD, NONCE)
    theirs = scramp.ScramMechanism(mechanism.name)
    auth = theirs.make_auth_info(PASSWORD.reveal(), iteration_count=4096)
    server = theirs.make_server(lambda _: auth)
    server.set_client_first((client.step(b"") or b"").decode())
    server.set_client_final((client.step(server.get_server_first().encode()) or b"").decode())
    assert client.step(server.get_server_final().encode()) is None


def test_scram_refuses_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", PASSWORD, NONCE)
    client.step(b"")
    client.step(f"r={NONCE}xyz,s=c2FsdA==,i=4096".encode())
    with pytest.raises(PeerNotAuthentic, match="did not prove"):
        client.step(scram.ServerFinal(bytes(32)).encode())
    with pytest.raises(InvalidSaslMessage):
        client.step(b"")


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "replay"),
        (f"r={NONCE},s=c2FsdA==,i=4096".encode(), "replay"),
        (f"r={NONCE}x,s=c2FsdA==,i=4095".encode(), "easy to guess"),
    ],
)
def test_scram_refuses_a_foreign_nonce_and_few_iterations(challenge: bytes, words: str) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", PASSWORD, NONCE)
    client.step(b"")
    with pytest.raises(PeerNotAuthentic, match=words):
        client.step(challenge)


def test_scram_reports_the_error_of_the_server() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", PASSWORD, NONCE, {scram.TOKEN_AUTH: "true"})
    assert (client.step(b"") or b"").endswith(b",tokenauth=true")
    client.step(f"r={NONCE}xyz,s=c2FsdA==,i=4096".encode())
    with pytest.raises(CredentialsRefused, match="invalid-proof"):
        client.step(b"e=invalid-proof")


def test_plain_sends_name_and_password_once() -> None:
    client = PlainClient("user", PASSWORD)
    assert client.step(b"") == b"\0user\0pencil-7f2a"
    assert client.step(b"") is None
    with pytest.raises(SaslError, match="NUL"):
        PlainClient("us\0er", PASSWORD)


def test_oauthbearer_sends_the_token_and_its_extensions() -> None:
    client = OAuthBearerClient(Secret("abc.def="), {"logicalCluster": "lkc-1"})
    assert client.step(b"") == b"n,,\x01auth=Bearer abc.def=\x01logicalCluster=lkc-1\x01\x01"
    assert client.step(b"") is None


def test_oauthbearer_keeps_the_reason_of_a_refusal() -> None:
    client = OAuthBearerClient(Secret("abc"))
    client.step(b"")
    assert client.step(b'{"status":"invalid_token"}') == b"\x01"
    assert client.refusal == "status: invalid_token"
    with pytest.raises(CredentialsRefused, match="invalid_token"):
        client.step(b"")


@pytest.mark.parametrize(
    "make",
    [
        lambda: OAuthBearerClient(Secret("")),
        lambda: OAuthBearerClient(Secret("two words")),
        lambda: OAuthBearerClient(Secret("abc"), {"auth": "other"}),
        lambda: OAuthBearerClient(Secret("abc"), {"name": "a\x01b"}),
        lambda: ScramClient(SCRAM_SHA_256, "", PASSWORD, NONCE),
    ],
)
def test_credentials_that_cannot_be_sent_are_refused(make: Callable[[], SaslClient]) -> None:
    with pytest.raises(SaslError):
        make()


def test_a_secret_is_hidden_and_survives_pickling() -> None:
    assert f"{PASSWORD} {PASSWORD!r} {[PASSWORD]}" == "[hidden] [hidden] [[hidden]]"
    assert pickle.loads(pickle.dumps(PASSWORD)) == PASSWORD
