"""What a broker of Apache Kafka tiered into a folder is read here, record for record."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.ids import TopicName
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from headrace.remote.layout import ObjectKind, SegmentKey, parse_key
from headrace.remote.marker import claim
from headrace.remote.object_store import open_store
from headrace.remote.reconstruction import list_segments, read_segments
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import ObjectStore
from tests.jvm.kafka_broker import kafka
from tools.jvm.harness import tiered_storage_jars

RECORDS = 300
SEGMENTS_MIN = 4
WAIT_SECONDS_MAX = 180
TIERED = TopicName("tiered")


def settings(folder: Path) -> dict[str, str]:
    topic = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "rsm.config.dir": str(folder),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "500",
        f"{topic}.replication.factor": "1",
        f"{topic}.min.isr": "1",
        f"{topic}.num.partitions": "1",
    }


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that a broker tiered a topic into, beside our marker."""
    parent = tmp_path_factory.mktemp("kafka")
    url = f"file://{parent}/tier/kafka-tiered-storage"
    asyncio.run(with_store(url, lambda store: claim(store, "cluster", 1)))
    extra = settings(parent / "tier")
    with kafka(parent / "data", extra=extra, more_jars=tiered_storage_jars()) as address:
        create_topic(address)
        produce(address)
        wait_for_segments(url)
    return url


def create_topic(address: str) -> None:
    config = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": "10000",
        "index.interval.bytes": "500",
    }
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TIERED, 1, 1, config=config)])[TIERED].result(60)


def produce(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce(TIERED, value=value(number), partition=0)
        if number % 10 == 9:
            assert producer.flush(30) == 0  # small batches, so that segments roll


def value(number: int) -> bytes:
    return f"{number} ".encode() * 50


async def with_store(url: str, use: Callable[[ObjectStore], Awaitable[None]]) -> None:
    store = open_store(url)
    try:
        await use(store)
    finally:
        await store.close()


async def complete_segments(store: ObjectStore) -> list[RemoteSegment]:
    """Return what Kafka finished: it writes the producer snapshot last."""
    found = {
        segment: kinds
        for segment, kinds in (await list_segments(store, [TIERED])).items()
        if ObjectKind.PRODUCER_SNAPSHOT in kinds
    }
    return [each for held in (await read_segments(store, found)).values() for each in held]


def wait_for_segments(url: str) -> None:
    """Wait until enough was tiered. The last segment stays local."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        folder = Path(url.removeprefix("file://"))
        finished = list(folder.glob(f"{TIERED}-0-*/*{ObjectKind.PRODUCER_SNAPSHOT}"))
        if len(finished) >= SEGMENTS_MIN:
            return
        assert time.monotonic() < deadline, f"{len(finished)} segments were tiered"
        time.sleep(0.1)  # polls, up to the deadline


def test_every_record_that_kafka_tiered_is_read(store_url: str) -> None:
    async def read(store: ObjectStore) -> None:
        objects = SegmentObjects(store)
        segments = await complete_segments(store)
        assert len(segments) >= SEGMENTS_MIN
        next_offset = 0
        for segment in segments:
            assert segment.start_offset == next_offset
            data = await objects.fetch(segment, 0, segment.size_bytes)
            for position, header in read_headers(data):
                for record in read_records(memoryview(data)[position:], header):
                    assert (record.offset, record.value) == (next_offset, value(next_offset))
                    next_offset += 1
            assert segment.next_offset == next_offset
            for kind in ObjectKind:
                if kind is not ObjectKind.LOG:
                    await objects.fetch_index(segment, kind)

    asyncio.run(with_store(store_url, read))


def test_every_key_of_kafkas_is_known(store_url: str) -> None:
    async def look(store: ObjectStore) -> None:
        async for page in store.list_objects(f"{TIERED}-"):
            for found in page:
                assert isinstance(parse_key(found.key), SegmentKey), found.key

    asyncio.run(with_store(store_url, look))
