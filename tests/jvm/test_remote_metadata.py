"""Apache Kafka's TopicBasedRemoteLogMetadataManager on a node of ours: each reads what the other
wrote in `__remote_log_metadata`, and Kafka's tool prints it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.client import Admin, Consumer
from headrace.ids import REMOTE_METADATA_TOPIC as TOPIC
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName, parse_topic_id, topic_id_text
from headrace.remote.events import decode_event, encode_event
from headrace.remote.placement import metadata_partition
from headrace.remote.segments import (
    DeleteState,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from headrace.testing.broker import TestBroker
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.topic_event_log import TopicEventLog
from tests.jvm.kafka_tools import run_well
from tests.unit.remote.segments import delete, segment, update
from tools.jvm.harness import HERE, Program, compile_java

PARTITIONS = 7
ORDERS = TopicIdPartition(TopicId(bytes(range(16, 32))), TopicName("orders"), PartitionIndex(3))
KEY = ORDERS.key
FINISHED = SegmentState.COPY_FINISHED
Json = dict[str, Any]


class RemoteMetadataOracle:
    """Kafka's manager, as `RemoteMetadataOracle.java` describes it."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def ask(self, word: str, subject: TopicIdPartition | Json, *more: int) -> str:
        row = subject if isinstance(subject, dict) else json_of_partition(subject)
        reply = self._program.ask("\t".join((word, json.dumps(row), *map(str, more))))
        if reply.startswith("!"):
            raise RuntimeError(reply[1:])
        return reply

    def add(self, one: RemoteSegment) -> None:
        self.ask("add", json_of(one))

    def update(self, step: SegmentUpdate) -> None:
        custom = step.custom_metadata
        self.ask(
            "update",
            {
                **json_of_partition(step.partition),
                "id": topic_id_text(TopicId(step.id)),
                "broker": step.broker_id,
                "timestamp": step.event_timestamp_ms,
                "custom": None if custom is None else custom.hex(),
                "state": int(step.state),
            },
        )

    def list(self, partition: TopicIdPartition) -> list[RemoteSegment]:
        return [segment_of(row) for row in json.loads(self.ask("list", partition))]

    def find(
        self, partition: TopicIdPartition, epoch: int, offset: int, word: str = "find"
    ) -> RemoteSegment | None:
        reply = self.ask(word, partition, epoch, offset)
        return segment_of(json.loads(reply)) if reply else None


def json_of_partition(partition: TopicIdPartition) -> Json:
    return {
        "topic": partition.topic,
        "topicId": topic_id_text(partition.topic_id),
        "partition": partition.index,
    }


def json_of(one: RemoteSegment) -> Json:
    custom = one.custom_metadata
    return {
        **json_of_partition(one.partition),
        "id": topic_id_text(TopicId(one.id)),
        "start": one.start_offset,
        "end": one.end_offset,
        "maxTimestamp": one.max_timestamp_ms,
        "broker": one.broker_id,
        "timestamp": one.event_timestamp_ms,
        "size": one.size_bytes,
        "epochs": [list(row) for row in one.epochs],
        "custom": None if custom is None else custom.hex(),
        "state": int(one.state),
        "txnEmpty": one.is_txn_index_empty,
    }


def segment_of(row: Json) -> RemoteSegment:
    return RemoteSegment(
        partition=TopicIdPartition(
            parse_topic_id(row["topicId"]),
            TopicName(row["topic"]),
            PartitionIndex(row["partition"]),
        ),
        id=SegmentId(bytes(parse_topic_id(row["id"]))),
        start_offset=row["start"],
        end_offset=row["end"],
        max_timestamp_ms=row["maxTimestamp"],
        broker_id=BrokerId(row["broker"]),
        event_timestamp_ms=row["timestamp"],
        size_bytes=row["size"],
        epochs=tuple(SegmentEpoch(*epoch) for epoch in row["epochs"]),
        custom_metadata=None if row["custom"] is None else bytes.fromhex(row["custom"]),
        state=SegmentState(row["state"]),
        is_txn_index_empty=row["txnEmpty"],
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka(
    broker: TestBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteMetadataOracle]:
    """Kafka's manager on our node; it creates the topic."""
    classes = compile_java(HERE / "RemoteMetadataOracle.java", HERE / "LineServer.java")
    folder = str(tmp_path_factory.mktemp("kafka"))
    with Program(
        classes, "RemoteMetadataOracle", broker.bootstrap, folder, str(PARTITIONS)
    ) as program:
        oracle = RemoteMetadataOracle(program)
        oracle.ask("follow", ORDERS)
        yield oracle


@asynccontextmanager
async def manager(broker: TestBroker, *followed: TopicIdPartition) -> AsyncIterator[TopicMetadata]:
    async def create() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)

    log = TopicEventLog(lambda: broker.bootstrap, create)
    await log.start()
    metadata = TopicMetadata(log, waits=MetadataWaits(consume_wait_ms=60_000))
    await metadata.start()
    metadata.follow(followed)
    for known in followed:
        await metadata.catch_up(known.key)
    try:
        yield metadata
    finally:
        await metadata.stop()
        await log.stop()


def other_partition(number: int) -> TopicIdPartition:
    topic_id = TopicId(Random(number).randbytes(15) + b"\x01")
    return TopicIdPartition(topic_id, TopicName(f"topic-{number}"), PartitionIndex(number))


def test_events_are_placed_where_kafka_places_them(kafka: RemoteMetadataOracle) -> None:
    random = Random(405)
    for count in (1, 7, 50, 1000):
        for _ in range(50):
            known = TopicIdPartition(
                TopicId(random.randbytes(16)),
                TopicName("any"),
                PartitionIndex(random.choice([0, 1, 7, 99, 2**31 - 1])),
            )
            assert metadata_partition(known.key, count) == int(kafka.ask("place", known, count))


def test_kafka_reads_what_we_write(broker: TestBroker, kafka: RemoteMetadataOracle) -> None:
    known = other_partition(1)

    async def write() -> list[RemoteSegment]:
        async with manager(broker, known) as metadata:
            first = segment(1, 0, 99, (0, 0), (3, 50), of=known, size_bytes=2**31 - 1)
            second = segment(2, 100, 199, (3, 100), of=known, is_txn_index_empty=True)
            third = segment(3, 200, 299, (3, 200), of=known)
            fourth = segment(4, 300, 399, (4, 300), of=known)
            for one in (first, second, third, fourth):
                await metadata.add(one)
            await metadata.update(update(first, FINISHED, custom_metadata=b"\x01\x02"))
            await metadata.update(update(second, FINISHED))
            await metadata.update(update(third, FINISHED))
            await metadata.update(update(third, SegmentState.DELETE_STARTED))
            gone = segment(5, 400, 499, (4, 400), of=known)
            await metadata.add(gone)
            await metadata.update(update(gone, SegmentState.DELETE_STARTED))
            await metadata.update(update(gone, SegmentState.DELETE_FINISHED))
            await metadata.add(gone)  # under the same id, which is free again
            # By the leader that is about to delete it: Kafka takes a repeated announcement.
            await metadata.add(replace(fourth, broker_id=BrokerId(2), event_timestamp_ms=400))
            found = list(metadata.segments(known.key))
            for epoch, offset in ((0, 10), (3, 60), (3, 150), (3, 250), (4, 300), (0, 60)):
                assert metadata.find(known.key, epoch, offset) == kafka_finds(epoch, offset)
            assert metadata.highest_offset(known.key, 3) == 199
            return found

    def kafka_finds(epoch: int, offset: int) -> RemoteSegment | None:
        kafka.ask("follow", known)
        return kafka.find(known, epoch, offset)

    ours = asyncio.run(write())
    kafka.ask("follow", known)
    assert sorted(kafka.list(known), key=lambda one: one.start_offset) == ours
    assert kafka.ask("highest", known, 0) == "49"
    # Kafka counts what is being deleted, too, and never forgets it.
    assert kafka.ask("highest", known, 3) == "299"
    assert int(kafka.ask("size", known, 0)) == 2**31 - 1
    following = kafka.find(known, 3, 100, "aborted")
    assert following is None


def test_we_read_what_kafka_writes(broker: TestBroker, kafka: RemoteMetadataOracle) -> None:
    known = other_partition(2)
    kafka.ask("follow", known)
    first = segment(11, 0, 99, (0, 0), (3, 50), of=known, custom_metadata=b"")
    second = segment(12, 100, 199, (3, 100), of=known, is_txn_index_empty=True)
    third = segment(13, 200, 299, (3, 200), of=known)
    for one in (first, second, third):
        kafka.add(one)
    kafka.update(update(first, FINISHED, custom_metadata=b"\x01\x02"))
    kafka.update(update(second, FINISHED))
    kafka.update(update(second, FINISHED))

    async def read() -> None:
        async with manager(broker, known) as metadata:
            theirs = sorted(kafka.list(known), key=lambda one: one.start_offset)
            assert list(metadata.segments(known.key)) == theirs
            for epoch in range(5):
                highest = metadata.highest_offset(known.key, epoch)
                assert ("" if highest is None else str(highest)) == kafka.ask(
                    "highest", known, epoch
                )
                for offset in range(0, 300, 7):
                    found = metadata.find(known.key, epoch, offset)
                    assert found == kafka.find(known, epoch, offset)
                    aborted = metadata.find_with_aborted(known.key, epoch, offset)
                    if found is not None:
                        assert aborted == kafka.find(known, epoch, offset, "aborted")
            # Kafka's size has unfinished copies in it, ours has not.
            of_epoch = metadata.segments_of(known.key, 3)
            assert sum(one.size_bytes for one in of_epoch) == int(kafka.ask("size", known, 3))
            assert metadata.refused_count == 0

    asyncio.run(read())


def test_a_partition_that_kafka_deletes_is_gone_for_us_and_the_other_way_round(
    broker: TestBroker, kafka: RemoteMetadataOracle
) -> None:
    theirs, ours = other_partition(3), other_partition(4)
    for known in (theirs, ours):
        kafka.ask("follow", known)
        kafka.add(segment(21, 0, 99, of=known))

    async def main() -> None:
        async with manager(broker, theirs, ours) as metadata:
            assert len(metadata.segments(theirs.key)) == 1
            for state in DeleteState:
                kafka.ask("delete", theirs, state)
                await metadata.delete_partition(delete(ours, state))
            await metadata.catch_up(theirs.key)
            assert list(metadata.segments(theirs.key)) == []
            assert list(metadata.segments(ours.key)) == []
            assert theirs not in metadata.keys_in(metadata.partition_of(theirs.key))

    asyncio.run(main())


def test_what_kafka_writes_has_the_bytes_that_we_write(
    broker: TestBroker, kafka: RemoteMetadataOracle
) -> None:
    known = other_partition(5)
    kafka.ask("follow", known)
    one = segment(31, 5, 99, (0, 5), (1, 50), of=known, is_txn_index_empty=True)
    step = update(one, FINISHED, custom_metadata=b"\x07")
    kafka.add(one)
    kafka.update(step)
    kafka.ask("delete", known, DeleteState.MARKED)

    async def read() -> list[bytes]:
        async with Consumer(broker.bootstrap) as consumer:
            await consumer.assign(TOPIC, until_end=True)
            return [record.value or b"" async for record in consumer]

    values = [value for value in asyncio.run(read()) if decode_event(value).partition == known]
    marked = delete(known, DeleteState.MARKED)._replace(broker_id=BrokerId(42))
    assert values == [encode_event(event) for event in (one, step, marked)]


def test_kafkas_tool_prints_our_events(broker: TestBroker, tmp_path: Path) -> None:
    known = other_partition(6)

    async def write() -> int:
        async with manager(broker, known) as metadata:
            one = segment(41, 0, 99, of=known)
            await metadata.add(one)
            await metadata.update(update(one, FINISHED))
            await metadata.delete_partition(delete(known, DeleteState.MARKED))
            return metadata.partition_of(known.key)

    place = asyncio.run(write())
    (file,) = (broker.folder / f"{TOPIC}-{place}").glob("*.log")
    printed = run_well(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--remote-log-metadata-decoder", "--files", str(file)),
    )
    lines = [line for line in printed.lines if "topic-6" in line]
    kinds = (
        "RemoteLogSegmentMetadata{",
        "RemoteLogSegmentMetadataUpdate{",
        "RemotePartitionDelete",
    )
    assert len(lines) == len(kinds), printed.stdout
    for line, kind in zip(lines, kinds, strict=True):
        assert kind in line
    assert "COPY_SEGMENT_FINISHED" in lines[1]
    assert "DELETE_PARTITION_MARKED" in lines[2]
