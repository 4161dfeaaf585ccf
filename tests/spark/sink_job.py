"""A streaming job from files to a topic that is killed where it is told to be; run as a program.

    python -m tests.spark.sink_job BOOTSTRAP FOLDER BATCH STEP

Every file of FOLDER/in is a micro-batch. In that with the number BATCH, at STEP, the driver is
killed: its JVM and its Python, by SIGKILL. The number is also how the rows are shuffled before they
are written, so that a replay has them in other tasks.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.spark import session
from headrace.spark.sink.decisions import Claim, Decision, History, Slot, Writer
from headrace.spark.sink.ports import Ports
from headrace.spark.sink.protocol import Journal, Sink
from headrace.spark.sink.stopping import writer_of
from headrace.spark.sink.write_options import write_options
from headrace.spark.sink.writers import Messages, StreamWriter
from headrace.spark.source import HeadraceDataSource
from tests.spark.fated_jobs import NEVER, RUN_SECONDS_MAX

STEPS = (
    "before any task wrote",
    "while a task writes",
    "after the tasks, before the decision",
    "after the decision, before the ends",
    "between two ends",
    "after the ends, before they are noted",
    "after the note, before Spark's commit",
)
TOPIC = "out"


class Fate:
    """Where the driver dies, and which processes it is."""

    batch: ClassVar[int] = -1
    step: ClassVar[str] = NEVER
    pids: ClassVar[list[int]] = []

    @classmethod
    def meet(cls, step: str) -> None:
        if step == cls.step:
            for pid in cls.pids:
                os.kill(pid, signal.SIGKILL)
            os._exit(1)


class FatedJournal:
    """A journal that kills before or behind a record."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def read(self) -> History:
        return await self._journal.read()

    async def claim(self, run: str, writer: str = "", over: str = "") -> History:
        return await self._journal.claim(run, writer, over)

    def is_stopped(self, writer: Writer) -> bool:
        return self._journal.is_stopped(writer)

    async def append(self, record: Claim | Decision) -> None:
        is_fatal = isinstance(record, Decision) and record.batch == Fate.batch
        if is_fatal and isinstance(record, Decision) and record.is_ended:
            Fate.meet("after the ends, before they are noted")
        await self._journal.append(record)
        if is_fatal and isinstance(record, Decision) and not record.is_ended:
            Fate.meet("after the decision, before the ends")


class FatedTransactions:
    """Transactions that kill behind the first that is committed."""

    def __init__(self, transactions: Any, is_fatal: bool) -> None:
        self._transactions = transactions
        self._is_fatal = is_fatal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transactions, name)

    async def commit(self, slots: Mapping[str, Slot]) -> list[bool]:
        seen: list[bool] = []
        for transactional_id, slot in slots.items():
            seen += await self._transactions.commit({transactional_id: slot})
            if self._is_fatal:
                Fate.meet("between two ends")
        return seen


class FatedWriter(StreamWriter):
    """The sink, with a driver that dies."""

    is_fatal = False

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        if batch == Fate.batch:
            Fate.meet("before any task wrote")
        return super().write(self._rows(iterator, batch == Fate.batch))

    def _rows(self, iterator: Iterator[pa.RecordBatch], is_fatal: bool) -> Iterator[pa.RecordBatch]:
        for batch in iterator:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if is_fatal and half:
                Fate.meet("while a task writes")
            yield batch.slice(half)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        self.is_fatal = batchId == Fate.batch
        if self.is_fatal:
            Fate.meet("after the tasks, before the decision")
        super().commit(messages, batchId)
        if self.is_fatal:
            Fate.meet("after the note, before Spark's commit")

    def ports(self, sink: Sink) -> Ports:
        ports = super().ports(sink)
        transactions: Any = FatedTransactions(ports.transactions, self.is_fatal)
        return Ports(ports.blocking, ports.partition, FatedJournal(ports.journal), transactions)


class FatedSource(HeadraceDataSource):
    """The format "headrace" with that sink."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        given = self._given()
        return FatedWriter(write_options(given, schema, "a test"), writer_of(given))


def main(bootstrap: str, folder: Path, batch: int, step: str) -> None:
    spark = session("local[2]", banner=False)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    Fate.batch, Fate.step = batch, step
    Fate.pids = [jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
    spark.dataSource.register(FatedSource)
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    query = (
        rows.repartition(2 + batch % 3)
        .selectExpr("value", "substring(value, 1, 3) as key")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", TOPIC)
        .option("kafka.batch.size", "200")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(RUN_SECONDS_MAX), "the query does not end"
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
