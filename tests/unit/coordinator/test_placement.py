"""Where keys belong: Java's hash, Kafka's modulo."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.placement import KEY_UNITS_MAX, java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),  # well known for exactly that
        ("é", 233),
        ("😀", 0xD83D * 31 + 0xDE00),
    ],
)
def test_strings_hash_as_in_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_hash_goes_to_the_first_partition() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("key", "expected"), [("my-group", 12), ("payments", 13), ("analytics", 10)]
)
def test_keys_are_where_kafka_has_them(key: str, expected: int) -> None:
    assert partition_for(key, 50) == expected


def test_a_key_longer_than_any_record_holds_costs_no_more_than_the_longest() -> None:
    longest = "x" * KEY_UNITS_MAX
    assert partition_for(longest + "and so on" * 1000, 50) == partition_for(longest, 50)


@given(st.text(max_size=300))
def test_blocks_make_no_difference(text: str) -> None:
    expected = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        expected = (31 * expected + int.from_bytes(units[position : position + 2])) % 2**32
    assert java_hash(text) % 2**32 == expected
