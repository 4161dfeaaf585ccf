"""A program: what Headrace's formats do in a session of Spark Connect.

    python -m tests.spark.connect_job sc://HOST:PORT BOOTSTRAP FOLDER

Its own process, as one that has used Spark in the other way cannot connect. What was collected is
printed as one line of JSON; what was written is in the topics.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark import register, reject, session
from headrace.spark.session import PUSHDOWN

TOPIC = "in"
WRITTEN, STREAMED, WORKED = "written", "streamed", "worked"
GROUP, REJECTED_GROUP = "workers", "pickers"
RECORDS = 100
REJECTED = 3
QUERY_SECONDS_MAX = 240
STARTS_MAX = 4
NOT_STARTED = ("Python worker failed to connect back", "Python worker to connect back")


class Job:
    """The steps, in one session."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder

    def read(self, **more: str) -> DataFrame:
        return self._spark.read.format("headrace").options(**self._of(more)).load()

    def stream(self, kind: str, **more: str) -> DataFrame:
        return self._spark.readStream.format(kind).options(**self._of(more)).load()

    def write(self) -> None:
        writer = self.read().select("key", "value").write.format("headrace").mode("append")
        writer.options(**self._to(WRITTEN)).save()

    def copy_stream(self) -> None:
        frame = self.stream("headrace", startingOffsets="earliest", maxOffsetsPerTrigger="60")
        writer = frame.select("key", "value").writeStream.format("headrace")
        self._run(writer.options(**self._to(STREAMED)), "streamed")

    def work_off(self) -> None:
        """Read a queue, and write each batch with code of the user's own."""
        given = self._to(WORKED)

        def work(batch: DataFrame, _: int) -> None:
            batch.select("value").write.format("headrace").mode("append").options(**given).save()

        frame = self.stream("headrace-share", **{"kafka.group.id": GROUP})
        self._run(frame.writeStream.foreachBatch(work), "worked")

    def refuse_some(self) -> None:
        bootstrap = self._bootstrap

        def refuse(batch: DataFrame, _: int) -> None:
            reject(batch.where(f"offset < {REJECTED}"), bootstrap=bootstrap, group=REJECTED_GROUP)

        frame = self.stream("headrace-share", **{"kafka.group.id": REJECTED_GROUP})
        self._run(frame.writeStream.foreachBatch(refuse), "refused")

    def count_in_memory(self) -> int:
        """Stream into a table of the server's memory."""
        frame = self.stream("headrace", startingOffsets="earliest")
        self._run(frame.writeStream.format("memory").queryName("seen"), "seen")
        return self._spark.table("seen").count()

    def _of(self, more: dict[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "subscribe": TOPIC, **more}

    def _to(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "topic": topic}

    def _run(self, writer: Any, name: str) -> None:
        """Run a query to its end; see `tests.spark.queries.run` for why it may start again."""
        writer = writer.option("checkpointLocation", str(self._folder / name))
        start: Callable[[], StreamingQuery] = writer.trigger(availableNow=True).start
        for attempt in range(1, STARTS_MAX + 1):
            try:
                query = start()
                assert query.awaitTermination(QUERY_SECONDS_MAX), f"{name} does not end"
            except PySparkException as error:
                is_machine = any(text in str(error) for text in NOT_STARTED)
                if not is_machine or attempt == STARTS_MAX:
                    raise
            else:
                return


def main() -> None:
    remote, bootstrap, folder = sys.argv[1:]
    spark = session(remote, banner=False)
    assert register(spark) is spark  # a second time, as users do
    job = Job(spark, bootstrap, Path(folder))
    filtered = job.read().where("partition = 1 and offset < 5")
    report: dict[str, Any] = {
        "client": type(spark).__module__,
        "pushdown": spark.conf.get(PUSHDOWN),
        "values": sorted(int(row.value) for row in job.read().collect()),
        "columns": job.read(columns="offset,value").columns,
        "filtered": sorted(row.offset for row in filtered.collect()),
        "mistyped": message_of(lambda: job.read(startingOfsets="earliest").count()),
        "missing": message_of(lambda: job.read(subscribe="nowhere").count()),
        "in memory": job.count_in_memory(),
    }
    job.write()
    job.copy_stream()
    job.work_off()
    job.refuse_some()
    print(json.dumps(report))
    spark.stop()


def message_of(work: Callable[[], object]) -> str:
    try:
        work()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
