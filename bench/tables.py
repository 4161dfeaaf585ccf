"""A JSON topic into tables, against Spark's Kafka connector with from_json into Parquet.

`python -m bench.tables --only iceberg --rounds 1 --records 1000000` measures a part. Both run on
one session in turn, from a Headrace node, in batches of the same size. The part `plain` is our own
source with from_json into Parquet; it is noted and has no bound.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

from bench.broker_loads import create_topic
from bench.broker_servers import CLIENT_HEAP, Server, java, run_headrace
from bench.measure import Figure, parts_of, report
from headrace.spark import session
from headrace.spark.tables import api
from headrace.spark.tables.administration import create_table
from tools.jvm.harness import connector_jars

RECORDS: Final = 5_000_000
PARTITIONS: Final = 2
BATCH_RECORDS: Final = 500_000
ROUNDS: Final = 3
LOAD_SECONDS_MAX: Final = 900
PARTS: Final = ("iceberg", "parquet", "plain", "compact")
BOUNDS: Final = {"iceberg": 1.5, "parquet": 1.8}
COMPACT_BOUND: Final = 0.5
SCHEMA: Final = "id long, customer string, item string, price double, paid boolean, at string"
PAYLOADS: Final = 10_000

Samples = dict[str, list[float]]


def main() -> None:
    arguments = _arguments()
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        spark = session(
            "local[2]",
            banner=False,
            config={
                "spark.jars": ",".join(map(str, connector_jars())),
                "spark.driver.memory": "2g",
            },
        )
        try:
            (folder / "node").mkdir()
            with run_headrace(folder / "node") as server:
                bench = _Bench(folder, spark, server, arguments.records)
                bench.run(arguments.only, arguments.rounds, samples)
        finally:
            spark.stop()
    report(_figures(samples))


class _Bench:
    """One topic, and what is made of it."""

    def __init__(self, folder: Path, spark: SparkSession, server: Server, records: int) -> None:
        self._folder = folder
        self._spark = spark
        self._server = server
        self._records = records
        self._runs = 0
        self._topic = self._load()

    def run(self, parts: list[str], rounds: int, samples: Samples) -> None:
        self._connector("kafka")  # compiles what Spark compiles once
        for _ in range(rounds):
            samples["connector"].append(self._connector("kafka"))
            if "plain" in parts:
                samples["plain"].append(self._connector("headrace"))
            for part in ("iceberg", "parquet"):
                if part in parts:
                    samples[part].append(self._table(part))
            if "compact" in parts:
                ours, theirs = self._compact()
                samples["compact"].append(ours)
                samples["copy"].append(theirs)

    def _load(self) -> str:
        topic = create_topic(self._server, PARTITIONS)
        payloads = self._folder / "payloads"
        rows = (
            {
                "id": number,
                "customer": f"customer-{number % 1000}",
                "item": "a cup of tea",
                "price": number * 1.25,
                "paid": number % 3 == 0,
                "at": "2024-05-06T07:08:09Z",
            }
            for number in range(PAYLOADS)
        )
        payloads.write_text("\n".join(map(json.dumps, rows)))
        command = java(
            CLIENT_HEAP,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", self._server.bootstrap, "--topic", topic),
            *("--num-records", str(self._records), "--payload-file", str(payloads)),
            *("--throughput", "-1", "--command-property", "acks=1"),
        )
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX, check=False
        )
        if done.returncode:
            sys.exit(f"the performance tool failed:\n{done.stdout}{done.stderr}")
        return topic

    def _connector(self, source: str) -> float:
        """Return the rows per second of a stream through from_json into Parquet."""
        self._runs += 1
        out = self._folder / f"out-{self._runs}"
        begin = time.perf_counter()
        query = (
            self._spark.readStream.format(source)
            .option("kafka.bootstrap.servers", self._server.bootstrap)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH_RECORDS)
            .load()
            .select(
                *("partition", "offset", "timestamp", "key"),
                from_json(col("value").cast("string"), SCHEMA).alias("v"),
            )
            .select("partition", "offset", "timestamp", "key", "v.*")
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", f"{out}-checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self._records / (time.perf_counter() - begin)

    def _table(self, to: str, batch_records: int = BATCH_RECORDS) -> float:
        """Return the rows per second of a table, its creation included."""
        self._runs += 1
        name = f"table_{self._runs}"
        begin = time.perf_counter()
        create_table(
            self._server.bootstrap,
            name,
            topic=self._topic,
            location=str(self._folder / name),
            to=to,
            batch_records=batch_records,
        )
        done = api.run_table(self._server.bootstrap, name, self._spark)
        if sum(each.rows for each in done) != self._records:
            sys.exit(f"{name} has not all of {self._records} rows")
        return self._records / (time.perf_counter() - begin)

    def _compact(self) -> tuple[float, float]:
        """Return the rows per second of a compaction, and of Spark copying the same files."""
        self._table("iceberg", self._records // 20)
        name = f"table_{self._runs}"
        files = str(self._folder / name / "headrace" / name / "data")
        begin = time.perf_counter()
        copied = self._folder / f"copy-{self._runs}"
        self._spark.read.parquet(files).write.parquet(str(copied))
        theirs = self._records / (time.perf_counter() - begin)
        begin = time.perf_counter()
        api.compact(self._server.bootstrap, name, self._spark)
        return self._records / (time.perf_counter() - begin), theirs


def _figures(samples: Samples) -> list[Figure]:
    middle = {part: statistics.median(values) for part, values in samples.items()}
    peer = middle["connector"]
    figures = [
        Figure(
            f"tables.{part}",
            middle[part] / peer,
            bound,
            False,
            f"{middle[part]:,.3g} rows/s, connector to Parquet {peer:,.3g}",
        )
        for part, bound in BOUNDS.items()
        if part in middle
    ]
    if "plain" in middle:
        detail = f"noted: our source and from_json to Parquet, {middle['plain']:,.3g} rows/s"
        figures.append(Figure("tables.plain", middle["plain"] / peer, 0, False, detail))
    if "compact" in middle:
        ratio = middle["compact"] / middle["copy"]
        detail = f"{middle['compact']:,.3g} rows/s, a copy by Spark {middle['copy']:,.3g}"
        figures.append(Figure("tables.compact", ratio, COMPACT_BOUND, False, detail))
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="JSON into tables against Spark's connector")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, default=RECORDS)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
