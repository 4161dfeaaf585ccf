"""The Spark source against Spark's own Kafka connector: the same topic and session, in turn.

`python -m bench.spark --only batch --rounds 1` measures a part. Each round reads the topic once
with each source. The topic is on a Headrace node, for both; the part `cpu` also starts Apache
Kafka, as there the question is what a broker spends on its readers.
"""

import argparse
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

from bench.broker_loads import create_topic
from bench.broker_servers import CLIENT_HEAP, Server, java, run_headrace, run_kafka
from bench.measure import Figure, report
from headrace.spark import session
from tools.jvm.harness import connector_jars

RECORDS: Final = 5_000_000
RECORD_BYTES: Final = 100
PARTITIONS: Final = 2
MICRO_BATCH_RECORDS: Final = 500_000
ROUNDS: Final = 3
LOAD_SECONDS_MAX: Final = 600
PARTS: Final = ("batch", "stream", "write", "cpu")
OURS: Final = "headrace"
CONNECTOR: Final = "kafka"

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
            topic = self._load(server)
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
            topic = self._load(server)
            self._read(server, topic, CONNECTOR)
            for _ in range(rounds):
                before = server.cpu_seconds()
                self._read(server, topic, CONNECTOR)
                self._samples["cpu", CONNECTOR].append(server.cpu_seconds() - before)

    def _load(self, server: Server) -> str:
        """Fill a topic with Kafka's producer performance tool."""
        topic = create_topic(server, PARTITIONS)
        command = java(
            CLIENT_HEAP,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", server.bootstrap, "--topic", topic),
            *("--num-records", str(self._records), "--record-size", str(RECORD_BYTES)),
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
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                self.spark.readStream.format(source)
                .options(**_options(server, topic), startingOffsets="earliest")
                .option("maxOffsetsPerTrigger", MICRO_BATCH_RECORDS)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            done = sum(each["numInputRows"] for each in query.recentProgress)
            if done != self._records:
                sys.exit(f"{source} read {done} of {self._records} records")


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
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The Spark source against Spark's connector")
    parser.add_argument("--only", type=_parts, default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, default=RECORDS)
    return parser.parse_args()


def _parts(words: str) -> list[str]:
    parts = words.split(",")
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; {', '.join(PARTS)} are")
    return parts


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
