"""What left the disk is read back, byte for byte, by clients that know nothing of a tier.

Records of known bytes are produced by librdkafka and moved to a folder. Kafka's console consumer,
librdkafka, our client and both Spark sources read all of them; the checksum over the values in
their order, or of each with its offset, has to be that of what was sent.
"""

import asyncio
import hashlib
import random
import subprocess
import time
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as Spark's users write it

from headrace.client import Consumer, Start
from headrace.spark import session
from headrace.spark.blocking import close_clusters
from tests.headrace_process import HeadraceProcess
from tests.jvm.kafka_tools import TOOLS
from tests.tier.brokers import SETTINGS
from tools.jvm.harness import JVM_OPTIONS, jars

TOPIC = "orders"
PARTITIONS = 2
VALUE_BYTES = 1000
MIB = 1024 * 1024
DEADLINE_SECONDS = 900
CRC_OF_ROW = "crc32(concat(encode(concat(partition, ' ', offset, ' '), 'utf-8'), value))"


class Sent:
    """The values of a partition, as checksums."""

    def __init__(self, partition: int) -> None:
        self.count = 0
        self.digest = hashlib.sha256()
        """Over all values, each followed by the end of a line."""
        self.sums = array("Q", [0])
        """The sums of the checksums of the first rows."""
        self._partition = partition
        self._noise = "".join(random.Random(partition).choices("abcdefghijk 0123456789", k=4000))

    def next_value(self) -> bytes:
        number = self.count
        begin = number * 37 % (len(self._noise) - VALUE_BYTES)
        value = f"{number:012d} {self._noise[begin : begin + VALUE_BYTES - 13]}".encode()
        self.count += 1
        self.digest.update(value + b"\n")
        row = b"%d %d %b" % (self._partition, number, value)
        self.sums.append(self.sums[-1] + zlib.crc32(row))
        return value


class TieredNode:
    """A node whose topic has all but the newest records in its tier."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        self.store = f"file://{folder}/store"
        settings = {**SETTINGS, "headrace.tier.store": self.store}
        self.node = HeadraceProcess(folder / "data", settings)
        self.sent = [Sent(partition) for partition in range(PARTITIONS)]
        self._create_topic(max(MIB, size_bytes // PARTITIONS // 8))
        self._produce(size_bytes // VALUE_BYTES)
        self._wait()

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    def _create_topic(self, segment_bytes: int) -> None:
        configs = {
            "remote.storage.enable": "true",
            "segment.bytes": str(segment_bytes),
            "local.retention.bytes": "1",
        }
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config=configs)
        admin.create_topics([topic])[TOPIC].result(60)

    def _produce(self, count: int) -> None:
        failures: list[object] = []

        def note(error: object, message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 256 * 1024,
                "queue.buffering.max.messages": 100_000,
            }
        )
        for number in range(count):
            partition = number % PARTITIONS
            value = self.sent[partition].next_value()
            while True:
                try:
                    producer.produce(
                        TOPIC,
                        value,
                        partition=partition,
                        on_delivery=note,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert not failures

    def _wait(self) -> None:
        """Wait until all but the newest segment of each partition left the disk."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(len(self.local_files(partition)) > 1 for partition in range(PARTITIONS)):
            assert time.monotonic() < deadline, "segments do not leave the disk"
            time.sleep(0.1)  # polls, up to the deadline

    def local_files(self, partition: int) -> list[Path]:
        """Return what is left of a partition's log on the disk, deleted files included."""
        return list((self.folder / "data" / f"{TOPIC}-{partition}").glob("*.log*"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(6 * MIB, id="6MiB"),
        pytest.param(10**9, id="1GB", marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)]),
    ],
)
def tiered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TieredNode]:
    made = TieredNode(tmp_path_factory.mktemp("tiered"), request.param)
    try:
        yield made
        assert made.node.stop() == 0
    finally:
        made.node.kill()


def test_most_of_it_is_not_on_the_disk(tiered: TieredNode) -> None:
    for partition, sent in enumerate(tiered.sent):
        (left,) = tiered.local_files(partition)
        assert 0 < int(left.name.removesuffix(".log")) < sent.count
        assert left.stat().st_size < VALUE_BYTES * sent.count / 2


def test_kafkas_console_consumer_reads_it(tiered: TieredNode) -> None:
    for partition, sent in enumerate(tiered.sent):
        digest = hashlib.sha256()
        command = [
            *("java", *JVM_OPTIONS, "-cp", f"{jars()}/*", f"{TOOLS}.consumer.ConsoleConsumer"),
            *("--bootstrap-server", tiered.bootstrap, "--topic", TOPIC),
            *("--partition", str(partition), "--offset", "0"),
            *("--max-messages", str(sent.count), "--timeout-ms", "120000"),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            while data := process.stdout.read(MIB):
                digest.update(data)
        assert process.returncode == 0
        assert digest.digest() == sent.digest.digest()


def test_librdkafka_reads_it(tiered: TieredNode) -> None:
    consumer = LibrdkafkaConsumer(
        {
            "bootstrap.servers": tiered.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    digests = [hashlib.sha256() for _ in tiered.sent]
    left = sum(sent.count for sent in tiered.sent)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while left:
            assert time.monotonic() < deadline, f"{left} records are missing"
            for message in consumer.consume(10_000, timeout=1):
                assert message.error() is None, message.error()
                digests[message.partition()].update(message.value() + b"\n")
                left -= 1
    finally:
        consumer.close()
    assert [each.digest() for each in digests] == [sent.digest.digest() for sent in tiered.sent]


def test_our_client_reads_it(tiered: TieredNode) -> None:
    async def read() -> list[bytes]:
        digests = [hashlib.sha256() for _ in tiered.sent]
        left = sum(sent.count for sent in tiered.sent)
        async with Consumer(tiered.bootstrap) as consumer, asyncio.timeout(DEADLINE_SECONDS):
            await consumer.assign(TOPIC, Start.BEGINNING)
            async for record in consumer:
                digests[record.partition].update(bytes(record.value or b"") + b"\n")
                left -= 1
                if not left:
                    break
        return [each.digest() for each in digests]

    assert asyncio.run(read()) == [sent.digest.digest() for sent in tiered.sent]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()
    close_clusters()


@pytest.mark.parametrize("source", ["headrace", "headrace-tier"])
def test_spark_reads_it(tiered: TieredNode, spark: SparkSession, source: str) -> None:
    options = {"subscribe": TOPIC, "kafka.bootstrap.servers": tiered.bootstrap}
    if source == "headrace-tier":
        options = {"subscribe": TOPIC, "store": tiered.store}
    frame = spark.read.format(source).options(**options).load()
    rows = frame.selectExpr("partition", "offset", f"{CRC_OF_ROW} as crc").groupBy("partition")
    found = rows.agg(F.count("*"), F.max("offset"), F.sum("crc")).collect()
    assert len(found) == PARTITIONS
    for partition, count, last_offset, total in found:
        sent = tiered.sent[partition]
        assert last_offset == count - 1
        assert total == sent.sums[count]
        (left,) = tiered.local_files(partition)
        local_start = int(left.name.removesuffix(".log"))
        assert count == (local_start if source == "headrace-tier" else sent.count)
