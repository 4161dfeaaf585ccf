"""Why a request of seed 002 is refused, and which of its codes says so.

Its codes are not Kafka's: `cluster.protocol.errors` has them. A handler of Kafka's that refuses
something has a code of Kafka's, which is translated here.
"""

from collections.abc import Mapping
from typing import Final

from headrace.cluster.protocol import (
    ClusterErrorCode,
    PartitionName,
    ProtocolError,
    ResponseHeader,
    responses,
)
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic

MESSAGE_CHARACTERS_MAX: Final = 500
"""Messages name what was asked for, and a name in a request may have megabytes."""
NAME_CHARACTERS_MAX: Final = 256
"""Names of topics have 249 characters at most, and those of nodes so many."""


class Refusal(HeadraceError):
    """A request that is not done, with a code of seed 002."""

    def __init__(self, code: ClusterErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def error_response(correlation_id: int, error: Exception) -> responses.Error:
    """Return the response to a request that was refused or that failed."""
    if isinstance(error, KafkaError):
        code, message = code_of(error.code), error.message
    elif isinstance(error, Refusal):
        code, message = error.code, str(error)
    elif isinstance(error, ProtocolError):
        code, message = error.error_code, str(error)
    else:
        code = ClusterErrorCode.UNKNOWN
        message = "the node failed to handle this request; its log has the reason"
    message = message[:MESSAGE_CHARACTERS_MAX]
    return responses.Error(ResponseHeader(correlation_id, code, message))


def code_of(code: int) -> ClusterErrorCode:
    """Return the code of seed 002 that is nearest to a code of Kafka's."""
    return _CODES.get(code, ClusterErrorCode.UNKNOWN)


def check(code: int, message: str | None) -> None:
    """Raise KafkaError if a row of Kafka's response has a code."""
    if code:
        raise KafkaError(ErrorCode(code), message or ErrorCode(code).name)


def require_partition(image: Image, name: PartitionName) -> tuple[Topic, Partition]:
    """Return a partition of the image and its topic; raise Refusal if there is none."""
    topic = image.topic(name.topic)
    if topic is None:
        raise Refusal(ClusterErrorCode.UNKNOWN_TOPIC, f"there is no topic {shown(name.topic)}")
    row = image.partition(name.topic, name.partition)
    if row is None:
        raise Refusal(
            ClusterErrorCode.INVALID_PARTITION,
            f"topic {name.topic} has {len(topic.partitions)} partitions, no {name.partition}",
        )
    return topic, row


def shown(name: str) -> str:
    """Return a name as a message has it, cut if it is very long."""
    return repr(name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}...")


_CODES: Final[Mapping[int, ClusterErrorCode]] = {
    ErrorCode.NONE: ClusterErrorCode.NONE,
    ErrorCode.CORRUPT_MESSAGE: ClusterErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD: ClusterErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ClusterErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ClusterErrorCode.UNKNOWN_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID: ClusterErrorCode.UNKNOWN_TOPIC,
    ErrorCode.INCONSISTENT_TOPIC_ID: ClusterErrorCode.UNKNOWN_TOPIC,
    ErrorCode.INVALID_PARTITIONS: ClusterErrorCode.INVALID_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE: ClusterErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: ClusterErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: ClusterErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ClusterErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.INVALID_UPDATE_VERSION: ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT: ClusterErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ClusterErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS: ClusterErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ClusterErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.INVALID_REQUIRED_ACKS: ClusterErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.NOT_CONTROLLER: ClusterErrorCode.NOT_CONTROLLER,
    ErrorCode.UNSUPPORTED_VERSION: ClusterErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TOPIC_ALREADY_EXISTS: ClusterErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_REPLICATION_FACTOR: ClusterErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ClusterErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INELIGIBLE_REPLICA: ClusterErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.OFFSET_OUT_OF_RANGE: ClusterErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ClusterErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_MEMBER_ID: ClusterErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.BROKER_ID_NOT_REGISTERED: ClusterErrorCode.UNKNOWN_MEMBER_ID,
    **dict.fromkeys(
        (
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_TIMESTAMP,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.RECORD_LIST_TOO_LARGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            ErrorCode.POLICY_VIOLATION,
            ErrorCode.TOPIC_DELETION_DISABLED,
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.UNKNOWN_PRODUCER_ID,
        ),
        ClusterErrorCode.INVALID_REQUEST,
    ),
}
"""What is not here is UNKNOWN."""
