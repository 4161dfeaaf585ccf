"""A program: the same reads with Spark's Kafka connector and with ours, row for row.

Its arguments are bootstrap addresses. For every read it prints a line: the address, the read, and
`same` with the number of rows or what differs. Its own process, as a JVM takes jars only when it
starts.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from headrace.spark import session
from tests.spark.queries import run
from tools.jvm.harness import connector_jars

KINDS = ("kafka", "headrace")
Read = tuple[StructType, list[Row]]
READS: dict[str, dict[str, str]] = {
    "all": {"subscribe": "plain"},
    "headers": {"subscribe": "plain", "includeHeaders": "true"},
    "codecs": {"subscribe": "codecs"},
    "append time": {"subscribe": "appended"},
    "several topics": {"subscribe": "plain,codecs", "minPartitions": "7"},
    "pattern": {"subscribePattern": "(plain|appended)"},
    "assigned": {"assign": '{"plain": [1]}'},
    "offsets": {
        "subscribe": "plain",
        "startingOffsets": '{"plain": {"0": 7, "1": -2}}',
        "endingOffsets": '{"plain": {"0": -1, "1": 30}}',
    },
    "times": {
        "subscribe": "plain",
        "startingOffsetsByTimestamp": '{"plain": {"0": 1700000000010, "1": 1700000000020}}',
        "endingTimestamp": "1700000000060",
    },
    "committed": {"subscribe": "transactional", "kafka.isolation.level": "read_committed"},
    "uncommitted": {"subscribe": "transactional", "kafka.isolation.level": "read_uncommitted"},
    "small parts": {"subscribe": "plain", "maxRecordsPerPartition": "11"},
}
STREAMS = ("headers", "codecs", "several topics", "committed", "uncommitted")


def main() -> None:
    jars = ",".join(map(str, connector_jars()))
    spark = session("local[2]", banner=False, config={"spark.jars": jars})
    for bootstrap in sys.argv[1:]:
        for name, options in READS.items():
            given = {"kafka.bootstrap.servers": bootstrap, **options}
            compare(bootstrap, f"batch {name}", partial(read, spark, given))
        for name in STREAMS:
            given = {"kafka.bootstrap.servers": bootstrap, **READS[name]}
            compare(bootstrap, f"stream {name}", partial(stream, spark, given))
    spark.stop()


def compare(bootstrap: str, name: str, work: Callable[[str], Read]) -> None:
    try:
        verdict = difference(*(work(kind) for kind in KINDS))
    except PySparkException as error:
        verdict = f"error {str(error)[:2000]}"
    print(json.dumps([bootstrap, name, verdict]), flush=True)


def read(spark: SparkSession, given: dict[str, str], kind: str) -> Read:
    frame = spark.read.format(kind).options(**given).load()
    return frame.schema, in_order(frame.collect())


def stream(spark: SparkSession, given: dict[str, str], kind: str) -> Read:
    """Read in micro-batches of 40 offsets."""
    found: list[Row] = []
    frame = (
        spark.readStream.format(kind)
        .options(**given, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = (
            frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        run(writer.start)
    return frame.schema, in_order(found)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def difference(theirs: Read, ours: Read) -> str:
    if theirs == ours:
        return f"same {len(ours[1])}"
    if theirs[0] != ours[0]:
        return f"schema {theirs[0].simpleString()} {ours[0].simpleString()}"
    pairs = zip(theirs[1], ours[1], strict=False)
    first = next((pair for pair in pairs if pair[0] != pair[1]), None)
    return f"rows {len(theirs[1])} {len(ours[1])}, first {first}"


if __name__ == "__main__":
    main()
