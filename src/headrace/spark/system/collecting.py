"""Which tasks a system frame is read by, and the rows of a task.

    tasks = blocking.run(plan(cluster, "groups", selection))
    rows = blocking.run(collect(cluster, "groups", tasks[0], selection))

A frame is as of the moment when its tasks run, and not atomic: a group may move between two rows.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError
from headrace.spark.system import cluster_rows as of_cluster
from headrace.spark.system import group_rows as of_groups
from headrace.spark.system import share_rows as of_queues
from headrace.spark.system.parts import Part, Row, refused_by_name
from headrace.spark.system.selection import Selection

Planner: TypeAlias = Callable[[Cluster, Selection], Awaitable[list[Part]]]
Collector: TypeAlias = Callable[[Cluster, Part, Selection], Awaitable[list[Row]]]


async def plan(cluster: Cluster, frame: str, selection: Selection) -> list[Part]:
    """Return the tasks of a read; NotServed if this cluster cannot serve the frame."""
    try:
        return await WAYS[frame][0](cluster, selection)
    except HeadraceError as error:
        raise refused_by_name(frame, error) from None


async def collect(cluster: Cluster, frame: str, part: Part, selection: Selection) -> list[Row]:
    """Return the rows of a task, in the order of the frame's columns."""
    try:
        return await WAYS[frame][1](cluster, part, selection)
    except HeadraceError as error:
        raise refused_by_name(frame, error) from None


WAYS: Final[dict[str, tuple[Planner, Collector]]] = {
    "nodes": (of_cluster.plan_whole, of_cluster.node_rows),
    "sessions": (of_cluster.plan_whole, of_cluster.session_rows),
    "topics": (of_cluster.plan_topics, of_cluster.topic_rows),
    "partitions": (of_cluster.plan_topics, of_cluster.partition_rows),
    "segments": (of_cluster.plan_nodes, of_cluster.segment_rows),
    "groups": (of_groups.plan_groups, of_groups.group_rows),
    "group_offsets": (of_groups.plan_groups, of_groups.offset_rows),
    "group_members": (of_groups.plan_groups, of_groups.member_rows),
    "share_partitions": (of_queues.plan_queues, of_queues.share_partition_rows),
    "share_records": (of_queues.plan_queues, of_queues.share_record_rows),
    "transactions": (of_groups.plan_transactions, of_groups.transaction_rows),
    "metadata": (of_cluster.plan_whole, of_cluster.metadata_rows),
}
"""How each frame is planned and filled."""
