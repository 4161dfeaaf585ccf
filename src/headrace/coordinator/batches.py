"""Which records share a batch: those of one operation stay together if they must."""

from collections.abc import Iterator

from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import EncodedRecord, encode_record
from headrace.errors import ErrorCode, KafkaError


def fit(outcome: Outcome, bytes_max: int) -> tuple[Outcome, list[EncodedRecord]]:
    """Return the part of an outcome that can be written, and its encoded records.

    Raise KafkaError if it must be one batch and does not fit into one. Of independent records,
    those too large for any batch are dropped, so that they do not block the others; unless a
    caller waits for a reply, which would then be wrong.
    """
    encoded = [encode_record(record) for record in outcome.records]
    size_bytes = sum(record.size_bytes for record in encoded)
    if size_bytes <= bytes_max:
        return outcome, encoded
    fitting = [place for place, each in enumerate(encoded) if each.size_bytes <= bytes_max]
    if outcome.is_divisible and (len(fitting) == len(encoded) or not outcome.replies):
        records = tuple(outcome.records[place] for place in fitting)
        return outcome._replace(records=records), [encoded[place] for place in fitting]
    raise KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{len(encoded)} records of {size_bytes} bytes, but a batch may hold {bytes_max} "
        "(max.message.bytes)",
    )


def put_together(
    operations: list[list[EncodedRecord]], bytes_max: int
) -> Iterator[list[EncodedRecord]]:
    """Yield the records of each batch: as many operations as fit; no operation is split."""
    together: list[EncodedRecord] = []
    together_bytes = 0
    for records in operations:
        size_bytes = sum(record.size_bytes for record in records)
        if together and together_bytes + size_bytes > bytes_max:
            yield together
            together, together_bytes = [], 0
        together += records
        together_bytes += size_bytes
    if together:
        yield together
