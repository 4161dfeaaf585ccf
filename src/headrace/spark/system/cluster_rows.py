"""Rows about nodes, topics and partitions, and what only Headrace's pages tell of them."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.configs import DEFAULT_SOURCES, Resource, describe_configs
from headrace.client.errors import ClientError, NotReachable
from headrace.client.metadata import Topic
from headrace.client.node_inspection import NodePage, read_entries, read_segments, read_view
from headrace.client.node_pages import NoPage, Pages, find_page
from headrace.client.nodes import describe_cluster, describe_log_dirs
from headrace.client.offsets import FoundOffset, Start, list_offsets
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import topic_id_text
from headrace.spark.system.parts import (
    TASKS_MAX,
    TOPICS_PER_TASK,
    Part,
    Row,
    each_of,
    known,
    moment,
)
from headrace.spark.system.selection import Selection, chunks

T = TypeVar("T")


async def plan_whole(cluster: Cluster, selection: Selection) -> list[Part]:
    """Return one task: what it reads is small."""
    return [Part()]


async def plan_nodes(cluster: Cluster, selection: Selection) -> list[Part]:
    """Return one task for each node, as each tells of itself."""
    await cluster.refresh()
    return [Part(node=each) for each in sorted(cluster.view.nodes) if selection.admits(node=each)]


async def plan_topics(cluster: Cluster, selection: Selection) -> list[Part]:
    """Return tasks of some topics each."""
    names = selection.values("topic")
    if names is None:
        names = frozenset(topic.name for topic in await cluster.list_topics())
    return [Part(each) for each in chunks(sorted(names), TOPICS_PER_TASK, TASKS_MAX)]


async def node_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `nodes`."""
    found = await describe_cluster(cluster)
    wanted = [each for each in found.nodes if selection.admits(node=each.node_id)]
    disks = await describe_log_dirs(cluster, [each.node_id for each in wanted])
    rows: list[Row] = []
    for each in wanted:
        folders = disks[each.node_id]
        replicas = [row for folder in folders for row in folder.replicas if not row.is_future]
        sizes = [folder.total_bytes for folder in folders], [row.usable_bytes for row in folders]
        total, usable = (sum(part) if min(part, default=-1) >= 0 else None for part in sizes)
        rows.append(
            (
                each.node_id,
                each.address.host,
                each.address.port,
                each.rack,
                each.node_id == found.controller_id,
                total,
                usable,
                sum(row.size_bytes for row in replicas),
                len(replicas),
            )
        )
    return rows


async def topic_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `topics`."""
    topics = await _topics(cluster, part)
    resources = {topic.name: Resource.topic(topic.name) for topic in topics}
    configs = await describe_configs(cluster, list(resources.values())) if resources else {}
    rows: list[Row] = []
    for topic in topics:
        found = configs[resources[topic.name]]
        rows.append(
            (
                topic.name,
                topic_id_text(topic.topic_id),
                topic.is_internal,
                len(topic.partitions),
                topic.replication_factor,
                sum(each.leader_id < 0 for each in topic.partitions),
                sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions),
                None
                if isinstance(found, KafkaError)
                else {
                    row.name: row.value or ""
                    for row in found
                    if row.source not in DEFAULT_SOURCES and row.name != ""
                },
            )
        )
    return rows


async def partition_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `partitions`."""
    topics = await _topics(cluster, part)
    places = {
        TopicPartition(topic.name, row.index): row for topic in topics for row in topic.partitions
    }
    led = [each for each, row in places.items() if row.leader_id >= 0]
    starts = await list_offsets(cluster, dict.fromkeys(led, Start.BEGINNING))
    ends = await list_offsets(cluster, dict.fromkeys(led, Start.END))
    stable = await list_offsets(cluster, dict.fromkeys(led, Start.END), is_committed=True)
    sizes = await _leader_sizes(cluster, topics, led)
    rows: list[Row] = []
    for each, row in places.items():
        outcomes = [found.get(each) for found in (starts, ends, stable)]
        problem = next((str(found) for found in outcomes if isinstance(found, KafkaError)), None)
        if row.leader_id < 0:
            problem = "it has no leader"
        offsets = [found.offset if isinstance(found, FoundOffset) else None for found in outcomes]
        rows.append(
            (
                *each,
                known(row.leader_id),
                row.leader_epoch,
                list(row.replicas),
                list(row.in_sync),
                list(row.offline),
                *offsets,
                sizes.get((row.leader_id, each)),
                problem,
            )
        )
    return rows


async def segment_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return what one node adds to the frame `segments`."""
    assert part.node is not None, "segments are read node by node"
    await _know(cluster, part.node)
    page = await find_page(cluster, part.node)
    found = await _in_thread(lambda: read_segments(page, selection.values("topic")))
    return [
        (
            found.node,
            each.topic,
            each.partition,
            each.base_offset,
            each.end_offset,
            each.size_bytes,
            moment(each.last_timestamp),
            each.is_active,
            each.is_leader,
        )
        for each in found.segments
    ]


async def metadata_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `metadata`, from the node that has applied the most."""
    pages, failed = await _views(cluster)
    if not pages:
        raise next(iter(failed.values()))
    address, _ = max(pages.values(), key=lambda each: (each[1].term, each[1].applied))
    found = await _in_thread(lambda: list(read_entries(address, selection.first, selection.stop)))
    return [(each.index, each.term, each.kind, each.details, each.size_bytes) for each in found]


async def session_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `sessions`: what the controller says of all, and each node of itself."""
    pages, failed = await _views(cluster)
    if not pages:
        raise next(iter(failed.values()))
    newest = max((view for _, view in pages.values()), key=lambda view: (view.term, view.applied))
    controllers = [view for _, view in pages.values() if view.is_controller]
    controller = max(controllers, key=lambda view: view.term, default=None)
    sessions = {} if controller is None else {row.node: row for row in controller.sessions}
    rows: list[Row] = []
    for row in newest.nodes:
        session = sessions.get(row.node)
        _, own = pages.get(row.node, (None, None))
        problem = str(failed[row.node]) if row.node in failed else None
        rows.append(
            (
                row.node,
                row.address,
                row.state,
                row.is_registered,
                row.is_fenced,
                row.is_stopping,
                controller is not None and controller.node == row.node,
                None if session is None else session.heard_ms_ago,
                None if session is None else session.ends_in_ms,
                None if session is None else session.is_suspect,
                None if own is None else own.version,
                None if own is None else own.applied,
                problem if own is None else own.waiting or None,
            )
        )
    return rows


async def _topics(cluster: Cluster, part: Part) -> list[Topic]:
    """Return the topics of a task that exist."""

    async def look_up(name: str) -> Topic | None:
        try:
            return await cluster.topic(name)
        except KafkaError as error:
            if error.code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ):
                return None
            raise

    await cluster.refresh(part.names)
    return [topic for topic in await each_of(part.names, look_up) if topic is not None]


async def _leader_sizes(
    cluster: Cluster, topics: list[Topic], led: list[TopicPartition]
) -> dict[tuple[int, TopicPartition], int]:
    """Return what replicas take, by node; without those of nodes that do not say."""
    if not led:
        return {}
    leaders = sorted({row.leader_id for topic in topics for row in topic.partitions} - {-1})
    try:
        found = await describe_log_dirs(cluster, leaders, led)
    except (NotReachable, KafkaError):
        return {}
    return {
        (node_id, replica.partition): replica.size_bytes
        for node_id, folders in found.items()
        for folder in folders
        for replica in folder.replicas
        if not replica.is_future
    }


async def _views(
    cluster: Cluster,
) -> tuple[dict[int, tuple[Pages, NodePage]], dict[int, Exception]]:
    """Return the pages of the nodes that have them, and why others have none."""
    await cluster.refresh()

    async def view(node_id: int) -> tuple[Pages, NodePage] | Exception:
        try:
            page = await find_page(cluster, node_id)
            return page, await _in_thread(lambda: read_view(page))
        except (NoPage, NotReachable, KafkaError) as error:
            return error

    nodes = sorted(cluster.view.nodes)
    found = dict(zip(nodes, await each_of(nodes, view), strict=True))
    good = {node: each for node, each in found.items() if isinstance(each, tuple)}
    return good, {node: each for node, each in found.items() if isinstance(each, Exception)}


async def _know(cluster: Cluster, node_id: int) -> None:
    """Refresh the view unless it has the node; ClientError if the cluster has it no more."""
    if node_id not in cluster.view.nodes:
        await cluster.refresh()
    if node_id not in cluster.view.nodes:
        raise ClientError(f"node {node_id} left the cluster while it was asked")


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
