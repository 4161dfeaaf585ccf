"""What can be wrong with record batches, each with its Kafka error code.

Whatever bytes this package is given, these are the only exceptions that leave it.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from headrace.errors import ErrorCode, HeadraceError, KafkaError

if TYPE_CHECKING:
    from headrace.records.header import BatchHeader


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


class CostlyBatch(HeadraceError):
    """A produced batch that takes more work to validate than an event loop has time for.

    Not a refusal: `validation.finish_validation` does the work, in a thread.
    """

    def __init__(self, header: "BatchHeader") -> None:
        super().__init__("the batch is to be validated in a thread")
        self.header = header
