"""The coordinators of a node, informed of the partitions of their topics that it leads."""

from typing import Any

from headrace.coordinator.coordinator import Coordinator
from headrace.replication.partition import Partition


class CoordinatorRoles:
    """Loads partitions that this node starts to lead, and unloads those that it stops leading."""

    def __init__(self, *coordinators: Coordinator[Any]) -> None:
        self._by_topic = {each.topic: each for each in coordinators}

    def on_leading(self, partition: Partition) -> None:
        if (coordinator := self._by_topic.get(partition.topic)) is not None:
            coordinator.lead(partition.index, partition)

    def on_following(self, partition: Partition) -> None:
        if (coordinator := self._by_topic.get(partition.topic)) is not None:
            coordinator.resign(partition.index, partition)

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        self.on_following(partition)

    def close(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.close()

    def rearm(self) -> None:
        """Set the timers again after the clock was moved."""
        for coordinator in self._by_topic.values():
            coordinator.rearm()
