"""Delegation tokens of a node, from outside: their lives, restarts, and what is refused by name.

tests/jvm/test_tokens_beside_kafka.py compares every error with Apache Kafka's.
"""

import base64
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.config import InvalidSetting, load_settings
from headrace.errors import ErrorCode
from headrace.metadata import rights
from headrace.testing.broker import TestBroker
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.broker.delegation_token_play import (
    MINUTE_MS,
    SECRET,
    SETTINGS,
    Play,
    create,
    describe,
    expire,
    play,
    renew,
)
from tests.broker.peers import wait_until

LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
BROKER = 4


@contextmanager
def running(folder: Path, **more: str) -> Iterator[tuple[TestBroker, Play]]:
    given = {**SETTINGS, "listeners": LISTENERS}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    with TestBroker(folder / "data", given) as broker:
        yield broker, Play(*(f"127.0.0.1:{each.port}" for each in broker.node.listeners))


def test_everything_about_tokens_is_answered_as_in_kafka(tmp_path: Path) -> None:
    with running(tmp_path) as (_, client):
        heard = play(client)
    assert heard["own"][:5] == ("NONE", "User:ann", "User:ann", 10 * MINUTE_MS, 10 * MINUTE_MS)
    assert heard["for another"][:3] == ("NONE", "User:ann", "User:maker")
    codes = {
        "PLAINTEXT create": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "without rights": "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        "renewer of another type": "INVALID_PRINCIPAL_TYPE",
        "unknown renewed": "DELEGATION_TOKEN_NOT_FOUND",
        "maker RenewDelegationTokenRequest": "DELEGATION_TOKEN_OWNER_MISMATCH",
        "root ExpireDelegationTokenRequest": "DELEGATION_TOKEN_OWNER_MISMATCH",
        "a renewer renews": "NONE",
        "with a token: create": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "with a token: DescribeDelegationTokenRequest": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "the HMAC of nothing": "SASL_AUTHENTICATION_FAILED",
        "an unknown token": "SASL_AUTHENTICATION_FAILED",
        "expired, renewed": "DELEGATION_TOKEN_EXPIRED",
        "ended, renewed": "DELEGATION_TOKEN_NOT_FOUND",
    }
    found = {
        what: heard[what] if isinstance(heard[what], str) else heard[what][0] for what in codes
    }
    assert found == codes
    shown = {
        user: len(heard[f"{user} describes None"][1])
        for user in ("ann", "bob", "maker", "viewer", "finder", "none")
    }
    assert shown == {"ann": 2, "bob": 1, "maker": 1, "viewer": 2, "finder": 1, "none": 0}


def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    given = {name: value for name, value in SETTINGS.items() if not name.startswith("delegation")}
    with TestBroker(tmp_path / "data", {**given, "listeners": LISTENERS}) as broker:
        client = Play(*(f"127.0.0.1:{each.port}" for each in broker.node.listeners))
        for body in (create(), renew(b"x"), expire(b"x"), describe()):
            code = client.ask("ann", body).error_code
            assert code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_an_owner_that_is_no_user_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as (_, client):
        body = create("headrace-node")
        body.owner_principal_type = "Node"
        assert client.ask("root", body).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        many = create(renewers=[f"u{number}" for number in range(1001)])
        assert client.ask("ann", many).error_code == ErrorCode.INVALID_REQUEST
        long = create(renewers=["u" * 2000])
        assert client.ask("ann", long).error_code == ErrorCode.INVALID_REQUEST
        much = create(renewers=[f"{number:0100}" for number in range(700)])
        assert client.ask("ann", much).error_code == ErrorCode.INVALID_REQUEST


def test_a_token_outlives_a_restart_and_its_hmac_is_nowhere_on_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with running(tmp_path) as (_, client):
        made = client.ask("ann", create())
        secret = bytes(made.hmac)
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1")
        shown: Any = client.ask("root", DescribeConfigsRequest(resources=[resource]))
        assert SECRET not in repr(shown)
    with running(tmp_path) as (_, client):
        connection, answer = client.log_in(made.token_id, secret)
        assert answer.error_code == ErrorCode.NONE
        assert connection.is_served
        connection.socket.close()
        with caplog.at_level(logging.DEBUG):
            client.log_in(made.token_id, secret[:-1])[0].socket.close()
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for text in (secret, base64.b64encode(secret), secret.hex().encode(), SECRET.encode()):
        assert text not in files
    assert SECRET not in caplog.text
    assert base64.b64encode(secret).decode() not in caplog.text


def test_a_session_ends_with_its_token_and_the_controller_removes_it(tmp_path: Path) -> None:
    more = {
        "delegation.token.expiry.time.ms": "1000",
        "delegation.token.expiry.check.interval.ms": "100",
    }
    with running(tmp_path, **more) as (broker, client):
        made = client.ask("ann", create())
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 1000
        connection, answer = client.log_in(made.token_id, bytes(made.hmac))
        assert 0 < answer.session_lifetime_ms <= 1000
        assert connection.read() is None, "the broker closes a session that was not renewed"
        connection.socket.close()
        state = broker.node.broker.image.state
        wait_until(lambda: not state.delegation_tokens, "the token is removed")


def test_tokens_that_expired_together_are_all_removed_in_a_few_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rights, "EXPIRED_AT_ONCE", 2)
    with running(tmp_path) as (_, client):
        for _ in range(5):
            client.ask("ann", create(lifetime_ms=1))
        kept = client.ask("ann", create())
    with running(tmp_path) as (broker, _):  # the controller looks once now, and again in an hour
        left = broker.node.broker.image.state.delegation_tokens
        wait_until(lambda: list(left) == [kept.token_id], "all that expired are removed")


def test_an_owner_has_a_bounded_number_of_tokens(tmp_path: Path) -> None:
    with running(tmp_path, **{"headrace.delegation.tokens.max": "2"}) as (_, client):
        made = [client.ask("ann", create(lifetime_ms=MINUTE_MS)) for _ in range(3)]
        codes = [answer.error_code for answer in made]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
        assert client.ask("bob", create()).error_code == ErrorCode.NONE
        assert client.ask("ann", expire(made[0].hmac)).error_code == ErrorCode.NONE
        assert client.ask("ann", create()).error_code == ErrorCode.NONE
        assert client.ask("root", create("ann")).error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"delegation.token.secret.key": "canary", "listeners": "PLAINTEXT://127.0.0.1:0"},
            "which no listener has",
        ),
        (
            {
                "delegation.token.secret.key": "canary",
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN",
            },
            "which no listener has",
        ),
        ({"headrace.delegation.tokens.max": "5"}, "no effect without delegation.token.secret"),
        ({"delegation.token.max.lifetime.ms": "5"}, "no effect without delegation.token.secret"),
    ],
)
def test_settings_of_tokens_that_nobody_could_use_are_refused(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said) as refused:
        load_settings(None, {}, given)
    assert "canary" not in str(refused.value)
