"""The coordinators of a node, told which partitions of their topics it leads."""

from typing import Any

from headrace.coordinator.coordinator import Coordinator
from headrace.replication.partition import Partition


class CoordinatorRoles:
    """Loads what this node begins to lead, and unloads what it ceases to."""

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
