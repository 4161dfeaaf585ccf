"""The effective settings of topics, and how a change reaches their partitions.

Settings are looked up once for all partitions of a topic. The cost of a change depends on what it
affects; one that affects many topics (all of them when the broker's own configs change) is applied
to the partitions over several turns of the loop. The first part is done at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from headrace import config
from headrace.ids import TopicName
from headrace.log.settings import LogSettings
from headrace.replication.partition import Partition
from headrace.replication.throttles import NONE_THROTTLED, is_throttled, throttled_partitions

PARTITIONS_A_TURN: Final = 1_000
"""How many partitions get their new settings in one turn of the loop."""
LOOKUP_COST: Final = 50
"""The cost of a lookup, in partitions."""


class TopicSettings(NamedTuple):
    """The effective settings of a topic: its own configs before the broker's."""

    log: LogSettings
    min_insync_replicas: int
    leader_throttled: frozenset[int] = NONE_THROTTLED
    follower_throttled: frozenset[int] = NONE_THROTTLED
    """See `throttles.throttled_partitions`."""

    @classmethod
    def from_configs(
        cls, log: LogSettings, configs: Mapping[str, str], node_id: int
    ) -> "TopicSettings":
        """Return the settings of a topic's effective configs on a node."""
        leader, follower = (
            throttled_partitions(each.read(configs.get(each.name, "")), node_id)
            for each in (config.LEADER_THROTTLED_REPLICAS, config.FOLLOWER_THROTTLED_REPLICAS)
        )
        return cls(log, int(configs[config.MIN_INSYNC_REPLICAS.name]), leader, follower)


class SettingsOfTopics:
    """The settings of topics, from the current image."""

    def __init__(
        self,
        look_up: Callable[[TopicName], TopicSettings],
        partitions_of: Callable[[TopicName], Iterable[Partition]],
    ) -> None:
        self._look_up = look_up
        self._partitions_of = partitions_of
        self._known: dict[TopicName, TopicSettings] = {}
        self._changed: dict[TopicName, None] = {}
        """Topics whose partitions have yet to be told."""
        self._turn: asyncio.Handle | None = None

    def of(self, topic: TopicName) -> TopicSettings:
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = self._look_up(topic)
        return found

    def forget(self, topic: TopicName) -> None:
        """Forget a topic that is deleted."""
        self._known.pop(topic, None)
        self._changed.pop(topic, None)

    def note_changed(self, topic: TopicName) -> None:
        """Look up again what holds for a topic; `apply` then."""
        self._known.pop(topic, None)
        self._changed[topic] = None

    def note_all_changed(self, topics: Iterable[TopicName]) -> None:
        """Look up again what holds for any topic; partitions of these are told by `apply`."""
        self._known.clear()
        self._changed.update(dict.fromkeys(topics))

    def apply(self) -> None:
        """Apply the settings of changed topics to their partitions, some now and others soon."""
        if self._turn is None:
            self._apply_some()

    def configure(self, partition: Partition) -> None:
        """Apply the settings of its topic to one partition."""
        _configure(partition, self.of(partition.topic))

    def _apply_some(self) -> None:
        self._turn = None
        left = PARTITIONS_A_TURN
        if not self._changed:
            return
        while self._changed and left > 0:
            topic = next(iter(self._changed))
            del self._changed[topic]
            left -= LOOKUP_COST
            settings = self.of(topic)
            for partition in self._partitions_of(topic):
                _configure(partition, settings)
                left -= 1
        # Also if nothing is left: what changes within this turn is for the next.
        self._turn = asyncio.get_running_loop().call_soon(self._apply_some)


def _configure(partition: Partition, settings: TopicSettings) -> None:
    partition.log.change_settings(settings.log)
    partition.require_in_sync(settings.min_insync_replicas)
    index = partition.index
    partition.is_leader_throttled = is_throttled(settings.leader_throttled, index)
    partition.is_follower_throttled = is_throttled(settings.follower_throttled, index)
