"""What a plan is made from, asked of a cluster: nodes, disks, partitions, moves in progress.

    facts = await gather(admin, sample_seconds=3)
    plan = plan_balance(facts.nodes, facts.partitions)

Everything is Kafka's own protocol. Traffic is how much the logs of leaders grow meanwhile, as
DescribeLogDirs has it. A partition that is on the move counts as one that has arrived.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from headrace.client.admin import Admin
from headrace.client.errors import NotReachable
from headrace.client.metadata import Topic
from headrace.client.nodes import LogDir
from headrace.client.reassignments import Reassignment
from headrace.client.topics import TopicPartition
from headrace.cluster.balancing.terms import UNKNOWN_BYTES, NodeRow, PartitionRow

NOBODY: Final = -1

Sizes = Mapping[TopicPartition, Mapping[int, int]]
"""Sizes of each partition's replicas, by node."""


class Facts(Struct, frozen=True):
    """A cluster as a plan sees it."""

    cluster_id: str
    controller: int
    nodes: tuple[NodeRow, ...]
    partitions: tuple[PartitionRow, ...]
    moving: dict[TopicPartition, Reassignment]
    in_sync: dict[TopicPartition, tuple[int, ...]]
    down: tuple[int, ...]
    """Nodes that keep replicas and are not up."""
    topics: tuple[str, ...]


async def gather(
    admin: Admin, *, sample_seconds: float = 0.0, leaving: Collection[int] = ()
) -> Facts:
    """Ask for everything; `leaving` are nodes that get nothing any more."""
    described = await admin.describe_cluster()
    dirs = await _ask_disks(admin, [node.node_id for node in described.nodes])
    topics = await admin.list_topics(with_internal=True)
    moving = await admin.list_reassignments()
    sizes = _sizes(dirs)
    rates = await _sample(admin, sizes, topics, sample_seconds)
    partitions, in_sync = [], {}
    for topic in topics:
        for row in topic.partitions:
            key = TopicPartition(topic.name, row.index)
            of_nodes = sizes.get(key, {})
            move = moving.get(key)
            replicas = row.replicas
            if move is not None:
                replicas = tuple(each for each in move.replicas if each not in move.removing)
            size = of_nodes.get(row.leader_id, max(of_nodes.values(), default=0))
            partitions.append(
                PartitionRow(topic.name, row.index, replicas, size, rates.get(key, 0.0))
            )
            in_sync[key] = row.in_sync
    up = {node.node_id for node in described.nodes}
    kept = {each for row in partitions for each in row.replicas}
    return Facts(
        described.cluster_id,
        described.controller_id,
        tuple(
            _node_row(node.node_id, node.rack, node.address.host, dirs, leaving)
            for node in described.nodes
        ),
        tuple(partitions),
        moving,
        in_sync,
        tuple(sorted(kept - up)),
        tuple(topic.name for topic in topics),
    )


async def sizes_of(
    admin: Admin, wanted: Mapping[int, list[TopicPartition]]
) -> dict[TopicPartition, dict[int, int]]:
    """Return how large some replicas are, by node; those that cannot be asked are left out."""

    async def ask(node_id: int) -> dict[int, list[LogDir]]:
        try:
            return await admin.describe_log_dirs([node_id], wanted[node_id])
        except NotReachable:
            return {}

    found: dict[int, list[LogDir]] = {}
    for answer in await asyncio.gather(*map(ask, wanted)):
        found |= answer
    return _sizes(found)


async def _ask_disks(admin: Admin, node_ids: list[int]) -> dict[int, list[LogDir]]:
    async def ask(node_id: int) -> dict[int, list[LogDir]]:
        try:
            return await admin.describe_log_dirs([node_id])
        except NotReachable:  # it goes down just now
            return {}

    found: dict[int, list[LogDir]] = {}
    for answer in await asyncio.gather(*map(ask, node_ids)):
        found |= answer
    return found


async def _sample(
    admin: Admin, before: Sizes, topics: list[Topic], seconds: float
) -> dict[TopicPartition, float]:
    """Return by how many bytes per second the logs of leaders grow."""
    if seconds <= 0:
        return {}
    leaders = {
        TopicPartition(topic.name, row.index): row.leader_id
        for topic in topics
        for row in topic.partitions
        if row.leader_id != NOBODY
    }
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(seconds)
    after = _sizes(await _ask_disks(admin, sorted(set(leaders.values()))))
    passed = loop.time() - began
    rates = {}
    for key, leader in leaders.items():
        grown = after.get(key, {}).get(leader, 0) - before.get(key, {}).get(leader, 0)
        if grown > 0 and leader in before.get(key, {}):
            rates[key] = grown / passed
    return rates


def _sizes(dirs: Mapping[int, list[LogDir]]) -> dict[TopicPartition, dict[int, int]]:
    found: dict[TopicPartition, dict[int, int]] = {}
    for node_id, rows in dirs.items():
        for row in rows:
            for replica in row.replicas:
                if not replica.is_future:
                    found.setdefault(replica.partition, {})[node_id] = replica.size_bytes
    return found


def _node_row(
    node_id: int,
    rack: str | None,
    host: str,
    dirs: Mapping[int, list[LogDir]],
    leaving: Collection[int],
) -> NodeRow:
    """Return a node; nodes of one machine with disks of one size share the disk."""
    rows = dirs.get(node_id, [])
    is_known = bool(rows) and all(row.total_bytes >= 0 for row in rows)
    total = sum(row.total_bytes for row in rows) if is_known else UNKNOWN_BYTES
    free = sum(row.usable_bytes for row in rows) if is_known else UNKNOWN_BYTES
    return NodeRow(
        node_id,
        rack,
        host,
        f"{host} {total}" if is_known else "",
        total,
        free,
        is_up=bool(rows),
        is_leaving=node_id in leaving,
    )
