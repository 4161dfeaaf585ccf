"""What goes wrong in the node-to-node protocol: the codes of a response, and bytes that are none.

The numbers are those of seed 002 and are not Kafka's: only 0, 2, 3, 5, 6 and 7 mean the same in
both (`headrace.errors` has Kafka's).
"""

from enum import IntEnum, unique
from typing import Final

from headrace.errors import HeadraceError


@unique
class ClusterErrorCode(IntEnum):
    """The `error_code` of a response header; a peer may send numbers that are not here."""

    NONE = 0
    UNKNOWN = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC = 3
    INVALID_PARTITION = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    NOT_ENOUGH_REPLICAS = 8
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 9
    INVALID_REQUIRED_ACKS = 10
    NOT_CONTROLLER = 11
    INVALID_REQUEST = 12
    UNSUPPORTED_VERSION = 13
    TOPIC_ALREADY_EXISTS = 14
    INVALID_REPLICATION_FACTOR = 15
    INELIGIBLE_REPLICA = 16
    OFFSET_OUT_OF_RANGE = 17
    NOT_REPLICA_FOR_PARTITION = 18
    GROUP_AUTHORIZATION_FAILED = 19
    UNKNOWN_MEMBER_ID = 20

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later, here or on another node."""
        return self in RETRIABLE


RETRIABLE: Final = frozenset(
    (
        ClusterErrorCode.LEADER_NOT_AVAILABLE,
        ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
        ClusterErrorCode.REQUEST_TIMED_OUT,
        ClusterErrorCode.NOT_ENOUGH_REPLICAS,
        ClusterErrorCode.NOT_CONTROLLER,
    )
)


class ProtocolError(HeadraceError):
    """Bytes that are not the message they claim to be, or a value that has no bytes.

    Names the message, the field and the position (the number of bytes read before the fault;
    encoding has none). `error_code` and `correlation_id` are for the response; the latter is None
    if the request ended before it, and always None for anything but a request.
    """

    def __init__(
        self,
        reason: str,
        *,
        message: str,
        field: str = "",
        position: int | None = None,
        error_code: ClusterErrorCode = ClusterErrorCode.CORRUPT_MESSAGE,
        correlation_id: int | None = None,
    ) -> None:
        self.reason = reason
        self.message = message
        self.field = field
        self.position = position
        self.error_code = error_code
        self.correlation_id = correlation_id
        super().__init__(reason)

    def __str__(self) -> str:
        field = f", {self.field}" if self.field else ""
        position = "" if self.position is None else f" at byte {self.position}"
        return f"{self.message}{field}{position}: {self.reason}"
