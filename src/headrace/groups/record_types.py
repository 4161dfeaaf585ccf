"""The record types of `__consumer_offsets`, by Kafka's numbers."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from headrace.coordinator.records import RecordTypes
from headrace.wire import message_type
from headrace.wire.schema import Message

_NAMES: Final = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
_Types: TypeAlias = tuple[type[Message], type[Message]]


class _TypesByNumber(Mapping[int, _Types]):
    """The key and the value of each type, imported when the first record of it is met."""

    def __init__(self) -> None:
        self._met: dict[int, _Types] = {}

    def __getitem__(self, number: int) -> _Types:
        found = self._met.get(number)
        if found is None:
            name = _NAMES[number]
            found = message_type(f"{name}Key"), message_type(f"{name}Value")
            self._met[number] = found
        return found

    def __contains__(self, number: object) -> bool:
        return number in _NAMES

    def __iter__(self) -> Iterator[int]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


RECORD_TYPES: Final[RecordTypes] = _TypesByNumber()
