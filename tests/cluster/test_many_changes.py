"""Many changes at once through a node that does not lead."""

import asyncio

from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import Assignment, CreateTopic
from headrace.metadata.quorum import MetadataQuorum
from headrace.testing.cluster import TestCluster

COUNT = 1500
"""Several times what one node may ask of another at once."""

SLOW_HEARTBEATS = {"broker.session.timeout.ms": "20000", "broker.heartbeat.interval.ms": "1000"}
"""A heartbeat fails that is not answered within its interval, on a busy machine too."""


def topic(number: int) -> CreateTopic:
    partition = Assignment((BrokerId(1),), (BrokerId(1),), BrokerId(1))
    return CreateTopic(TopicName(f"t-{number}"), TopicId(number.to_bytes(16)), (partition,))


async def create_all(quorum: MetadataQuorum) -> None:
    await asyncio.gather(*(quorum.propose(topic(each)) for each in range(1, COUNT + 1)))


def test_changes_leave_room_for_heartbeats() -> None:
    """A node that sends many changes is heard from, and so is not fenced."""
    with TestCluster(nodes=3, settings=SLOW_HEARTBEATS) as cluster:
        controller = cluster.controller
        number = next(each for each in cluster.nodes if each != controller)
        node = cluster.nodes[number]
        presence = node.node.cluster.presence
        assert presence is not None
        failed = presence.failed
        node.run(create_all(node.node.broker.quorum))
        assert presence.failed == failed
