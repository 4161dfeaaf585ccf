"""Everything that Headrace's formats do, on a cluster of Spark's; run as a program.

    python -m tests.spark.cluster_job MASTER BOOTSTRAP FOLDER

Reads the topic "in" and the queue on it, in batches and in streams, and writes to topics. Each row
carries the process of the executor that it went through. What was collected is in
FOLDER/report.json; what was written is in the topics.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark import register, session
from tests.spark.queries import run
from tests.spark.spark_processes import end

TOPIC = "in"
WRITTEN = "written"
STREAMED = "streamed"
SPOILED = "spoiled"
OWN_SESSION = "own-session"
GROUP = "progress"
QUEUE_GROUP = "workers"
RECORDS = 400
A_BATCH = 200
TASKS = 4
SPOILING = 350
"""The row that a job fails on: in the second micro-batch."""
RUN_SECONDS_MAX = 300
CONFIG = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Tasks begin when both executors are there, so that both have some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.task.maxFailures": "1",
    "spark.ui.enabled": "false",
}


Signature = Callable[[bytes], str]


def signed(value: bytes) -> str:
    """Add to a value which executor this is: the parent of the parent of a Python worker."""
    state = Path(f"/proc/{os.getppid()}/stat").read_text()
    executor = state.rpartition(")")[2].split()[1]
    return f"{value.decode()} {executor}"


def spoiled(value: bytes) -> str:
    """As `signed`, with a task that fails when others may have written."""
    if int(value) == SPOILING:
        raise ValueError("spoiled")
    return signed(value)


class Job:
    """The steps, on one session."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._source = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "minPartitions": str(TASKS),
        }

    def read(self) -> list[str]:
        return _values(self._rows())

    def write(self, topic: str, through: Signature = signed) -> None:
        writer = self._rows(through).write.format("headrace").mode("append")
        writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic).save()

    def stream(self, topic: str, through: Signature = signed) -> None:
        """Run a stream from topic to topic to its end; a later call goes on where it stopped."""

        def start() -> StreamingQuery:
            return (
                self._spark.readStream.format("headrace")
                .options(**self._source)
                .option("maxOffsetsPerTrigger", A_BATCH)
                .option("kafka.group.id", f"{GROUP}-{topic}")
                .load()
                .select(_column(through))
                .writeStream.format("headrace")
                .option("kafka.bootstrap.servers", self._bootstrap)
                .option("topic", topic)
                .option("checkpointLocation", str(self._folder / topic))
                .trigger(availableNow=True)
                .start()
            )

        run(start)

    def work_off(self) -> list[str]:
        """Take everything from the queue."""
        done: dict[int, list[str]] = {}

        def take(batch: DataFrame, number: int) -> None:
            done[number] = _values(batch.select(_column(signed)))

        def start() -> StreamingQuery:
            return (
                self._spark.readStream.format("headrace-share")
                .option("kafka.bootstrap.servers", self._bootstrap)
                .option("subscribe", TOPIC)
                .option("kafka.group.id", QUEUE_GROUP)
                .option("maxRecordsPerTrigger", A_BATCH)
                .option("minPartitions", TASKS)
                .load()
                .writeStream.foreachBatch(take)
                .option("checkpointLocation", str(self._folder / "queue"))
                .trigger(availableNow=True)
                .start()
            )

        run(start)
        return [value for values in done.values() for value in values]

    def _rows(self, through: Signature = signed) -> DataFrame:
        rows = self._spark.read.format("headrace").options(**self._source).load()
        return rows.select(_column(through))


def _column(through: Signature) -> Column:
    return udf(through, "string", useArrow=False)("value").alias("value")


def _values(rows: DataFrame) -> list[str]:
    return [row.value for row in rows.collect()]


def main(master: str, bootstrap: str, folder: Path) -> None:
    spark = session(master, config=CONFIG, banner=False)
    job = Job(spark, bootstrap, folder)
    report = {"read": job.read()}
    job.write(WRITTEN)
    job.stream(STREAMED)
    report["queue"] = job.work_off()
    failures = []
    for step in (job.write, job.stream):
        with contextlib.suppress(PySparkException):
            step(SPOILED, spoiled)
            failures.append(step.__name__)
    assert not failures, f"{failures} did not fail"
    end(spark)
    builder = SparkSession.builder.master(master).appName("own")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    own = register(builder.getOrCreate())
    job = Job(own, bootstrap, folder)
    report["own session"] = job.read()
    job.write(OWN_SESSION)
    end(own)
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
