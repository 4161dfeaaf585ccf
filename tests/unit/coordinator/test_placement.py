"""Where keys belong: Java's hash, Kafka's modulo."""

import pytest

from headrace.coordinator.placement import java_hash, partition_for


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
