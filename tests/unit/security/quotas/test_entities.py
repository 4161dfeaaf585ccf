"""What can be limited, and which values limits take."""

from math import inf, nan

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.security.quotas.entities import check_entity, check_limit, quota_entity

USER = quota_entity([("user", "ann")])
IP = quota_entity([("ip", "10.0.0.1")])


def refusal_of_entity(*parts: tuple[str, str | None]) -> str:
    with pytest.raises(KafkaError) as error:
        check_entity(quota_entity(parts))
    assert error.value.code == ErrorCode.INVALID_REQUEST
    return error.value.message


@pytest.mark.parametrize(
    "parts",
    [
        [("user", "ann")],
        [("user", None)],
        [("client-id", "app")],
        [("client-id", None), ("user", "ann")],
        [("ip", "10.0.0.1")],
        [("ip", "2001:db8::1")],
        [("ip", None)],
    ],
)
def test_users_client_ids_both_and_addresses_can_be_limited(
    parts: list[tuple[str, str | None]],
) -> None:
    check_entity(quota_entity(parts))


def test_other_entities_are_refused_with_what_is_wrong() -> None:
    assert "needs an entity" in refusal_of_entity()
    assert "no entity type group" in refusal_of_entity(("group", "g"))
    assert "must not be empty" in refusal_of_entity(("user", ""))
    assert "by itself" in refusal_of_entity(("ip", "10.0.0.1"), ("user", "ann"))
    assert "not an IP address" in refusal_of_entity(("ip", "db.example.com"))


def test_the_last_name_of_a_type_that_comes_twice_holds() -> None:
    assert quota_entity([("user", "ann"), ("user", "bob")]) == (("user", "bob"),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 1),
        ("consumer_byte_rate", 2.0**63),
        ("request_percentage", 0.1),
        ("controller_mutation_rate", 2.5),
    ],
)
def test_limits_of_users(key: str, value: float) -> None:
    check_limit(USER, key, value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("producer_byte_rate", 0, "greater than 0"),
        ("producer_byte_rate", -1, "greater than 0"),
        ("producer_byte_rate", 1.5, "whole number"),
        ("producer_byte_rate", 2.0**64, "at most"),
        ("request_percentage", nan, "not a number"),
        ("request_percentage", inf, "not a number"),
        ("connection_creation_rate", 1, "no quota"),
        ("x" * 10_000, 1, "no quota"),
    ],
)
def test_other_limits_of_users_are_refused(key: str, value: float, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as error:
        check_limit(USER, key, value)
    assert error.value.code == ErrorCode.INVALID_REQUEST
    assert len(error.value.message) < 1000


def test_addresses_have_one_limit_of_32_bits() -> None:
    check_limit(IP, "connection_creation_rate", 2**31 - 1)
    with pytest.raises(KafkaError, match="at most"):
        check_limit(IP, "connection_creation_rate", 2**31)
    with pytest.raises(KafkaError, match="no quota"):
        check_limit(IP, "producer_byte_rate", 1)
