"""What can be wrong with record batches, each with its Kafka error code.

Whatever bytes this package is given, these are the only exceptions that leave it.
"""

from msgspec import Struct

from headrace.errors import ErrorCode, KafkaError


class RecordsError(KafkaError):
    """Base of the errors below."""


class CorruptBatch(RecordsError):
    """Bytes that are not a record batch, or not the one that was written."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class UnsupportedBatch(RecordsError):
    """A message set of format v0 or v1, which Kafka itself stopped writing in 0.11."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)


class InflatedTooLarge(RecordsError):
    """Compressed records that would take more memory than allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class RecordError(Struct, frozen=True, gc=False):
    """Why one record is to blame, as the `record_errors` of a produce response say it."""

    batch_index: int
    message: str


class RefusedBatch(RecordsError):
    """A produced batch that is whole but that the topic does not take."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
