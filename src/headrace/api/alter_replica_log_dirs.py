"""AlterReplicaLogDirs: API key 34, versions 1 and 2.

KIP-113. A node has one directory: moving a replica to where it is does nothing, any other directory
is LOG_DIR_NOT_FOUND.
"""

from collections.abc import Coroutine
from typing import Any

from headrace.errors import ErrorCode
from headrace.ids import TopicName
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from headrace.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    broker: Broker, request: Request
) -> AlterReplicaLogDirsResponse | Coroutine[Any, Any, AlterReplicaLogDirsResponse]:
    return in_slices(alter_replica_log_dirs(broker, request.body))


def alter_replica_log_dirs(
    broker: Broker, body: AlterReplicaLogDirsRequest
) -> Slices[AlterReplicaLogDirsResponse]:
    """Answer for each partition whether it is where it should be."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    response = AlterReplicaLogDirsResponse(results=[])
    current = Slice()
    for directory in body.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                rows = codes.setdefault(topic.name, {})
                rows[index] = _move(broker, directory.path, TopicName(topic.name), index)
                if current.spend(2):
                    yield
            if current.spend():
                yield
    for name, found in codes.items():
        result = AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        response.results.append(result)
        for index, code in found.items():
            row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            result.partitions.append(row)
            if current.spend():
                yield
        if current.spend():
            yield
    return response


def _move(broker: Broker, path: str, topic: TopicName, index: int) -> ErrorCode:
    if path != broker.data_path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.replicas.find(topic, index) is None:
        return broker.replicas.explain_missing(topic, index).code
    return ErrorCode.NONE
