"""Which entities of quotas a client asks for."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.security.quotas.entities import quota_entity
from headrace.security.quotas.filters import ANY, DEFAULT, EXACT, Component, QuotaFilter

ANN = quota_entity([("user", "ann")])
ANN_APP = quota_entity([("user", "ann"), ("client-id", "app")])
ANN_ANY = quota_entity([("user", "ann"), ("client-id", None)])
EVERYBODY = quota_entity([("user", None)])
APP = quota_entity([("client-id", "app")])
HOST = quota_entity([("ip", "10.0.0.1")])
ALL = (ANN, ANN_APP, ANN_ANY, EVERYBODY, APP, HOST)


def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[object]:
    wanted = QuotaFilter.of((Component(*each) for each in components), is_strict=strict)
    return [each for each in ALL if wanted.matches(each)]


def test_a_filter_without_components_finds_all_unless_it_is_strict() -> None:
    assert found() == [*ALL]
    assert found(strict=True) == []


def test_a_name_finds_what_has_it_and_strictly_what_has_nothing_else() -> None:
    ann = ("user", EXACT, "ann")
    assert found(ann) == [ANN, ANN_APP, ANN_ANY]
    assert found(ann, strict=True) == [ANN]


def test_a_filter_that_only_one_entity_matches_says_which() -> None:
    def only(*components: tuple[str, int, str | None], strict: bool = False) -> object:
        wanted = QuotaFilter.of((Component(*each) for each in components), is_strict=strict)
        return wanted.only

    ann, app = ("user", EXACT, "ann"), ("client-id", EXACT, "app")
    assert only(ann, strict=True) == ANN
    assert only(app, ann) == ANN_APP
    assert only(("ip", EXACT, "10.0.0.1")) == HOST
    assert only(("client-id", DEFAULT, None), ann) == ANN_ANY
    assert only(ann) is None
    assert only() is None
    assert only(strict=True) is None
    assert only(ann, ("client-id", ANY, None), strict=True) is None


def test_the_default_is_a_name_like_any_other() -> None:
    assert found(("user", DEFAULT, None)) == [EVERYBODY]
    assert found(("user", EXACT, "ann"), ("client-id", DEFAULT, None)) == [ANN_ANY]


def test_any_finds_what_is_about_that_type() -> None:
    assert found(("client-id", ANY, None)) == [ANN_APP, ANN_ANY, APP]
    assert found(("client-id", ANY, None), strict=True) == [APP]
    assert found(("client-id", ANY, None), ("user", ANY, None)) == [ANN_APP, ANN_ANY]
    assert found(("ip", ANY, None)) == [HOST]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_filters(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        found(*components)
    assert error.value.code == code
