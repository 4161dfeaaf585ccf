"""The form of a dead letter (KIP-1191): a record, with its origin in the headers.

Pure. The record's own headers come first and ours last, so that the last ones of a letter that was
given up twice describe the last time.
"""

from typing import Final, NamedTuple

from headrace.client.partitioner import partition_for_key
from headrace.records.record import Headers, Record
from headrace.share.partition.types import DeadLetter

HEADER_PREFIX: Final = "__dlq.errors."
TOPIC_HEADER: Final = HEADER_PREFIX + "topic"
PARTITION_HEADER: Final = HEADER_PREFIX + "partition"
OFFSET_HEADER: Final = HEADER_PREFIX + "offset"
GROUP_HEADER: Final = HEADER_PREFIX + "group"
DELIVERY_COUNT_HEADER: Final = HEADER_PREFIX + "delivery.count"
REASON_HEADER: Final = HEADER_PREFIX + "reason"


class Origin(NamedTuple):
    """The share partition that a letter comes from."""

    topic: str
    partition: int
    group_id: str


class LetterRecord(NamedTuple):
    """A record of a dead-letter topic."""

    key: bytes | None
    value: bytes | None
    original_headers: Headers
    own_headers: Headers
    has_copy: bool
    """Whether it is a copy of the record, not only a reference to it."""

    @property
    def headers(self) -> Headers:
        return self.original_headers + self.own_headers

    def without_copy(self, why: str) -> "LetterRecord":
        """Return the letter that only refers to its record, with the reason for that."""
        own = tuple(
            (name, value + f"; {why}".encode() if name == REASON_HEADER and value else value)
            for name, value in self.own_headers
        )
        return LetterRecord(None, None, (), own, has_copy=False)


def write_letter(
    origin: Origin, record: Record, given_up: DeadLetter, *, has_copy: bool
) -> LetterRecord:
    """Return the letter of a record that was given up."""
    own = (
        (TOPIC_HEADER, origin.topic.encode()),
        (PARTITION_HEADER, b"%d" % origin.partition),
        (OFFSET_HEADER, b"%d" % record.offset),
        (GROUP_HEADER, origin.group_id.encode()),
        (DELIVERY_COUNT_HEADER, b"%d" % given_up.delivery_count),
        (REASON_HEADER, given_up.cause.value.encode()),
    )
    if not has_copy:
        return LetterRecord(None, None, (), own, has_copy=False)
    return LetterRecord(record.key, record.value, record.headers, own, has_copy=True)


def partition_of(letter: LetterRecord, origin: Origin, partition_count: int) -> int:
    """Return the partition of a letter: by its key, as a producer would.

    Without a key the partition that it comes from decides, so that a retry goes to the same place.
    """
    if letter.key is None:
        return origin.partition % partition_count
    return partition_for_key(letter.key, partition_count)
