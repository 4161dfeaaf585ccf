"""What dead letters say of their records."""

import pytest

from headrace.client.fetched import ConsumedRecord
from headrace.client.share.dead_letters import DeadLetter
from headrace.records.record import Headers, Record
from headrace.share.dead_letter_records import Origin, write_letter
from headrace.share.partition.types import Cause
from headrace.share.partition.types import DeadLetter as GivenUpOffsets

ORIGIN = Origin("orders", 3, "billing")
GIVEN_UP = GivenUpOffsets(7, 9, 5, Cause.REJECTED)


def consumed(headers: Headers) -> ConsumedRecord:
    return ConsumedRecord("dlq.orders", 0, 0, 0, b"k", b"v", headers)


def written(headers: Headers, origin: Origin = ORIGIN) -> ConsumedRecord:
    """A letter as brokers write it, of a record with these headers."""
    record = Record(8, 0, b"k", b"v", headers)
    return consumed(write_letter(origin, record, GIVEN_UP, has_copy=True).headers)


def test_a_letter_says_where_its_record_was_and_gives_its_headers_back() -> None:
    own: Headers = (("trace", b"\xff"), ("trace", None), ("dlq", b"1"))
    letter = DeadLetter.of(written(own))
    assert letter == DeadLetter("orders", 3, 8, "billing", 5, "rejected", own)


def test_of_a_letter_that_died_again_the_last_headers_count_and_the_first_are_its_own() -> None:
    first = written((("trace", b"1"),))
    letter = DeadLetter.of(written(first.headers, Origin("dlq.orders", 0, "clearing")))
    assert letter is not None
    assert (letter.topic, letter.group) == ("dlq.orders", "clearing")
    assert letter.headers == first.headers


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("trace", b"1"),),
        (("__dlq.errors.topic", b"orders"),),
        (("__dlq.errors.topic", b"\xff"), ("__dlq.errors.partition", b"0")),
        tuple((f"__dlq.errors.{name}", b"x") for name in ("topic", "partition", "offset")),
        tuple((f"__dlq.errors.{name}", None) for name in ("topic", "partition", "offset")),
    ],
)
def test_a_record_without_readable_headers_is_no_letter(headers: Headers) -> None:
    assert DeadLetter.of(consumed(headers)) is None
