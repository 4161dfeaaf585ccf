"""The records of `__consumer_offsets`, by the numbers that Kafka has for their types."""

from typing import Final

from headrace.coordinator.records import RecordTypes
from headrace.ids import TopicName
from headrace.wire import message_type

GROUPS_TOPIC: Final = TopicName("__consumer_offsets")

_NAMES: Final = (
    "LegacyOffsetCommit",
    "OffsetCommit",
    "GroupMetadata",
    "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata",
    "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment",
    "ShareGroupMemberMetadata",
    "ShareGroupMetadata",
    "ShareGroupTargetAssignmentMetadata",
    "ShareGroupTargetAssignmentMember",
    "ShareGroupCurrentMemberAssignment",
    "ShareGroupStatePartitionMetadata",
    "ConsumerGroupRegularExpression",
    "StreamsGroupMetadata",
    "StreamsGroupMemberMetadata",
    "StreamsGroupTargetAssignmentMetadata",
    "StreamsGroupTargetAssignmentMember",
    "StreamsGroupCurrentMemberAssignment",
    "StreamsGroupTopology",
)
RECORD_TYPES: Final[RecordTypes] = {
    message_type(f"{name}Key").API_KEY: (message_type(f"{name}Key"), message_type(f"{name}Value"))
    for name in _NAMES
}
