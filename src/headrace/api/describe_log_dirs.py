"""DescribeLogDirs: API key 35, versions 1 to 5.

KIP-113, KIP-827 (total and usable bytes, from 4), KIP-1066 (cordoned directories, from 5). A node
has one directory, and it is never cordoned. The replicas of this node are described, whoever leads
them. As in Kafka, the lag of one is what it lacks of its own high watermark, not of the leader's
log.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from headrace.ids import TopicName
from headrace.log.disk import Disk
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_BYTES: Final = -1


async def handle(broker: Broker, request: Request) -> DescribeLogDirsResponse:
    body: DescribeLogDirsRequest = request.body
    topics = await finish(describe_log_dirs(broker, body))
    result = DescribeLogDirsResult(log_dir=broker.data_path, topics=topics)
    loop = asyncio.get_running_loop()
    space = await loop.run_in_executor(None, _space, broker.folder.disk)
    result.total_bytes, result.usable_bytes = space
    return DescribeLogDirsResponse(results=[result])


def describe_log_dirs(
    broker: Broker, body: DescribeLogDirsRequest
) -> Slices[list[DescribeLogDirsTopic]]:
    """Describe the requested partitions that are on this node, by topic."""
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    current = Slice()
    asked = yield from _asked(broker, body, current)
    for topic, index in asked:
        if current.spend():
            yield
        partition = broker.replicas.find(topic, index)
        if partition is not None:
            log = partition.log
            row = DescribeLogDirsPartition(
                partition_index=index,
                partition_size=log.size_bytes,
                offset_lag=max(log.high_watermark - log.end_offset, 0),
            )
            topics.setdefault(topic, []).append(row)
    return [DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()]


def _asked(
    broker: Broker, body: DescribeLogDirsRequest, current: Slice
) -> Slices[Iterable[tuple[TopicName, int]]]:
    """Return the requested partitions, each once; null means all."""
    if body.topics is None:
        return [(partition.topic, partition.index) for partition in broker.replicas]
    asked: dict[tuple[TopicName, int], None] = {}
    for topic in body.topics:
        for index in topic.partitions:
            asked[TopicName(topic.topic), index] = None
            if current.spend():
                yield
    return asked


def _space(disk: Disk) -> tuple[int, int]:
    """Return the size of a disk, and its usable space."""
    try:
        return disk.total_bytes(), disk.free_bytes()
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
