"""A node with a tier against the same node without its work: what clients notice of it.

Does copying slow producers down? Does a start take longer with ten thousand segments in the tier?
Does Spark read the store as fast as it reads the brokers, and do these rest meanwhile?
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker_servers import Server, run_headrace
from bench.measure import Figure, parts_of, report
from headrace.client import Cluster
from headrace.client import Producer as OurProducer
from headrace.ids import REMOTE_METADATA_TOPIC, BrokerId, PartitionIndex, TopicName
from headrace.remote.events import encode_event
from headrace.remote.placement import metadata_partition
from headrace.remote.segments import (
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from headrace.spark import session

PARTS: Final = ("produce", "restart", "spark")
TOPIC: Final = TopicName("bench")
MIB: Final = 1024 * 1024
WAIT_SECONDS_MAX: Final = 300
PRODUCED_RECORDS: Final = 1500
PRODUCED_BYTES: Final = 16 * 1024
PRODUCED_SEGMENT_BYTES: Final = MIB
REMOTE_SEGMENTS: Final = 10_000
SPARK_RECORDS: Final = 400_000
SPARK_RECORD_BYTES: Final = 500
SPARK_SEGMENT_BYTES: Final = 16 * MIB
PARTITIONS: Final = 2
SETTINGS: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "headrace.tier.snapshot.interval.ms": "1000",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measures = {"produce": produce, "restart": restart, "spark": read_with_spark}
    report([measures[part](arguments.rounds) for part in arguments.only])


@contextmanager
def tiered_node(folder: Path) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    with run_headrace(folder, settings={**SETTINGS, "headrace.tier.store": store_of(folder)}) as it:
        yield it


def store_of(folder: Path) -> str:
    return f"file://{folder}/store"


def create_topic(
    server: Server, name: str, configs: Mapping[str, str], partitions: int = 1
) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    topic = NewTopic(name, partitions, 1, config=dict(configs))
    admin.create_topics([topic])[name].result(WAIT_SECONDS_MAX)


# The figures


def produce(rounds: int) -> Figure:
    """Produce one by one while segments are copied and deleted; the peer's topic is not tiered."""
    samples: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name) / "node"
        with tiered_node(folder) as server:
            for number in range(rounds + 1):
                for is_tiered in (True, False):
                    topic = f"{TOPIC}-{number}-{is_tiered}"
                    configs = {"segment.bytes": str(PRODUCED_SEGMENT_BYTES)}
                    if is_tiered:
                        configs |= {"remote.storage.enable": "true", "local.retention.bytes": "1"}
                    create_topic(server, topic, configs)
                    p99 = p99_of(server, topic)
                    if number:
                        samples[is_tiered].append(p99)
        copied = len(list((folder / "store").rglob("*.log")))
    ours, peer = statistics.median(samples[True]), statistics.median(samples[False])
    detail = f"p99 {ours * 1e6:.0f} us, not copying {peer * 1e6:.0f} us; {copied} segments copied"
    return Figure("tier.produce_p99_while_copying", ours / peer, 1.2, True, detail)


def p99_of(server: Server, topic: str) -> float:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "log_level": 3})
    value, taken = os.urandom(PRODUCED_BYTES), []
    for _ in range(PRODUCED_RECORDS):
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        if producer.flush(WAIT_SECONDS_MAX):
            raise SystemExit("a record was not acknowledged")
        taken.append(time.perf_counter() - begin)
    return sorted(taken)[len(taken) * 99 // 100]


def restart(rounds: int) -> Figure:
    """Start a node that knows ten thousand segments; the peer's tier is empty."""
    samples: dict[str, list[float]] = {"full": [], "empty": []}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        for kind in samples:
            with tiered_node(Path(name) / kind) as server:
                create_topic(server, TOPIC, {"remote.storage.enable": "true"})
                asyncio.run(fill(server, REMOTE_SEGMENTS if kind == "full" else 0))
                time.sleep(3)  # a snapshot is written every second
        snapshot = Path(name) / "full" / "data" / "remote-log-metadata"
        size_bytes = sum(each.stat().st_size for each in snapshot.glob("*"))
        for number in range(rounds + 1):
            for kind, sample in samples.items():
                with tiered_node(Path(name) / kind) as server:
                    if number:
                        sample.append(server.start_seconds)
    ours, peer = (statistics.median(sample) for sample in samples.values())
    detail = (
        f"{ours * 1000:.0f} ms, empty {peer * 1000:.0f} ms; "
        f"{REMOTE_SEGMENTS} segments, snapshots of {size_bytes // 1024} KiB"
    )
    return Figure("tier.restart_with_10000_segments", ours / peer, 1.1, True, detail)


async def fill(server: Server, segment_count: int) -> None:
    """Write records, and events that say that each of the first is a segment of its own."""
    async with Cluster(server.bootstrap) as cluster, OurProducer(cluster) as producer:
        for number in range(REMOTE_SEGMENTS + 1):
            await producer.send(TOPIC, b"%d" % number, partition=0)
        await producer.flush()
        topic_id = (await cluster.topic(TOPIC)).topic_id
        partition = TopicIdPartition(topic_id, TOPIC, PartitionIndex(0))
        count = len((await cluster.topic(REMOTE_METADATA_TOPIC)).partitions)
        place, now_ms = metadata_partition(partition.key, count), int(time.time() * 1000)
        for offset in range(segment_count):
            segment = RemoteSegment(
                partition=partition,
                id=SegmentId(os.urandom(16)),
                start_offset=offset,
                end_offset=offset,
                max_timestamp_ms=now_ms,
                broker_id=BrokerId(1),
                event_timestamp_ms=now_ms,
                size_bytes=100,
                epochs=(SegmentEpoch(0, offset),),
            )
            finished = SegmentUpdate(
                partition, segment.id, now_ms, SegmentState.COPY_FINISHED, BrokerId(1), b"x" * 60
            )
            for event in (segment, finished):
                await producer.send(REMOTE_METADATA_TOPIC, encode_event(event), partition=place)
        await producer.flush()


def read_with_spark(rounds: int) -> Figure:
    """Read the store with Spark; the peer reads the same topic from the broker."""
    samples: dict[str, list[float]] = {"headrace-tier": [], "headrace": []}
    cpu: dict[str, list[float]] = {source: [] for source in samples}
    spark = session("local[2]", banner=False)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name) / "node"
        with tiered_node(folder) as server:
            load(server, folder)
            options = {
                "headrace-tier": {"store": store_of(folder)},
                "headrace": {"kafka.bootstrap.servers": server.bootstrap},
            }
            for number in range(rounds + 1):
                for source, sample in samples.items():
                    frame = spark.read.format(source).option("subscribe", TOPIC)
                    before, begin = server.cpu_seconds(), time.perf_counter()
                    frame.options(**options[source]).load().write.format("noop").mode(
                        "overwrite"
                    ).save()
                    seconds = time.perf_counter() - begin
                    spent = server.cpu_seconds() - before
                    if number:
                        sample.append(seconds)
                        cpu[source].append(spent)
            counts = {
                source: spark.read.format(source)
                .option("subscribe", TOPIC)
                .options(**options[source])
                .load()
                .count()
                for source in samples
            }
        spark.stop()
    rates = {source: counts[source] / statistics.median(each) for source, each in samples.items()}
    ours, peer = rates.values()
    detail = (
        f"{ours:,.0f} rows/s, headrace {peer:,.0f}; the broker's CPU "
        f"{statistics.median(cpu['headrace-tier']):.2f} s and "
        f"{statistics.median(cpu['headrace']):.2f} s"
    )
    return Figure("tier.spark_vs_brokers", ours / peer, 0.9, False, detail)


def load(server: Server, folder: Path) -> None:
    """Fill a topic and wait until all but its newest segments are in the tier alone."""
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SPARK_SEGMENT_BYTES),
        "local.retention.bytes": "1",
    }
    create_topic(server, TOPIC, configs, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 5, "batch.size": 256 * 1024}
    )
    value = os.urandom(SPARK_RECORD_BYTES)
    for number in range(SPARK_RECORDS):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(WAIT_SECONDS_MAX):
        raise SystemExit("records were not acknowledged")
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while any(
        len(list((folder / "data" / f"{TOPIC}-{index}").glob("*.log"))) > 1
        for index in range(PARTITIONS)
    ):
        if time.monotonic() > deadline:
            raise SystemExit("segments do not leave the disk")
        time.sleep(0.1)


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
