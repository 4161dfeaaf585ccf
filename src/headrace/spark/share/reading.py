"""Reading the records of a task on an executor, with how often each was delivered."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.blocking import cluster_of
from headrace.spark.loss import LOG
from headrace.spark.reading import UnreadableRecords, read_range
from headrace.spark.salvage import Unreadable
from headrace.spark.share.intervals import overlaps
from headrace.spark.share.journal import Run
from headrace.spark.share.options import DELIVERY_COUNT, ShareOptions
from headrace.spark.share.rejections import send_rejections
from headrace.spark.share.tasks import Span, Task

_OFFSET = "offset"


class TaskPartition(InputPartition):
    """One task of Spark's: records of a queue."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


def read_task(options: ShareOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task as rows, about one fetch at a time.

    Unreadable records end the query or, with failOnDataLoss=false, are rejected.
    """
    topic_columns = [name for name in options.columns if name != DELIVERY_COUNT]
    if _OFFSET not in topic_columns:
        topic_columns.append(_OFFSET)
    for span in task:
        leave_out = partial(_leave_out, options, span)
        for rows in read_range(
            options.connecting, span.range, options.limits, topic_columns, leave_out
        ):
            chosen = select(rows, span.runs, options.columns)
            if chosen.num_rows:
                yield chosen


def _leave_out(options: ShareOptions, span: Span, found: Unreadable) -> None:
    """Reject our part of it when the batch is durable; other members reject theirs."""
    ours = overlaps([(found.first, found.last)], span.runs)
    if not ours:
        return
    if options.limits.fails_on_data_loss:
        raise UnreadableRecords(
            f"{found}; the log is damaged there, and no member of share group {options.group!r} "
            "can read it (`headrace log dump` shows more): restore the log, or start this query "
            "with failOnDataLoss=false to reject these records and continue with the others"
        )
    LOG.warning("%s; rejected, as failOnDataLoss is false", found)
    cluster = cluster_of(options.connecting)
    topic_id = TopicId(span.range.topic_id)
    shared = SharedPartition(topic_id, found.partition.topic, found.partition.partition)
    cluster.run(send_rejections(cluster.cluster, options.group, {shared: ours}))


def select(rows: pa.RecordBatch, runs: Sequence[Run], columns: Sequence[str]) -> pa.RecordBatch:
    """Return the ascending rows whose offsets are in one of the runs, with its count."""
    offsets: Any = rows.column(_OFFSET)
    parts: list[pa.RecordBatch] = []
    first_run = bisect_left(runs, offsets[0].as_py(), key=lambda run: run.last)
    for run in runs[first_run:]:
        begin, end = _index(offsets, run.first), _index(offsets, run.last + 1)
        if begin < end:
            parts.append(_shaped(rows.slice(begin, end - begin), run.delivery_count, columns))
        if end == len(offsets):
            break
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return _shaped(rows.slice(0, 0), 0, columns)
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _index(offsets: Any, offset: int) -> int:
    """Return the index at which an offset is, or would be, in an ascending column."""
    return bisect_left(range(len(offsets)), offset, key=lambda at: offsets[at].as_py())


def _shaped(rows: pa.RecordBatch, delivery_count: int, columns: Sequence[str]) -> pa.RecordBatch:
    counts = pa.repeat(pa.scalar(delivery_count, pa.int32()), rows.num_rows)
    arrays = [counts if name == DELIVERY_COUNT else rows.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
