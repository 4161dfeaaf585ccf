"""Batches between us and librdkafka, through the broker that librdkafka has for tests.

That broker keeps batches as they come, so what we send is what its consumer's own reader parses,
and what its producer built is what we fetch.
"""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import ErrorCode
from headrace.records.builder import build_batch
from headrace.records.compression import Compression
from headrace.records.header import check_crc, read_headers
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.wire import ApiKey, FrameReader, read_response, request_parts
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.schema import Message
from tests.unit.records.record_values import plain_records

PRODUCE_VERSION = 7
FETCH_VERSION = 11
DEADLINE_SECONDS = 60
COUNTS = [1, 10_000]


class Connection:
    """One request at a time over a blocking socket."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS)
        self._reader = FrameReader()

    def ask(self, key: ApiKey, version: int, body: Message) -> Message:
        header = RequestHeader(key, version, 1, "headrace-tests")
        self._socket.sendall(b"".join(request_parts(header, body)))
        frames: list[memoryview] = []
        while not frames:
            received = self._socket.recv_into(self._reader.buffer())
            assert received, "the broker closed the connection"
            frames = self._reader.advance(received)
        return read_response(frames[0], key, version)[1]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of a mock broker, which lives as long as the client that made it."""
    client = AdminClient({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"})
    (node,) = client.list_topics(timeout=DEADLINE_SECONDS).brokers.values()
    yield f"{node.host}:{node.port}"
    del client


@pytest.fixture
def connection(broker: str) -> Iterator[Connection]:
    connection = Connection(broker)
    yield connection
    connection.close()


def new_topic(broker: str, name: str) -> str:
    """Make a topic: the mock broker does when someone asks for it."""
    client = AdminClient({"bootstrap.servers": broker})
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not client.list_topics(name, timeout=DEADLINE_SECONDS).topics[name].partitions:
        assert time.monotonic() < deadline, f"{name} has no partitions"
    return name


def consume(broker: str, topic: str, count: int) -> list[Record]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "g",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: list[Record] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(records), timeout=1):
            assert message.error() is None
            records.append(as_record(message))
    consumer.close()
    return records


def as_record(message: Any) -> Record:
    headers = tuple(message.headers() or ())
    return Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("count", COUNTS)
def test_librdkafka_reads_what_we_build(
    broker: str, connection: Connection, codec: Compression, count: int
) -> None:
    topic = new_topic(broker, f"ours-{codec.name}-{count}")
    records = plain_records(count)
    partition = PartitionProduceData(0, build_batch(records, codec))
    request = ProduceRequest(
        None, -1, 10_000, [TopicProduceData(topic, partition_data=[partition])]
    )
    answer = connection.ask(ApiKey.PRODUCE, PRODUCE_VERSION, request)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert consume(broker, topic, count) == records


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("count", COUNTS)
def test_we_read_what_librdkafka_builds(
    broker: str, connection: Connection, codec: Compression, count: int
) -> None:
    topic = new_topic(broker, f"theirs-{codec.name}-{count}")
    records = plain_records(count)
    producer = Producer(
        {"bootstrap.servers": broker, "compression.type": codec.name.lower(), "linger.ms": 50}
    )
    for record in records:
        producer.produce(
            topic,
            partition=0,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert fetch_all(connection, topic, count) == records


def fetch_all(connection: Connection, topic: str, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        fetch = FetchPartition(
            partition=0, fetch_offset=len(records), partition_max_bytes=10_000_000
        )
        request = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=10_000_000,
            topics=[FetchTopic(topic=topic, partitions=[fetch])],
        )
        answer = connection.ask(ApiKey.FETCH, FETCH_VERSION, request)
        assert isinstance(answer, FetchResponse)
        chunk = answer.responses[0].partitions[0].records
        assert chunk, "nothing more to fetch"
        for position, header in read_headers(chunk):
            batch = memoryview(chunk)[position : position + header.size_bytes]
            check_crc(batch, header)
            records += read_records(batch, header)
    return records
