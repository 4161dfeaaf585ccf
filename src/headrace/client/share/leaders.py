"""Which node to ask about each assigned partition, and where that node is.

What brokers say in passing (a current leader with its epoch, and the endpoints of nodes) is used
until the metadata is as new.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from headrace.client.addresses import Address
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.retrying import pause_ms
from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.surroundings import new_random


class ShareLeaders:
    """Leaders of partitions, by metadata and by hints."""

    def __init__(self, cluster: Cluster, on_news: Callable[[], None]) -> None:
        """`on_news` is called when leaders were looked up and fetches may be retried."""
        self._cluster = cluster
        self._on_news = on_news
        self._random = new_random()
        self._hints: dict[SharedPartition, tuple[int, int]] = {}
        self._endpoints: dict[int, Address] = {}
        self._lookups: dict[str, asyncio.Task[None]] = {}

    def leader_of(self, shared: SharedPartition) -> int | None:
        """Return the last known leader; looks it up again if that is in doubt."""
        if not self._cluster.is_fresh(shared.topic):
            self._look_up(shared.topic)
        known = self._cluster.view.leader_of(shared.topic, shared.partition_index)
        hint = self._hints.get(shared)
        if hint is not None and (known is None or hint[1] > known.leader_epoch):
            return hint[0]
        self._hints.pop(shared, None)
        if known is None:
            self._look_up(shared.topic)
            return None
        return known.leader_id

    def address_of(self, node_id: int) -> Address | None:
        """Return the address of a node."""
        node = self._cluster.view.nodes.get(node_id)
        return self._endpoints.get(node_id) if node is None else node.address

    def note_endpoints(self, endpoints: Iterable[tuple[int, str, int]]) -> None:
        """Apply the node addresses of a response."""
        for node_id, host, port in endpoints:
            self._endpoints[node_id] = Address(host, port)

    def note_move(self, shared: SharedPartition, leader_id: int, leader_epoch: int) -> None:
        """Record that a partition moved; a leader of -1 only means that it is not here."""
        self._cluster.suspect(shared.topic)
        if leader_id < 0 or self.address_of(leader_id) is None:
            return
        known = self._hints.get(shared)
        if known is None or leader_epoch >= known[1]:
            self._hints[shared] = (leader_id, leader_epoch)

    def doubt(self, topic: str) -> None:
        """Look a topic up again before it is used next."""
        self._cluster.suspect(topic)

    async def resolve(
        self, assignment: Mapping[TopicId, tuple[int, ...]], topics: Iterable[str]
    ) -> frozenset[SharedPartition]:
        """Return the assignment by name. Waits for topics that are unknown yet."""
        names = self._cluster.view.topic_names
        attempt = 0
        while any(topic_id not in names for topic_id in assignment):
            with suppress(ClientError):
                await self._cluster.refresh(topics)
            if all(topic_id in names for topic_id in assignment):
                break
            await asyncio.sleep(pause_ms(attempt, self._cluster.settings, self._random) / 1000)
            attempt += 1
        return self.resolved(assignment)

    def resolved(self, assignment: Mapping[TopicId, tuple[int, ...]]) -> frozenset[SharedPartition]:
        """Return the part of an assignment whose topics are known now."""
        names = self._cluster.view.topic_names
        return frozenset(
            SharedPartition(topic_id, names[topic_id], index)
            for topic_id, indexes in assignment.items()
            if topic_id in names
            for index in indexes
        )

    def stop(self) -> "list[asyncio.Task[None]]":
        """Stop lookups; return the tasks that are ending."""
        tasks = list(self._lookups.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _look_up(self, topic: str) -> None:
        if topic in self._lookups:
            return
        task = asyncio.create_task(self._refresh(topic))
        self._lookups[topic] = task
        task.add_done_callback(lambda _: self._lookups.pop(topic, None))

    async def _refresh(self, topic: str) -> None:
        with suppress(ClientError):
            await self._cluster.refresh([topic])
        self._on_news()
        # An election takes its time: nobody looks again before this is over.
        await asyncio.sleep(pause_ms(0, self._cluster.settings, self._random) / 1000)
        self._on_news()
