"""DescribeLogDirs, versions 1 to 5, and AlterReplicaLogDirs, versions 1 and 2.

KIP-113, KIP-827 (total and usable bytes, from 4), KIP-1066 (cordoned directories, from 5). A node
has one directory, so nothing is ever on its way to another: moving a replica to where it is does
nothing, any other directory is LOG_DIR_NOT_FOUND. No directory is cordoned.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.request import Handler, Request
from headrace.broker.slices import Slice, Slices, finish, in_slices
from headrace.errors import ErrorCode
from headrace.ids import TopicName
from headrace.wire import ApiKey
from headrace.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from headrace.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_BYTES: Final = -1


async def handle_describe_log_dirs(broker: Broker, request: Request) -> DescribeLogDirsResponse:
    body: DescribeLogDirsRequest = request.body
    topics = await finish(describe_log_dirs(broker, body))
    result = DescribeLogDirsResult(log_dir=broker.data_path, topics=topics)
    loop = asyncio.get_running_loop()
    space = await loop.run_in_executor(None, _space, broker.data_path)
    result.total_bytes, result.usable_bytes = space
    return DescribeLogDirsResponse(results=[result])


def describe_log_dirs(
    broker: Broker, body: DescribeLogDirsRequest
) -> Slices[list[DescribeLogDirsTopic]]:
    """Describe the partitions that are asked for and are here, by topic."""
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
    """Return the partitions that are asked for, each once; null is all that there are."""
    if body.topics is None:
        return [(partition.topic, partition.index) for partition in broker.replicas]
    asked: dict[tuple[TopicName, int], None] = {}
    for topic in body.topics:
        for index in topic.partitions:
            asked[TopicName(topic.topic), index] = None
            if current.spend():
                yield
    return asked


def _space(path: str) -> tuple[int, int]:
    """Give how large the disk of a folder is, and how much of it can be used."""
    try:
        found = os.statvfs(path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def handle_alter_replica_log_dirs(
    broker: Broker, request: Request
) -> AlterReplicaLogDirsResponse | Coroutine[Any, Any, AlterReplicaLogDirsResponse]:
    return in_slices(alter_replica_log_dirs(broker, request.body))


def alter_replica_log_dirs(
    broker: Broker, body: AlterReplicaLogDirsRequest
) -> Slices[AlterReplicaLogDirsResponse]:
    """Answer for each partition whether it is where it should be."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    current = Slice()
    for directory in body.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                rows = codes.setdefault(topic.name, {})
                rows[index] = _move(broker, directory.path, TopicName(topic.name), index)
                if current.spend(2):
                    yield
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in rows.items()
                ],
            )
            for name, rows in codes.items()
        ]
    )


def _move(broker: Broker, path: str, topic: TopicName, index: int) -> ErrorCode:
    if path != broker.data_path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.replicas.find(topic, index) is None:
        return broker.replicas.explain_missing(topic, index).code
    return ErrorCode.NONE


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: handle_alter_replica_log_dirs,
}
