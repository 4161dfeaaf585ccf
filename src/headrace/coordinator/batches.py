"""Which records go into one batch: those of an operation together, if they have to."""

from collections.abc import Iterator

from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import EncodedRecord, encode_record
from headrace.errors import ErrorCode, KafkaError


def fit(outcome: Outcome, bytes_max: int) -> tuple[Outcome, list[EncodedRecord]]:
    """Return what can be written of an outcome, and its records as they are written.

    KafkaError if it has to be one batch and does not fit into one. Of records that stand for
    themselves those are left out that no batch takes, so that they do not hold up the others;
    unless somebody waits for an answer, which would then be wrong.
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
        f"{len(encoded)} records of {size_bytes} bytes, {bytes_max} can be written at once "
        "(max.message.bytes)",
    )


def put_together(
    operations: list[list[EncodedRecord]], bytes_max: int
) -> Iterator[list[EncodedRecord]]:
    """Yield the records of batches, as many operations in each as it takes; none is torn."""
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
