"""Delegation tokens: what follows from the secret, who gets in with one, and for how long."""

import base64
import hmac

import pytest

from headrace.metadata.image import Image
from headrace.metadata.state import DelegationToken
from headrace.sasl import scram
from headrace.sasl.scram_client import ScramClient
from headrace.sasl.secret import Secret
from headrace.security import delegation_tokens
from headrace.security.authentication import Authentication, AuthenticationFailed, Mechanism
from headrace.security.delegation_tokens import DelegationTokens
from headrace.security.scram import ScramExchange

SHA = scram.SCRAM_SHA_512
ANN = "User:ann"


class Cluster:
    """Tokens at a time that a test chooses."""

    def __init__(self) -> None:
        self.image = Image()
        self.now_ms = 1000
        self.tokens = DelegationTokens("canary", lambda: self.image, lambda: self.now_ms)

    def add(self, token_id: str, expiry_ms: int = 5000) -> bytes:
        self.image.state.delegation_tokens[token_id] = DelegationToken(
            token_id, ANN, ANN, ("User:bob",), 0, 9000, expiry_ms, b""
        )
        self.tokens.on_changed(token_id)
        return self.tokens.hmac_of(token_id)

    def remove(self, token_id: str) -> None:
        del self.image.state.delegation_tokens[token_id]
        self.tokens.on_changed(token_id)

    def authentication(self, reauthenticate_ms: int = 0) -> Authentication:
        def begin() -> ScramExchange:
            return ScramExchange(
                SHA,
                lambda name: None,
                "nonce-of-the-server",
                b"s" * 32,
                find_token=lambda token_id: self.tokens.login(SHA, token_id),
            )

        return Authentication({SHA.name: Mechanism(begin, reauthenticate_ms)})


def log_in(cluster: Cluster, authentication: Authentication, token_id: str, made: bytes) -> int:
    """Log in; return how long the session lasts."""
    password = Secret(base64.b64encode(made).decode())
    client = ScramClient(SHA, token_id, password, "nonce", {"tokenauth": "true"})
    authentication.handshake(SHA.name)
    challenge = authentication.step(client.step(b"") or b"", cluster.now_ms)
    last = authentication.step(client.step(challenge.reply) or b"", cluster.now_ms)
    assert client.step(last.reply) is None, "the client trusts the server"
    return last.lifetime_ms


def test_the_hmac_is_the_one_of_kafka() -> None:
    cluster = Cluster()
    expected = hmac.new(b"canary", b"an-id", "sha512").digest()
    assert cluster.tokens.hmac_of("an-id") == expected


def test_a_client_with_a_token_is_its_owner_until_the_token_ends() -> None:
    cluster = Cluster()
    made = cluster.add("t1")
    authentication = cluster.authentication()
    assert log_in(cluster, authentication, "t1", made) == 4000
    assert (authentication.principal, authentication.is_token) == (ANN, True)
    assert not authentication.is_expired(4999)
    assert authentication.is_expired(5000)


def test_the_sooner_of_two_ends_counts() -> None:
    cluster = Cluster()
    made = cluster.add("t1")
    assert log_in(cluster, cluster.authentication(100), "t1", made) == 100
    assert log_in(cluster, cluster.authentication(100_000), "t1", made) == 4000


def test_a_renewed_token_renews_a_session() -> None:
    cluster = Cluster()
    made = cluster.add("t1")
    authentication = cluster.authentication()
    log_in(cluster, authentication, "t1", made)
    cluster.add("t1", 8000)
    cluster.now_ms = 4500
    assert log_in(cluster, authentication, "t1", made) == 3500


def test_a_token_that_is_wrong_or_over_or_gone_lets_nobody_in() -> None:
    cluster = Cluster()
    made = cluster.add("t1")
    other = cluster.add("t2")
    for token_id, password in (("t1", other), ("t3", made), ("t1", b"")):
        with pytest.raises(AuthenticationFailed):
            log_in(cluster, cluster.authentication(), token_id, password)
    cluster.now_ms = 5000
    with pytest.raises(AuthenticationFailed):
        log_in(cluster, cluster.authentication(), "t1", made)
    cluster.now_ms = 1000
    cluster.remove("t1")
    with pytest.raises(AuthenticationFailed):
        log_in(cluster, cluster.authentication(), "t1", made)


def test_a_token_that_ends_in_the_middle_of_a_login_lets_nobody_in() -> None:
    cluster = Cluster()
    password = Secret(base64.b64encode(cluster.add("t1")).decode())
    client = ScramClient(SHA, "t1", password, "nonce", {"tokenauth": "true"})
    authentication = cluster.authentication()
    authentication.handshake(SHA.name)
    challenge = authentication.step(client.step(b"") or b"", 1000)
    with pytest.raises(AuthenticationFailed):
        authentication.step(client.step(challenge.reply) or b"", 5000)
    assert authentication.principal is None


def test_a_challenge_does_not_tell_whether_there_is_such_a_token() -> None:
    cluster = Cluster()
    cluster.add("t1")

    def challenge(name: str) -> list[str]:
        authentication = cluster.authentication()
        authentication.handshake(SHA.name)
        first = scram.ClientFirst(name, "nonce", {"tokenauth": "true"}).encode()
        return authentication.step(first, 1000).reply.decode().split(",")

    known, unknown = challenge("t1"), challenge("absent")
    assert [len(part) for part in known] == [len(part) for part in unknown]
    assert known[2] == unknown[2] == "i=4096"
    assert challenge("t1")[1] == known[1]
    assert challenge("absent")[1] == unknown[1]


def test_a_challenge_for_a_token_does_not_tell_which_users_there_are() -> None:
    def salt(extensions: dict[str, str]) -> str:
        authentication = Cluster().authentication()
        authentication.handshake(SHA.name)
        first = scram.ClientFirst("nobody", "nonce", extensions).encode()
        return authentication.step(first, 1000).reply.decode().split(",")[1]

    assert salt({"tokenauth": "true"}) != salt({})


def test_tokens_are_found_by_their_hmacs_a_bounded_number_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delegation_tokens, "INDEXED_AT_ONCE", 2)
    cluster = Cluster()
    made = {name: cluster.add(name) for name in ("a", "b", "c")}
    tokens = cluster.tokens
    assert [tokens.index(), tokens.index()] == [False, True]
    found = [tokens.find(each) for each in made.values()]
    assert [token and token.token_id for token in found] == list(made)
    cluster.remove("b")
    cluster.add("d")
    assert tokens.index()
    assert tokens.find(made["b"]) is None
    cluster.image = Image()  # from a snapshot
    assert tokens.index()
    assert tokens.find(made["a"]) is None
    cluster.add("d")
    assert tokens.index()
    assert tokens.find(tokens.hmac_of("d")) is not None
    assert tokens.find(b"") is None


def test_tokens_of_an_owner_are_counted_with_those_that_are_being_made() -> None:
    cluster = Cluster()
    tokens = cluster.tokens
    for name in ("a", "b"):
        cluster.add(name)
    assert tokens.index()
    assert (tokens.is_allowed_another(ANN, 3), tokens.is_allowed_another(ANN, 2)) == (True, False)
    assert tokens.is_allowed_another("User:bob", 1)
    with tokens.making(ANN):
        assert not tokens.is_allowed_another(ANN, 3)
        cluster.add("c")
    cluster.add("c", 6000)  # a renewal
    assert tokens.index()
    assert not tokens.is_allowed_another(ANN, 3)
    for name in ("a", "b", "c"):
        cluster.remove(name)
    assert tokens.is_allowed_another(ANN, 1)


def test_credentials_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "LOGINS_MAX", 2)
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.add(name)
        assert cluster.tokens.login(SHA, name) == cluster.tokens.login(SHA, name)


def test_the_requester_of_a_token_as_such_does_not_renew_it() -> None:
    token = DelegationToken("t", ANN, "User:maker", ("User:bob",), 0, 9, 9, b"")
    may = {name for name in (ANN, "User:maker", "User:bob", "User:eve")
           if delegation_tokens.may_renew(token, name)}  # fmt: skip
    assert may == {ANN, "User:bob"}
    assert delegation_tokens.is_about(token, "User:maker")
    assert not delegation_tokens.is_about(token, "User:eve")


def test_no_secret_is_in_a_repr() -> None:
    assert "canary" not in repr(Cluster().tokens)
