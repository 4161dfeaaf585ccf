"""What a log refuses and why."""

from headrace.errors import ErrorCode, KafkaError


class LogError(KafkaError):
    """Base of the errors below."""


class CorruptLog(LogError):
    """Bytes of a file that are not what was written; the log is not opened, or not read there."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position


class ReadOnlyLog(LogError):
    """A log that takes no appends, as its disk is full or failing."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is read-only: {reason}")


class OffsetOutOfRange(LogError):
    """An offset below the log's start or beyond its end."""

    def __init__(self, name: str, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{name}: offset {offset} is not in {start} to {end}"
        )


class OffsetInTier(LogError):
    """An offset of the log whose records are in the tier, and not on this disk any more.

    Followers hear of it with this code; for clients the tier is read.
    """

    def __init__(self, name: str, offset: int, local_start: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"{name}: offset {offset} is in the tier, this disk has those from {local_start} on",
        )


class LaterEpoch(LogError):
    """A batch from the time after the node that sent it lost the partition."""

    def __init__(self, name: str, leader_epoch: int, epoch_max: int) -> None:
        super().__init__(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name}: a batch of leader epoch {leader_epoch} came in a fetch of epoch {epoch_max}",
        )
