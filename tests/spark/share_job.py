"""A streaming job from a queue to files that is killed where it is told to be; run as a program.

    python -m tests.spark.share_job BOOTSTRAP FOLDER BATCH STEP

Every micro-batch becomes a file of FOLDER/out with its number as the name, so that a replay writes
over what was there. In the batch with the number BATCH, at STEP, the driver is killed: its JVM and
its Python, by SIGKILL, and the process of the reader.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from headrace.spark import session
from headrace.spark.share.journal import ShareOffset
from headrace.spark.share.options import share_options
from headrace.spark.share.source import ShareDataSource
from headrace.spark.share.streaming import ShareStreamReader
from tests.spark.fated_jobs import NEVER, RUN_SECONDS_MAX

STEPS = (
    "before the batch is journaled",
    "after the batch is journaled",
    "while a task reads",
    "before the sink wrote",
    "after the sink wrote, before Spark's commit",
    "after Spark's commit, before the acceptance",
    "after the acceptance",
)
TOPIC = "in"
GROUP = "workers"
A_BATCH = 20


class Fate:
    """Where the driver dies, and which processes it is."""

    batch: ClassVar[int] = -1
    step: ClassVar[str] = NEVER
    pids: ClassVar[list[int]] = []

    @classmethod
    def meet(cls, step: str, batch: int) -> None:
        if (step, batch) == (cls.step, cls.batch):
            for pid in cls.pids:
                os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


class FatedReader(ShareStreamReader):
    """The source, with a driver that dies."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # The offset that a batch begins at has its number, and the one that it ends at the next.
        batch = start["batch"]
        Fate.meet("after Spark's commit, before the acceptance", batch - 1)
        member = self._joined()
        member.run(member.progress._settle(ShareOffset.from_json(start)))
        Fate.meet("after the acceptance", batch - 1)
        end = super().latestOffset(start, limit)
        Fate.meet("before the batch is journaled", batch)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        Fate.meet("after the batch is journaled", start["batch"])
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        for rows in super().read(partition):
            yield rows
            Fate.meet("while a task reads", batch)


class FatedSource(ShareDataSource):
    """The format with that reader."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return FatedReader(share_options(self._given()), schema)


def main(bootstrap: str, folder: Path, batch: int, step: str) -> None:
    spark = session("local[2]", banner=False)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    Fate.batch, Fate.step = batch, step
    Fate.pids = [jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
    spark.dataSource.register(FatedSource)

    def write(rows: DataFrame, number: int) -> None:
        Fate.meet("before the sink wrote", number)
        values = [row.value.decode() for row in rows.collect()]
        part = folder / "out" / f"{number}.part"
        part.write_text(json.dumps(values))
        part.rename(part.with_suffix(".json"))
        Fate.meet("after the sink wrote, before Spark's commit", number)

    query = (
        spark.readStream.format("headrace-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("kafka.group.id", GROUP)
        .option("maxRecordsPerTrigger", A_BATCH)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(RUN_SECONDS_MAX), "the query does not end"
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
