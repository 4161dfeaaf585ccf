"""A streaming job that outlives what is killed around it; run as a program.

    python -m tests.spark.lasting_job KIND MASTER BOOTSTRAP FOLDER

"topics" carries rows from topic to topic, through a shuffle and the atomic sink; "queue" works off
a queue into files that have the number of the batch as their name. A query that fails is started
again from its checkpoint, as an operator does; FOLDER/failures has what it failed with, one JSON
string a line. When there is a file FOLDER/enough, what is left is done and the job ends.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.spark import session
from tests.spark.spark_processes import end

TOPICS = "topics"
QUEUE = "queue"
TOPIC = "in"
OUT = "out"
GROUP = "workers"
A_BATCH = 100
TASKS = 3
STARTS_MAX = 40
RUN_SECONDS_MAX = 900
POLL_SECONDS = 1
CONFIG = {
    "spark.executor.memory": "512m",
    # An executor that is killed counts as a failure of the tasks that it had.
    "spark.task.maxFailures": "20",
    "spark.stage.maxConsecutiveAttempts": "20",
    "spark.sql.shuffle.partitions": str(TASKS),
}


class Job:
    """One query, in as many runs as it takes."""

    def __init__(self, spark: SparkSession, kind: str, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._kind = kind
        self._bootstrap = bootstrap
        self._folder = folder
        self._starts = 0
        self._is_over = False

    def run(self) -> None:
        """Work until there is enough, then to the end."""
        enough = self._folder / "enough"
        while not enough.exists():
            with self._noting():
                query = self._start(is_last=False)
                while not (query.awaitTermination(POLL_SECONDS) or enough.exists()):
                    pass  # the test has the deadline
                query.stop()
        while not self._is_over:
            with self._noting():
                query = self._start(is_last=True)
                assert query.awaitTermination(RUN_SECONDS_MAX), "the query does not end"
                self._is_over = True

    def _start(self, *, is_last: bool) -> StreamingQuery:
        self._starts += 1
        assert self._starts <= STARTS_MAX, "the query does not get through"
        writer = self._topics() if self._kind == TOPICS else self._queue()
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if is_last else writer).start()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Write down what a run fails with, at its start or later; the next one may do better."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            with (self._folder / "failures").open("a") as file:
                file.write(json.dumps(str(error)) + "\n")

    def _topics(self) -> DataStreamWriter:
        rows = (
            self._spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", A_BATCH)
            .load()
        )
        return (
            rows.select("value")
            .repartition(TASKS)
            .writeStream.format("headrace")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", OUT)
            .option("kafka.batch.size", "200")
        )

    def _queue(self) -> DataStreamWriter:
        rows = (
            self._spark.readStream.format("headrace-share")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", TOPIC)
            .option("kafka.group.id", GROUP)
            .option("maxRecordsPerTrigger", A_BATCH)
            .option("minPartitions", TASKS)
            .load()
        )
        return rows.writeStream.foreachBatch(self._write)

    def _write(self, rows: DataFrame, number: int) -> None:
        values = [row.value.decode() for row in rows.collect()]
        part = self._folder / "out" / f"{number}.part"
        part.write_text(json.dumps(values))
        part.rename(part.with_suffix(".json"))


def main(kind: str, master: str, bootstrap: str, folder: Path) -> None:
    spark = session(master, config=CONFIG, banner=False)
    try:
        Job(spark, kind, bootstrap, folder).run()
    finally:
        end(spark)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
