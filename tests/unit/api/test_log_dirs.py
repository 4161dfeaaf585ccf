"""DescribeLogDirs and AlterReplicaLogDirs: the one directory and what is in it."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder
from headrace.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000


@pytest.fixture
def orders(harness: Harness) -> Any:
    harness.create_topic("orders", 2)
    harness.create_topic("payments")

    async def append() -> None:
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        partition = harness.partition("orders", 0)
        partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)

    harness.run(append())
    return harness


def sizes(answer: Any) -> dict[tuple[str, int], int]:
    (directory,) = answer.results
    return {
        (topic.name, row.partition_index): row.partition_size
        for topic in directory.topics
        for row in topic.partitions
    }


def test_null_asks_for_every_partition(orders: Any) -> None:
    answer = orders.ask(DescribeLogDirsRequest(topics=None), 5)
    log_bytes = orders.broker.replicas.find("orders", 0).log.size_bytes
    assert log_bytes > 0
    assert sizes(answer) == {("orders", 0): log_bytes, ("orders", 1): 0, ("payments", 0): 0}
    (directory,) = answer.results
    assert directory.log_dir == orders.broker.data_path
    assert 0 < directory.usable_bytes < directory.total_bytes
    assert not directory.is_cordoned
    rows = [row for topic in directory.topics for row in topic.partitions]
    assert all(row.offset_lag == 0 and not row.is_future_key for row in rows)


@pytest.mark.parametrize("version", range(1, 6))
def test_only_what_is_asked_for_and_exists_is_described(orders: Any, version: int) -> None:
    topics = [
        DescribableLogDirTopic(topic="orders", partitions=[1, 1, 9]),
        DescribableLogDirTopic(topic="nothing", partitions=[0]),
        DescribableLogDirTopic(topic="payments", partitions=[]),
    ]
    assert sizes(orders.ask(DescribeLogDirsRequest(topics=topics), version)) == {("orders", 1): 0}


def test_asking_for_nothing_describes_the_directory_alone(orders: Any) -> None:
    answer = orders.ask(DescribeLogDirsRequest(topics=[]), 5)
    (directory,) = answer.results
    assert directory.topics == []
    assert directory.total_bytes > 0


def move(harness: Harness, path: str, topic: str, *indexes: int) -> dict[int, int]:
    moved = AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])])
    answers = [harness.ask(request, version) for version in (1, 2)]
    assert answers[0] == answers[1]
    (answer,) = answers[0].results
    assert answer.topic_name == topic
    return {row.partition_index: row.error_code for row in answer.partitions}


def test_a_replica_may_move_to_where_it_is(orders: Any) -> None:
    assert move(orders, orders.broker.data_path, "orders", 0, 1) == {0: 0, 1: 0}


def test_a_directory_that_is_not_there_is_not_found(orders: Any) -> None:
    not_found = ErrorCode.LOG_DIR_NOT_FOUND
    assert move(orders, "/nowhere", "orders", 0, 9) == {0: not_found, 9: not_found}
    assert move(orders, orders.broker.data_path + "/", "orders", 0) == {0: not_found}
    assert move(orders, "/nowhere", "nothing", 0) == {0: not_found}


def test_a_replica_that_is_not_there_cannot_move(orders: Any) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(orders, orders.broker.data_path, "orders", 0, 9) == {0: 0, 9: unknown}
    assert move(orders, orders.broker.data_path, "nothing", 0) == {0: unknown}


def test_nothing_to_move_is_nothing_moved(orders: Any) -> None:
    assert orders.ask(AlterReplicaLogDirsRequest(dirs=[]), 2).results == []
