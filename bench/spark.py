"""The Spark source against Spark's own Kafka connector: the same topic and session, in turn.

`python -m bench.spark --only batch --rounds 1` measures a part. Each round reads the topic once
with each source. The topic is on a Headrace node, for both; the part `cpu` also starts Apache
Kafka, as there the question is what a broker spends on its readers. The part `share` reads a queue
and, in micro-batches of the same size, the topic beneath it; that ratio is noted and has no bound.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.broker_loads import create_topic
from bench.broker_servers import CLIENT_HEAP, Server, java, run_headrace, run_kafka
from bench.measure import Figure, parts_of, report
from headrace.client import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.spark import session
from tools.jvm.harness import connector_jars

RECORDS: Final = 5_000_000
RECORD_BYTES: Final = 100
PARTITIONS: Final = 2
MICRO_BATCH_RECORDS: Final = 500_000
ROUNDS: Final = 3
LOAD_SECONDS_MAX: Final = 600
PARTS: Final = ("batch", "stream", "write", "cpu", "share")
SHARE_RECORDS: Final = 100_000
SHARE_LOCKS: Final = 4000
"""How many records of a partition a queue leases at once: what brokers allow unless told more."""
OURS: Final = "headrace"
CONNECTOR: Final = "kafka"
QUEUE: Final = "headrace-share"

Samples = dict[tuple[str, str], list[float]]
"""What was measured: of which part, with which source."""


class Bound(NamedTuple):
    """What a ratio of our figure to the connector's has to be."""

    bound: float
    is_upper_bound: bool
    unit: str


BOUNDS: Final[dict[str, Bound]] = {
    "batch": Bound(2.2, False, "rows/s"),
    "stream": Bound(1.2, False, "rows/s"),
    "write": Bound(1.0, False, "rows/s"),
    "cpu": Bound(0.6, True, "s of the broker's CPU"),
}


def main() -> None:
    arguments = _arguments()
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        bench = _Bench(Path(folder), arguments.records, samples)
        try:
            bench.run(arguments.only, arguments.rounds)
        finally:
            bench.spark.stop()
    report(_figures(samples))


class _Bench:
    """One session that has both sources, and what it measures."""

    def __init__(self, folder: Path, records: int, samples: Samples) -> None:
        self._folder = folder
        self._records = records
        self._samples = samples
        self.spark: SparkSession = session(
            "local[2]",
            banner=False,
            config={
                "spark.jars": ",".join(map(str, connector_jars())),
                "spark.driver.memory": "2g",
            },
        )

    def run(self, parts: list[str], rounds: int) -> None:
        (self._folder / "headrace").mkdir()
        with run_headrace(self._folder / "headrace") as server:
            topic = self._load(server, self._records)
            for source in (OURS, CONNECTOR):
                self._read(server, topic, source)  # compiles what Spark compiles once
            for _ in range(rounds):
                for source in (OURS, CONNECTOR):
                    if "batch" in parts or "cpu" in parts:
                        self._measure_batch(server, topic, source)
                    if "stream" in parts:
                        rate = self._rate(partial(self._stream, server, topic, source))
                        self._samples["stream", source].append(rate)
                    if "write" in parts:
                        out = create_topic(server, PARTITIONS)
                        rate = self._rate(partial(self._write, server, out, source))
                        self._samples["write", source].append(rate)
            if "share" in parts:
                self._measure_share(server, rounds)
        if "cpu" in parts:
            self._measure_kafka(rounds)

    def _measure_batch(self, server: Server, topic: str, source: str) -> None:
        before = server.cpu_seconds()
        rate = self._rate(partial(self._read, server, topic, source))
        self._samples["batch", source].append(rate)
        if source == OURS:
            self._samples["cpu", OURS].append(server.cpu_seconds() - before)

    def _measure_kafka(self, rounds: int) -> None:
        (self._folder / "kafka").mkdir()
        with run_kafka(self._folder / "kafka") as server:
            topic = self._load(server, self._records)
            self._read(server, topic, CONNECTOR)
            for _ in range(rounds):
                before = server.cpu_seconds()
                self._read(server, topic, CONNECTOR)
                self._samples["cpu", CONNECTOR].append(server.cpu_seconds() - before)

    def _measure_share(self, server: Server, rounds: int) -> None:
        topic = self._load(server, SHARE_RECORDS)
        for number in range(rounds):
            group = f"bench-{number}"
            asyncio.run(_create_group(server, group))
            options = {"kafka.group.id": group}
            self._samples["share", QUEUE].append(self._share(server, topic, QUEUE, options))
            options = {
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(PARTITIONS * SHARE_LOCKS),
            }
            self._samples["share", OURS].append(self._share(server, topic, OURS, options))

    def _share(self, server: Server, topic: str, source: str, options: dict[str, str]) -> float:
        """Return the records per second of a stream's batches, without its start."""
        query = self._run_stream(source, {**_options(server, topic), **options}, SHARE_RECORDS)
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        milliseconds = sum(each["durationMs"]["triggerExecution"] for each in batches)
        return float(SHARE_RECORDS / milliseconds * 1000)

    def _load(self, server: Server, records: int) -> str:
        """Fill a topic with Kafka's producer performance tool."""
        topic = create_topic(server, PARTITIONS)
        command = java(
            CLIENT_HEAP,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", server.bootstrap, "--topic", topic),
            *("--num-records", str(records), "--record-size", str(RECORD_BYTES)),
            *("--throughput", "-1", "--command-property", "acks=1"),
        )
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX, check=False
        )
        if done.returncode:
            sys.exit(f"the performance tool failed:\n{done.stdout}{done.stderr}")
        return topic

    def _rate(self, work: Callable[[], None]) -> float:
        begin = time.perf_counter()
        work()
        return self._records / (time.perf_counter() - begin)

    def _read(self, server: Server, topic: str, source: str) -> None:
        reader = self.spark.read.format(source).options(**_options(server, topic))
        _drain(reader.load())

    def _write(self, server: Server, topic: str, source: str) -> None:
        """Write as many rows as are read: ours in transactions, the connector's without."""
        rows = self.spark.range(0, self._records, 1, PARTITIONS).selectExpr(
            f"lpad(cast(id as string), {RECORD_BYTES}, 'x') as value"
        )
        writer = rows.write.format(source).mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", server.bootstrap).save()

    def _stream(self, server: Server, topic: str, source: str) -> None:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(MICRO_BATCH_RECORDS)}
        self._run_stream(source, {**_options(server, topic), **options}, self._records)

    def _run_stream(self, source: str, options: dict[str, str], records: int) -> StreamingQuery:
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                self.spark.readStream.format(source)
                .options(**options)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            done = sum(each["numInputRows"] for each in query.recentProgress)
            if done != records:
                sys.exit(f"{source} read {done} of {records} records")
            return query


async def _create_group(server: Server, group: str) -> None:
    configs = {
        "share.auto.offset.reset": "earliest",
        "share.partition.max.record.locks": str(SHARE_LOCKS),
    }
    async with Admin(server.bootstrap) as admin:
        await admin.alter_configs(Resource(ResourceType.GROUP, group), set=configs)


def _options(server: Server, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _figures(samples: Samples) -> list[Figure]:
    figures = []
    for part, bound in BOUNDS.items():
        ours, theirs = samples.get((part, OURS)), samples.get((part, CONNECTOR))
        if not ours or not theirs:
            continue
        mine, peers = statistics.median(ours), statistics.median(theirs)
        detail = f"{mine:,.3g} {bound.unit}, connector {peers:,.3g}"
        figures.append(
            Figure(f"spark.{part}", mine / peers, bound.bound, bound.is_upper_bound, detail)
        )
    queue, plain = samples.get(("share", QUEUE)), samples.get(("share", OURS))
    if queue and plain:
        mine, peers = statistics.median(queue), statistics.median(plain)
        detail = f"noted: {mine:,.3g} records/s, the plain source {peers:,.3g}"
        figures.append(Figure("spark.share", mine / peers, 0, False, detail))
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The Spark source against Spark's connector")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, default=RECORDS)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
