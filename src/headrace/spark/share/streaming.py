"""The reader that Spark calls: micro-batches of a queue.

Spark asks `latestOffset(start)` only when the batch that ended at `start` is in its commit log. So
that is where records are acknowledged; `commit` would come a batch later, and never for the last
one. A query that fails or stops ends the process of the reader, which gives back what it leased.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.spark.share.journal import ShareOffset
from headrace.spark.share.options import ShareOptions, check_schema
from headrace.spark.share.progress import ShareProgress
from headrace.spark.share.reading import TaskPartition, read_task
from headrace.spark.share.tasks import plan

T = TypeVar("T")


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One member of a share group, on the driver; `read` alone runs on executors.

    Pickled to executors before it is used, so that nothing is opened before Spark asks.
    """

    def __init__(self, options: ShareOptions, schema: StructType) -> None:
        check_schema(schema, options.columns)
        self._options = options
        self._member: _Member | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's
        """Join the group, so that what is wrong is known at once."""
        self._joined()
        return ShareOffset(self._options.group).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's
        records_max = self._options.trigger_records_max
        return ReadAllAvailable() if records_max is None else ReadMaxRows(records_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's
        member = self._joined()
        member.run(member.progress.set_target())

    def latestOffset(  # noqa: N802  Spark's
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Acknowledge the records of `start`, whose batch is durable, and lease those of the next.

        `start` itself if there are none.
        """
        done = ShareOffset.from_json(start)
        member = self._joined()
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = member.run(member.progress.advance(done, records_max))
        return start if end is done else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's
        """What Spark shows in its progress: where the group is, and what it has before it."""
        return None if self._member is None else self._member.progress.lag()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a micro-batch into tasks: the same records each time that Spark asks."""
        if start == end:
            return []
        runs = ShareOffset.from_json(end).runs
        return [TaskPartition(task) for task in plan(runs, self._options.partitions_min)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPartition)
        return read_task(self._options, partition.task)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is left to do: see `latestOffset`."""

    def stop(self) -> None:
        """Release leased records, and leave the group."""
        member, self._member = self._member, None
        if member is not None:
            member.close()

    def _joined(self) -> "_Member":
        if self._member is None:
            self._member = _Member(self._options)
        return self._member


class _Member:
    """A membership on a loop in a thread: leases are renewed while Spark works on a batch."""

    def __init__(self, options: ShareOptions) -> None:
        self._loop = asyncio.new_event_loop()
        # A process that Spark ends without a word does not wait for it.
        self._thread = threading.Thread(target=self._serve, name="headrace-share", daemon=True)
        self._thread.start()
        try:
            self.progress = self.run(_started(options))
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        try:
            self.run(self.progress.close())
        finally:
            self._end()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _started(options: ShareOptions) -> ShareProgress:
    progress = ShareProgress(options)
    try:
        await progress.start()
    except BaseException:
        await progress.close()
        raise
    return progress
