"""A program: the same reads and writes with Spark's Kafka connector and with ours, row for row.

Its arguments are bootstrap addresses, of brokers that `connector_topics` has filled. For every read
and write it prints a line: the address, what it did, and `same` with the number of rows or what
differs. Its own process, as a JVM takes jars only when it starts.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.spark import session
from tests.spark.connector_cases import (
    HEADERS,
    READS,
    STREAM_DEFAULTS,
    STREAMS,
    WRITES,
    WRITTEN_ROWS,
    Read,
)
from tests.spark.connector_topics import written_records
from tests.spark.queries import run
from tools.jvm.harness import connector_jars

KINDS: Final = ("kafka", "headrace")
MOVED: Final = "another source goes on from here"
Outcome = tuple[str, list[Any]]
"""A schema as text, and rows in an order that does not depend on tasks."""


def main() -> None:
    jars = ",".join(map(str, connector_jars()))
    spark = session("local[2]", banner=False, config={"spark.jars": jars})
    for bootstrap in sys.argv[1:]:
        work: dict[str, Callable[[str], Outcome]] = {
            "stream moved": partial(moved, spark, bootstrap),
            "write stream": partial(write_stream, spark, bootstrap),
        }
        for name, wanted in READS.items():
            work[f"batch {name}"] = partial(read, spark, bootstrap, wanted)
        for name, wanted in STREAMS.items():
            work[f"stream {name}"] = partial(stream, spark, bootstrap, wanted)
        for name, columns in WRITES.items():
            work[f"write {name}"] = partial(write, spark, bootstrap, name, columns)
        for name, each in work.items():
            print(json.dumps([bootstrap, name, verdict(each)]), flush=True)
    spark.stop()


def verdict(work: Callable[[str], Outcome]) -> str:
    try:
        return difference(*(work(kind) for kind in KINDS))
    except PySparkException as error:
        return f"error {str(error)[:2000]}"


def read(spark: SparkSession, bootstrap: str, wanted: Read, kind: str) -> Outcome:
    given = {"kafka.bootstrap.servers": bootstrap, **wanted.options}
    frame = spark.read.format(kind).options(**given).load().where(wanted.where)
    return frame.schema.simpleString(), in_order(frame.collect())


def stream(spark: SparkSession, bootstrap: str, wanted: Read, kind: str) -> Outcome:
    """Read in several micro-batches what is there."""
    found: list[Row] = []
    frame = streamed(spark, bootstrap, wanted.options, kind)
    with tempfile.TemporaryDirectory() as checkpoint:
        run_each(frame, lambda batch, _: found.extend(batch.collect()), checkpoint)
    return frame.schema.simpleString(), in_order(found)


def moved(spark: SparkSession, bootstrap: str, kind: str) -> Outcome:
    """Read on, from what a query of the connector left when it failed in its second batch."""
    found: list[Row] = []

    def fail_in_second(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError(MOVED)
        found.extend(batch.collect())

    with tempfile.TemporaryDirectory() as checkpoint:
        first = streamed(spark, bootstrap, HEADERS.options, "kafka")
        try:
            run_each(first, fail_in_second, checkpoint)
        except StreamingQueryException as error:
            if MOVED not in str(error):
                raise
        frame = streamed(spark, bootstrap, HEADERS.options, kind)
        run_each(frame, lambda batch, _: found.extend(batch.collect()), checkpoint)
    return frame.schema.simpleString(), in_order(found)


def write(
    spark: SparkSession, bootstrap: str, name: str, columns: tuple[str, ...], kind: str
) -> Outcome:
    """Write in one task, so that the order in each partition is known."""
    frame = spark.range(0, WRITTEN_ROWS, 1, 1).selectExpr(
        *(column.replace("{kind}", kind) for column in columns)
    )
    writer = frame.write.format(kind).mode("append").option("kafka.bootstrap.servers", bootstrap)
    if "topic" not in frame.columns:
        writer = writer.option("topic", f"{kind}-{name}")
    writer.save()
    topics = ("even", "odd") if "topic" in frame.columns else (name,)
    return "", [
        record for topic in topics for record in written_records(bootstrap, f"{kind}-{topic}")
    ]


def write_stream(spark: SparkSession, bootstrap: str, kind: str) -> Outcome:
    """Copy a topic in several micro-batches, a partition into its own."""
    topic = f"{kind}-stream"
    frame = streamed(spark, bootstrap, HEADERS.options, "kafka")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = (
            frame.select("key", "value", "headers", "partition")
            .writeStream.format(kind)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        run(writer.start)
    return "", written_records(bootstrap, topic)


def streamed(
    spark: SparkSession, bootstrap: str, options: Mapping[str, str], kind: str
) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, **STREAM_DEFAULTS, **options}
    return spark.readStream.format(kind).options(**given).load()


def run_each(
    frame: DataFrame, each: Callable[[DataFrame, int], None], checkpoint: str | Path
) -> None:
    """Hand every micro-batch of what is there now to `each`."""
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    run(writer.trigger(availableNow=True).start)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def difference(theirs: Outcome, ours: Outcome) -> str:
    if theirs == ours:
        return f"same {len(ours[1])}"
    if theirs[0] != ours[0]:
        return f"schema {theirs[0]} {ours[0]}"
    pairs = zip(theirs[1], ours[1], strict=False)
    first = next((pair for pair in pairs if pair[0] != pair[1]), None)
    return f"rows {len(theirs[1])} {len(ours[1])}, first {first}"


if __name__ == "__main__":
    main()
