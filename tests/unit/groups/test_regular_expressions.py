"""Patterns: RE2's, for the whole name, and never more work than the names are long."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.regular_expressions import PATTERN_CHARS_MAX, check_pattern, matching_topics


def test_a_pattern_matches_whole_names() -> None:
    names = ["orders", "orders-eu", "old-orders"]
    assert matching_topics("orders", names) == {"orders"}
    assert matching_topics("orders.*", names) == {"orders", "orders-eu"}
    assert matching_topics("orders|old-orders", names) == {"orders", "old-orders"}


def test_a_pattern_that_makes_others_hang_is_matched_at_once() -> None:
    assert matching_topics("(a+)+b", ["a" * 249]) == set()


def test_a_pattern_that_is_none_matches_nothing() -> None:
    assert matching_topics("(", ["("]) == set()


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)b", "((a{100}){100}){100}"])
def test_what_re2_has_not_is_refused_with_the_pattern_and_a_reason(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"`{pattern}`" in refused.value.message


def test_the_length_of_a_pattern_is_bounded() -> None:
    check_pattern("x" * 1000)
    with pytest.raises(KafkaError):
        check_pattern("x" * (PATTERN_CHARS_MAX + 1))
