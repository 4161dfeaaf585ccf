"""A heartbeat as a client sends it: what is wrong with it whatever the group is."""

from typing import Final

from headrace import config
from headrace.config import Settings
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.assignors import ASSIGNORS
from headrace.groups.consumer.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
)
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)

NOT_GIVEN: Final = -1
FIRST_WITH_OWN_ID: Final = 1
"""The version from which members choose their own id (KIP-1082)."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, settings: Settings
) -> None:
    """KafkaError if no group could accept this heartbeat."""
    epoch = request.member_epoch
    if version >= FIRST_WITH_OWN_ID or epoch != JOINING_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.instance_id, "InstanceId")
    _refuse_blank(request.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    known = known_assignors(settings)
    if request.server_assignor is not None and request.server_assignor not in known:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(known)}.",
        )


def known_assignors(settings: Settings) -> tuple[str, ...]:
    """Give the assignors that members may ask for, the default first."""
    named = tuple(each for each in settings[config.GROUP_CONSUMER_ASSIGNORS] if each in ASSIGNORS)
    return named or tuple(ASSIGNORS)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_GIVEN:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
