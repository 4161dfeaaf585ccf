"""What clients do with delegation tokens, and what they hear: for Headrace and for Apache Kafka."""

import base64
from collections.abc import Iterable
from typing import Any, Final

from headrace.config import STANDARD_AUTHORIZER
from headrace.errors import ErrorCode
from headrace.sasl import scram
from headrace.sasl.scram_client import ScramClient
from headrace.sasl.secret import Secret
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headrace.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from headrace.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.schema import Message
from tests.broker.peers import wait_until
from tests.broker.test_secured_listeners import Wire

USERS: Final = ("none", "ann", "bob", "maker", "viewer", "finder", "root")
SECRET: Final = "canary-of-tokens"
MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root;User:ANONYMOUS",
    "delegation.token.secret.key": SECRET,
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        _MODULE + " ".join(f'user_{name}="{name}-secret"' for name in USERS) + ";"
    ),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "connection.failed.authentication.delay.ms": "1",
}
_USER, _TOKEN = 7, 6
_DESCRIBE, _CREATE_TOKENS, _DESCRIBE_TOKENS = 8, 13, 14


class Play:
    """One broker with both listeners."""

    def __init__(self, unsecured: str, secured: str) -> None:
        self.unsecured = unsecured
        self.secured = secured
        self.heard: dict[str, Any] = {}

    def ask(self, user: str, body: Message, version: int | None = None) -> Any:
        with Wire(self.secured) as client:
            assert client.log_in(f"\0{user}\0{user}-secret".encode()).error_code == 0
            return client.ask(body, _newest(body) if version is None else version)

    def log_in(self, token_id: str, made: bytes) -> tuple[Wire, Any]:
        """Return a connection with its last response, the first refusal or the end."""
        password = Secret(base64.b64encode(made).decode())
        machine = ScramClient(
            scram.SCRAM_SHA_256, token_id, password, "nonce-of-a-client", {"tokenauth": "true"}
        )
        client = Wire(self.secured)
        answer = client.log_in(machine.step(b"") or b"", "SCRAM-SHA-256")
        if answer.error_code == ErrorCode.NONE:
            proof = machine.step(bytes(answer.auth_bytes)) or b""
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)
        return client, answer

    def allow(self, user: str, operation: int, resource: int, name: str) -> None:
        acl = AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=3,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        with Wire(self.unsecured) as client:
            assert client.ask(CreateAclsRequest(creations=[acl]), 3).results[0].error_code == 0

    def note(self, what: str, heard: Any) -> None:
        assert what not in self.heard
        self.heard[what] = heard


def create(
    owner: str | None = None, renewers: Iterable[str] = (), lifetime_ms: int = -1
) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers("User", name) for name in renewers],
        max_lifetime_ms=lifetime_ms,
    )


def describe(owners: Iterable[str] | None = None) -> DescribeDelegationTokenRequest:
    rows = None
    if owners is not None:
        rows = [DescribeDelegationTokenOwner("User", name) for name in owners]
    return DescribeDelegationTokenRequest(owners=rows)


def renew(made: bytes, period_ms: int = -1) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=made, renew_period_ms=period_ms)


def expire(made: bytes, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=made, expiry_time_period_ms=period_ms)


def play(play: Play) -> dict[str, Any]:
    """Do everything once; return what was heard, without what differs from run to run."""
    play.allow("maker", _CREATE_TOKENS, _USER, "User:ann")
    play.allow("viewer", _DESCRIBE_TOKENS, _USER, "User:ann")
    _without_authentication(play)
    own, made = _creations(play)
    play.allow("finder", _DESCRIBE, _TOKEN, own.token_id)
    _descriptions(play, own)
    _renewals(play, own, made)
    _with_a_token(play, own)
    _ends(play, own, made)
    return play.heard


def _newest(body: Message) -> int:
    return int(body.VERSIONS.rpartition("-")[2])


def _shown(answer: Any) -> Any:
    """Return what of a creation is always the same."""
    return (
        ErrorCode(answer.error_code).name,
        f"{answer.principal_type}:{answer.principal_name}",
        f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        answer.max_timestamp_ms - answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms - answer.issue_timestamp_ms,
        min(answer.issue_timestamp_ms, 0),
        len(bytes(answer.hmac)),
        bool(answer.token_id),
    )


def _code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def _without_authentication(play: Play) -> None:
    with Wire(play.unsecured) as client:
        play.note("PLAINTEXT create", _shown(client.ask(create(), 3)))
        for body in (renew(b"x"), expire(b"x"), describe()):
            answer = client.ask(body, _newest(body))
            expiry = getattr(answer, "expiry_timestamp_ms", None)
            play.note(f"PLAINTEXT {type(body).__name__}", (_code(answer), expiry))


def _creations(play: Play) -> tuple[Any, Any]:
    own = play.ask("ann", create(renewers=["bob"], lifetime_ms=10 * MINUTE_MS))
    made = play.ask("maker", create("ann"))
    play.note("own", _shown(own))
    play.note("for another", _shown(made))
    play.note("without rights", _shown(play.ask("none", create("ann"))))
    play.note("for oneself by name", _shown(play.ask("root", create("root"))))
    play.note("lifetime beyond the limit", _shown(play.ask("root", create("root", (), 2**62))))
    for version in (1, 2):
        body = CreateDelegationTokenRequest()
        play.note(f"version {version}", _shown(play.ask("root", body, version)))
    wrong = create()
    wrong.renewers = [CreatableRenewers("Group", "bob")]
    play.note("renewer of another type", _shown(play.ask("none", wrong)))
    return own, made


def _descriptions(play: Play, own: Any) -> None:
    # The broker that is asked learns of tokens and rights a little later.
    wait_until(lambda: len(play.ask("root", describe()).tokens) == 6, "all tokens are known")
    for user in ("finder", "viewer"):
        wait_until(lambda user=user: play.ask(user, describe()).tokens != [], "its ACL is known")  # type: ignore[misc]
    for user in ("ann", "bob", "maker", "viewer", "finder", "none", "root"):
        for owners in (None, [], ["ann"], ["bob"], ["none"]):
            answer = play.ask(user, describe(owners))
            rows = sorted(
                (
                    f"{row.principal_type}:{row.principal_name}",
                    f"{row.token_requester_principal_type}:{row.token_requester_principal_name}",
                    [f"{each.principal_type}:{each.principal_name}" for each in row.renewers],
                    row.max_timestamp - row.issue_timestamp,
                    row.expiry_timestamp - row.issue_timestamp,
                )
                for row in answer.tokens
            )
            play.note(f"{user} describes {owners}", (_code(answer), rows))
    found = play.ask("bob", describe()).tokens[0]
    play.note("a renewer sees the HMAC", bytes(found.hmac) == bytes(own.hmac))


def _renewals(play: Play, own: Any, made: Any) -> None:
    play.note("unknown renewed", _code(play.ask("ann", renew(b"unknown"))))
    play.note("unknown ended", _code(play.ask("ann", expire(b"unknown"))))
    for user in ("none", "maker", "root", "viewer"):
        for body in (renew(made.hmac), expire(made.hmac)):
            answer = play.ask(user, body)
            expiry = answer.expiry_timestamp_ms
            play.note(f"{user} {type(body).__name__}", (_code(answer), expiry))
    shorter = play.ask("bob", renew(own.hmac, MINUTE_MS))
    play.note("a renewer renews", _code(shorter))
    play.note("for as long as asked", shorter.expiry_timestamp_ms < own.max_timestamp_ms)
    longest = play.ask("ann", renew(own.hmac, 2**62))
    play.note(
        "not beyond its end",
        (_code(longest), longest.expiry_timestamp_ms - own.max_timestamp_ms),
    )


def _with_a_token(play: Play, own: Any) -> None:
    def is_known() -> bool:
        client, answer = play.log_in(own.token_id, bytes(own.hmac))
        client.socket.close()
        return bool(answer.error_code == 0)

    wait_until(is_known, "the broker knows the token")
    client, answer = play.log_in(own.token_id, bytes(own.hmac))
    play.note("a session ends with its token", 0 < answer.session_lifetime_ms <= 10 * MINUTE_MS)
    play.note("with a token: create", _shown(client.ask(create(), 3)))
    for body in (renew(own.hmac), expire(own.hmac), describe()):
        heard = client.ask(body, _newest(body))
        play.note(f"with a token: {type(body).__name__}", _code(heard))
    client.socket.close()
    for what, token_id, made in (
        ("the HMAC of nothing", own.token_id, b"x" * 64),
        ("an unknown token", "absent", bytes(own.hmac)),
        ("a user as a token", "ann", b"ann-secret"),
    ):
        client, answer = play.log_in(token_id, made)
        play.note(what, _code(answer))
        client.socket.close()


def _ends(play: Play, own: Any, made: Any) -> None:
    sooner = play.ask("ann", expire(made.hmac, MINUTE_MS))
    play.note("ended later", (_code(sooner), sooner.expiry_timestamp_ms < made.expiry_timestamp_ms))

    def has_expired() -> bool:
        return bool(
            play.ask("ann", expire(made.hmac, 0)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        )

    wait_until(has_expired, "a millisecond has passed")
    play.note("expired, renewed", _code(play.ask("ann", renew(made.hmac))))
    play.note("expired, renewed by another", _code(play.ask("none", renew(made.hmac))))
    play.note("expired, ended by another", _code(play.ask("none", expire(made.hmac))))
    play.note("expired, removed", _code(play.ask("ann", expire(made.hmac))))
    play.note("ended", _code(play.ask("bob", expire(own.hmac))))
    # Ended once more: Kafka looks in a cache, and to renew what has just ended brings it back.
    wait_until(lambda: _code(play.ask("bob", expire(own.hmac))) != "NONE", "the token is gone")
    play.note("ended twice", _code(play.ask("bob", expire(own.hmac))))
    play.note("ended, renewed", _code(play.ask("ann", renew(own.hmac))))

    def is_refused() -> bool:
        client, answer = play.log_in(own.token_id, bytes(own.hmac))
        client.socket.close()
        return bool(answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED)

    wait_until(is_refused, "the token is of no use any more")
