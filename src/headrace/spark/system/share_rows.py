"""Rows about share groups: their partitions, and their records with states and reasons."""

import asyncio

from headrace.client.cluster import Cluster
from headrace.client.groups import list_groups
from headrace.client.node_pages import NoPage, find_page
from headrace.client.share.inspection import (
    Inspection,
    find_pages,
    inspect_queue,
    merge,
)
from headrace.client.share.offsets import describe_share_offsets
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.system.parts import GROUPS_PER_TASK, TASKS_MAX, Part, Row, each_of
from headrace.spark.system.selection import Selection, chunks

_SHARE = "share"
_UNKNOWN = "no share group"
"""How a node's page begins that has nothing to tell of a queue."""


async def plan_queues(cluster: Cluster, selection: Selection) -> list[Part]:
    """Return tasks of some share groups each."""
    names = selection.values("group_id")
    if names is None:
        listed = await list_groups(cluster, types=(_SHARE,))
        names = frozenset(each.group_id for each in listed)
    # Found out here, once, and not only where there are queues: the frame is refused or it is not.
    await find_page(cluster, min(cluster.view.nodes))
    return [Part(each) for each in chunks(sorted(names), GROUPS_PER_TASK, TASKS_MAX)]


async def share_partition_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `share_partitions`."""
    rows: list[Row] = []
    for found in await _inspections(cluster, part, selection):
        breaker = None if found.breaker is None else found.breaker.state
        for row in found.partitions:
            letters = row.dead_letters
            rows.append(
                (
                    found.group,
                    found.topic,
                    row.partition,
                    row.leader,
                    row.is_loaded,
                    row.start_offset,
                    row.end_offset,
                    row.high_watermark,
                    row.state_epoch,
                    row.leader_epoch,
                    row.delivery_complete_count,
                    row.waiting_fetches,
                    None if letters is None else letters.waiting_records,
                    None if letters is None else letters.error,
                    breaker,
                )
            )
    return rows


async def share_record_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `share_records`."""
    rows: list[Row] = []
    for found in await _inspections(cluster, part, selection):
        for partition in found.partitions:
            place = found.group, found.topic, partition.partition
            rows += [
                (
                    *place,
                    run.first_offset,
                    run.last_offset,
                    run.last_offset - run.first_offset + 1,
                    run.state,
                    run.delivery_count,
                    run.cause,
                    run.member_id,
                    run.client_id,
                    None if run.client_host is None else run.client_host.removeprefix("/"),
                    run.lock_left_ms,
                    run.resting_ms,
                )
                for run in partition.in_flight
            ]
            shown = {(run.first_offset, run.last_offset) for run in partition.in_flight}
            rows += [
                (
                    *place,
                    run.first_offset,
                    run.last_offset,
                    run.last_offset - run.first_offset + 1,
                    "archived",
                    run.delivery_count,
                    run.cause,
                    *(None,) * 5,
                )
                for run in partition.archived
                if (run.first_offset, run.last_offset) not in shown
            ]
    return rows


async def _inspections(cluster: Cluster, part: Part, selection: Selection) -> list[Inspection]:
    async def inspect(queue: tuple[str, str]) -> Inspection | None:
        group, topic = queue
        try:
            pages = await find_pages(cluster, topic)
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None  # deleted; its states follow
            raise
        loop = asyncio.get_running_loop()
        found: list[Inspection] = []
        for page in pages:
            try:
                found.append(await loop.run_in_executor(None, inspect_queue, page, group, topic))
            except NoPage as error:
                if _UNKNOWN not in str(error):
                    raise
        return merge(found) if found else None

    queues = [
        (group, topic)
        for group, topics in zip(
            part.names, await each_of(part.names, lambda name: _topics(cluster, name)), strict=True
        )
        for topic in topics
        if selection.admits(topic=topic)
    ]
    return [each for each in await each_of(queues, inspect) if each is not None]


async def _topics(cluster: Cluster, group: str) -> list[str]:
    """Return the topics that a share group has states of; none if it is no share group."""
    try:
        found = await describe_share_offsets(cluster, group)
    except KafkaError as error:
        if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID):
            return []
        raise
    return sorted({each.topic for each in found})
