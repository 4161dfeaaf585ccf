"""What a dead letter looks like (KIP-1191): a record, and where it comes from in its headers.

Pure. The headers of the record come first and ours last, so that of a letter which died twice the
last ones tell of the last time.
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
    """Which share partition a letter comes from."""

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
    """Whether it is a copy, and not only says where the record is."""

    @property
    def headers(self) -> Headers:
        return self.original_headers + self.own_headers

    def without_copy(self, why: str) -> "LetterRecord":
        """Give the letter that only says where its record is, and why no more than that."""
        own = tuple(
            (name, value + f"; {why}".encode() if name == REASON_HEADER and value else value)
            for name, value in self.own_headers
        )
        return LetterRecord(None, None, (), own, has_copy=False)


def write_letter(
    origin: Origin, record: Record, given_up: DeadLetter, *, has_copy: bool
) -> LetterRecord:
    """Give the letter of a record that was given up."""
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
    """Say where a letter goes: by its key as a producer would have it.

    Without a key it goes by the partition that it comes from, and so to the same place when it has
    to be sent again.
    """
    if letter.key is None:
        return origin.partition % partition_count
    return partition_for_key(letter.key, partition_count)
