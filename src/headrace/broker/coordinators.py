"""The coordinators of a node, told which partitions of their topics it leads.

The machine of groups is imported with the first partition that is led: it is a fifth of all modules
of a node, and many a node has no groups when it starts.
"""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import config
from headrace.broker.clock import Clock
from headrace.broker.partition import Partition
from headrace.config import Settings
from headrace.coordinator.coordinator import Coordinator
from headrace.groups.records import GROUPS_TOPIC, RECORD_TYPES
from headrace.ids import TopicName
from headrace.metadata.image import Image
from headrace.records.compression import Compression

if TYPE_CHECKING:
    from headrace.groups.machine import GroupsMachine

Groups: TypeAlias = "Coordinator[GroupsMachine]"


def group_coordinator(settings: Settings, image_of: Callable[[], Image], clock: Clock) -> Groups:
    """Give the coordinator of groups and of their offsets."""

    def make(_: int) -> "GroupsMachine":
        from headrace.groups.machine import GroupsMachine  # noqa: PLC0415  see above
        from headrace.groups.state import GroupsState  # noqa: PLC0415

        return GroupsMachine(GroupsState(settings, image_of, new_id=_new_id))

    return Coordinator(
        GROUPS_TOPIC,
        RECORD_TYPES,
        make,
        clock,
        lambda: _partition_count(image_of(), GROUPS_TOPIC),
        compression=Compression(settings[config.OFFSETS_TOPIC_COMPRESSION_CODEC]),
    )


class CoordinatorRoles:
    """Lets coordinators load what this node begins to lead, and give up what it ceases to."""

    def __init__(self, *coordinators: Coordinator[Any]) -> None:
        self._by_topic = {each.topic: each for each in coordinators}

    def on_leading(self, partition: Partition) -> None:
        if (coordinator := self._by_topic.get(partition.topic)) is not None:
            coordinator.lead(partition.index, partition)

    def on_following(self, partition: Partition) -> None:
        if (coordinator := self._by_topic.get(partition.topic)) is not None:
            coordinator.resign(partition.index)

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        self.on_following(partition)

    def close(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.close()

    def rearm(self) -> None:
        """Look at the clock again: it was moved."""
        for coordinator in self._by_topic.values():
            coordinator.rearm()


def _new_id() -> str:
    return str(uuid.uuid4())


def _partition_count(image: Image, topic: TopicName) -> int | None:
    found = image.topic(topic)
    return None if found is None else len(found.partitions)
