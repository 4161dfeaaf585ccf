"""The topic of a table as its cluster knows it: its ends, its id, and the lag that tools see.

Everything that decides is read from the table itself; what is written to the cluster is for people.
"""

import logging
from collections.abc import Mapping

from headrace.client.cluster import Cluster
from headrace.client.configs import Resource, describe_configs
from headrace.client.groups import commit_offsets
from headrace.client.offsets import epoch_ends, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, topic_id_text
from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.lookup import ends, find_topics
from headrace.spark.offsets import EARLIEST, LATEST
from headrace.spark.read_options import ReadOptions
from headrace.spark.tables import registry
from headrace.spark.tables.commits import Head
from headrace.spark.tables.definition import Definition
from headrace.spark.tables.planning import TopicState, check_cuts

LOG = logging.getLogger("headrace.spark.tables")


async def topic_configs(cluster: Cluster, topic: str) -> dict[str, str]:
    """Return the configs of a topic."""
    resource = Resource.topic(topic)
    described = values_of(await describe_configs(cluster, [resource]))[resource]
    return {each.name: each.value or "" for each in described}


class TopicView:
    """What one table asks its cluster."""

    def __init__(self, definition: Definition, options: ReadOptions) -> None:
        self._definition = definition
        self._options = options
        self.topic_id = ZERO_TOPIC_ID
        """The id of the topic, as of the last `state`."""

    def state(self) -> TopicState:
        """Ask for the topic and its ends."""
        blocking = self._cluster()
        return blocking.run(self._ask(blocking))

    def check_cuts(self, head: Head) -> None:
        """Raise Gap if the log was cut off below what a head has, however long it is now."""
        asked = {
            TopicPartition(self._definition.topic, each): epoch
            for each, epoch in head.leaders.items()
            if each in head.offsets
        }
        if not asked:
            return
        blocking = self._cluster()
        found = blocking.run(epoch_ends(blocking.cluster, asked))
        # A partition that is gone, or that nobody leads, is judged by what else fails then.
        known = {
            each.partition: end for each, end in found.items() if not isinstance(end, KafkaError)
        }
        check_cuts(self._definition, head, known)

    def is_compacted(self) -> bool:
        """Return whether the log may lack older records of a key."""
        blocking = self._cluster()
        try:
            configs = blocking.run(topic_configs(blocking.cluster, self._definition.topic))
        except HeadraceError:  # whoever may read the records need not see the configs
            return False
        return "compact" in configs.get("cleanup.policy", "")

    def check_definition(self) -> None:
        """Raise if the table was altered since its definition was read: `alter` takes the claim."""
        blocking = self._cluster()
        found = blocking.run(registry.read_one(blocking.cluster, self._definition.name))
        if found != self._definition:
            raise registry.DefinitionChanged(
                f"table {self._definition.name!r} was altered, or created again, just now: run it "
                "again"
            )

    def show_progress(self, stops: Mapping[int, int]) -> None:
        """Commit offsets for a group, for tools that show lags; they decide nothing."""
        topic, group = self._definition.topic, self._definition.group
        offsets = {TopicPartition(topic, each): stop for each, stop in stops.items()}
        blocking = self._cluster()
        try:
            values_of(blocking.run(commit_offsets(blocking.cluster, group, offsets)))
        except HeadraceError as error:
            LOG.warning("the lag of group %r is not shown: %s", group, error)

    async def _ask(self, blocking: BlockingCluster) -> TopicState:
        found = await find_topics(blocking.cluster, self._options.subscription)
        self.topic_id = TopicId(found.id_of(self._definition.topic))
        earliest = await ends(blocking.cluster, found.partitions, EARLIEST, self._options)
        listed = await list_offsets(
            blocking.cluster,
            dict.fromkeys(found.partitions, LATEST),
            is_committed=self._options.limits.is_committed,
        )
        latest = values_of(listed)
        return TopicState(
            topic_id=topic_id_text(self.topic_id) if any(self.topic_id) else "",
            earliest={each.partition: offset for each, offset in earliest.items()},
            latest={each.partition: place.offset for each, place in latest.items()},
            leaders={
                each.partition: place.leader_epoch
                for each, place in latest.items()
                if place.leader_epoch >= 0
            },
        )

    def _cluster(self) -> BlockingCluster:
        return cluster_of(self._options.connecting)
