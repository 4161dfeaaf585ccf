"""SASL of a server: what proves who a client is, and what does not."""

import base64

import pytest
from scramp import ScramClient

from headrace.errors import ErrorCode
from headrace.metadata.credential_shapes import Shape
from headrace.sasl import scram
from headrace.security.authentication import (
    Authentication,
    AuthenticationFailed,
    Exchange,
    Mechanism,
)
from headrace.security.plain import PlainExchange
from headrace.security.scram import ScramExchange

SHA_256, SHA_512 = scram.SCRAM_SHA_256, scram.SCRAM_SHA_512
USERS = {"alice": "alice-secret", "bob": "bob-secret"}
SALT_SECRET = b"s" * 32
_CREDENTIALS = {
    (name, mechanism): scram.make_credential(mechanism, password, b"salt" * 5, 4096)
    for name, password in USERS.items()
    for mechanism in (SHA_256, SHA_512)
}
_nonces = iter(range(10**6))


def scram_exchange(mechanism: scram.Mechanism = SHA_256) -> Exchange:
    return ScramExchange(
        mechanism,
        lambda name: _CREDENTIALS.get((name, mechanism)),
        f"server-nonce-{next(_nonces)}",
        SALT_SECRET,
        shapes=lambda number: Shape(4096, len(b"salt" * 5)),
    )


def made(lifetime_ms: int = 0) -> Authentication:
    return Authentication(
        {
            "PLAIN": Mechanism(lambda: PlainExchange(USERS), lifetime_ms),
            "SCRAM-SHA-256": Mechanism(scram_exchange, lifetime_ms),
            "SCRAM-SHA-512": Mechanism(lambda: scram_exchange(SHA_512), lifetime_ms),
        }
    )


def plain(name: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{name}\0{password}".encode()


def log_in(authentication: Authentication, name: str, password: str, now_ms: int = 0) -> int:
    assert authentication.handshake("PLAIN") == ErrorCode.NONE
    done = authentication.step(plain(name, password), now_ms)
    assert done.is_done
    return done.lifetime_ms


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_another_client_of_scram_gets_in_and_trusts_the_server(mechanism: str) -> None:
    authentication = made()
    client = ScramClient([mechanism], "alice", "alice-secret")
    assert authentication.handshake(mechanism) == ErrorCode.NONE
    challenge = authentication.step(client.get_client_first().encode(), 0)
    assert not challenge.is_done
    client.set_server_first(challenge.reply.decode())
    last = authentication.step(client.get_client_final().encode(), 0)
    client.set_server_final(last.reply.decode())
    assert last.is_done
    assert authentication.principal == "User:alice"


def try_scram(name: str, password: str) -> tuple[str, str]:
    """Return the server's challenge and how the exchange failed."""
    authentication = made()
    client = ScramClient(["SCRAM-SHA-256"], name, password)
    authentication.handshake("SCRAM-SHA-256")
    challenge = authentication.step(client.get_client_first().encode(), 0)
    client.set_server_first(challenge.reply.decode())
    with pytest.raises(AuthenticationFailed) as raised:
        authentication.step(client.get_client_final().encode(), 0)
    assert authentication.principal is None
    assert password not in str(raised.value)
    return challenge.reply.decode(), str(raised.value)


def test_an_unknown_user_hears_the_same_as_one_with_a_wrong_password() -> None:
    """CVE-2021-38153: names must not be found out by their salts, messages or time."""
    known, message = try_scram("alice", "wrong")
    unknown, same = try_scram("nobody", "wrong")
    assert message == same
    assert [part[:2] for part in known.split(",")] == [part[:2] for part in unknown.split(",")]
    again, _ = try_scram("nobody", "wrong")
    salts = {text.split(",")[1] for text in (unknown, again)}
    assert len(salts) == 1, "the salt of a name is always the same"
    assert [part for part in known.split(",") if part[0] == "i"] == ["i=4096"]
    assert len(known.split(",s=")[1]) == len(unknown.split(",s=")[1])


@pytest.mark.parametrize("change", ["nonce", "shorter nonce", "channel", "proof", "no proof"])
def test_a_final_message_that_does_not_fit_proves_nothing(change: str) -> None:
    """CVE-2024-56128: the nonce is compared."""
    authentication = made()
    client = ScramClient(["SCRAM-SHA-256"], "alice", "alice-secret")
    authentication.handshake("SCRAM-SHA-256")
    challenge = authentication.step(client.get_client_first().encode(), 0)
    client.set_server_first(challenge.reply.decode())
    parts = dict(part.split("=", 1) for part in client.get_client_final().split(","))
    if change == "nonce":
        parts["r"] = parts["r"] + "x"
    elif change == "shorter nonce":
        parts["r"] = parts["r"][:-1]
    elif change == "channel":
        parts["c"] = base64.b64encode(b"y,,").decode()
    elif change == "proof":
        parts["p"] = base64.b64encode(bytes(32)).decode()
    else:
        parts["p"] = ""
    message = ",".join(f"{name}={value}" for name, value in parts.items())
    with pytest.raises(AuthenticationFailed):
        authentication.step(message.encode(), 0)
    assert authentication.principal is None
    assert not authentication.is_exchanging


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=nonce",
        b"n,,m=ext,n=alice,r=nonce",
        b"n,,n=alice,r=nonce,tokenauth=true,tokenauth=true",
        bytes(range(256)),
        b"n,,n=" + b"a" * 20_000 + b",r=x",
    ],
)
def test_a_first_message_that_is_none_ends_the_exchange(first: bytes) -> None:
    authentication = made()
    authentication.handshake("SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed):
        authentication.step(first, 0)
    assert authentication.principal is None


def test_a_name_and_password_of_plain_are_compared() -> None:
    authentication = made()
    log_in(authentication, "alice", "alice-secret")
    assert authentication.principal == "User:alice"


@pytest.mark.parametrize(
    "token",
    [
        plain("alice", "wrong"),
        plain("alice", ""),
        plain("", "alice-secret"),
        plain("nobody", "alice-secret"),
        plain("alice", "alice-secret", "bob"),
        plain("alice", "alice-secret") + b"\0",
        b"alice",
        b"\xff\0\xfe\0\xfd",
        b"",
    ],
)
def test_what_does_not_fit_is_refused_without_being_repeated(token: bytes) -> None:
    authentication = made()
    authentication.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed) as raised:
        authentication.step(token, 0)
    assert "secret" not in str(raised.value)
    assert authentication.principal is None


def test_a_mechanism_is_chosen_once_and_before_any_token() -> None:
    authentication = made()
    with pytest.raises(AuthenticationFailed):
        authentication.step(plain("alice", "alice-secret"), 0)
    assert authentication.handshake("GSSAPI") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert authentication.handshake("PLAIN") == ErrorCode.NONE
    assert authentication.handshake("SCRAM-SHA-256") == ErrorCode.ILLEGAL_SASL_STATE


def test_a_client_authenticates_again_as_the_same_user_with_the_same_mechanism() -> None:
    authentication = made(lifetime_ms=1000)
    assert log_in(authentication, "alice", "alice-secret", now_ms=100) == 1000
    assert not authentication.is_expired(1099)
    assert authentication.is_expired(1100)
    log_in(authentication, "alice", "alice-secret", now_ms=900)
    assert authentication.expires_ms == 1900
    assert authentication.handshake("SCRAM-SHA-256") == ErrorCode.ILLEGAL_SASL_STATE
    authentication.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed, match="Cannot change principals"):
        authentication.step(plain("bob", "bob-secret"), 1000)
    assert authentication.principal == "User:alice"


def test_no_secret_is_in_what_is_printed() -> None:
    shown = repr([PlainExchange(USERS), scram_exchange(), made()])
    assert "secret" not in shown
