"""The writers that Spark calls: tasks write, the driver commits or aborts.

Spark creates a stream writer in a process of the driver for each micro-batch, sends it to the
tasks, and creates another one for the commit or the abort. So the two communicate through the
messages of the tasks. Only tasks are told the query, run and batch.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.errors import HeadraceError
from headrace.spark.loss import LOG
from headrace.spark.sink.decisions import Slot, Writer
from headrace.spark.sink.driver import note_cluster
from headrace.spark.sink.pool import WriteName, give_name_back, take_name
from headrace.spark.sink.ports import Ports, open_journals, open_ports
from headrace.spark.sink.protocol import (
    NAMED_MAX,
    TIMEOUT_NAME,
    LostRows,
    Place,
    Sink,
    abort_batch,
    commit_batch,
    find_stopped,
)
from headrace.spark.sink.stopping import ClusterStops
from headrace.spark.sink.task import write_rows
from headrace.spark.sink.tidying import tidy
from headrace.spark.sink.write_options import WriteOptions

_QUERY_PROPERTY = "sql.streaming.queryId"
_BATCH_PROPERTY = "streaming.sql.batchId"
_RUN_PROPERTY = "spark.jobGroup.id"
"""The local properties of a streaming task; the id of the run is its job group."""
_FIRST_BATCH = 0
_ONLY_RUN = "1"


class RowsLost(HeadraceError):
    """The cluster aborted a part of a batch after the rest of it could be seen."""


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver: its sink, and its transaction."""

    sink: Sink
    slot: Slot | None
    record_count: int
    attempt: int = 0


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """One `df.write`: the next batch of a sink that no other write uses meanwhile."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        name, self._batch = take_name(options.connecting.bootstrap)
        self._sink = Sink(name, _ONLY_RUN)

    # Spark's own Arrow writer takes something else than its base, too.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of a task; its transaction stays open."""
        ports = self.ports(self._sink)
        return _write(ports, self._options, self._sink, self._batch, iterator)

    def commit(self, messages: Messages) -> None:
        """Make everything seen."""
        ports = self.ports(self._sink)
        _commit(ports, self._options, self._sink, self._batch, messages)
        if not any(isinstance(each, TaskMessage) and each.attempt for each in messages):
            # Where a task was tried twice, the other attempt may still be about to begin.
            name = WriteName(self._sink.name, self._batch + 1)
            give_name_back(self._options.connecting.bootstrap, name)
        with contextlib.suppress(HeadraceError):  # what others left is not this write's business
            for lost in ports.blocking.run(tidy(ports.partition, ports.transactions)):
                LOG.warning("%s", _explain_left(lost))

    def abort(self, messages: Messages) -> None:
        """Abort the write."""
        ports = self.ports(self._sink)
        if _sink_of(messages) is not None:
            ports.blocking.connect(is_patient=True)  # a task got through, so the address is right
        _abort(ports, self._sink, self._batch)

    def ports(self, sink: Sink) -> Ports:
        """Return the way to the cluster."""
        return open_ports(self._options, sink)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, options: WriteOptions, writer: Writer | None = None) -> None:
        note_cluster(options.connecting)
        self._options = options
        self._writer = writer or Writer()
        self._made = str(uuid4())

    # Spark's own Arrow writer takes something else than its base, too.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of a task, unless the batch is decided; its transaction stays open."""
        context = TaskContext.get()
        assert context is not None, "tasks write"
        query = context.getLocalProperty(_QUERY_PROPERTY)
        batch = context.getLocalProperty(_BATCH_PROPERTY)
        if query is None or batch is None:
            raise HeadraceError(
                f"Spark does not tell the task its query and batch ({_QUERY_PROPERTY}, "
                f"{_BATCH_PROPERTY}); a streaming write needs Spark 4.2 or 4.3"
            )
        run = context.getLocalProperty(_RUN_PROPERTY) or self._made
        sink = Sink(query, run, self._writer)
        return _write(self.ports(sink), self._options, sink, int(batch), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  Spark's
        """Make a batch seen, or finish what an earlier run began."""
        sink = _sink_of(messages)
        assert sink is not None, "a micro-batch has a task at least"
        _commit(self.ports(sink), self._options, sink, batchId, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803  Spark's
        """Abort a batch, unless it is decided.

        Spark also calls this when a query is stopped, most often before any task is done. Then the
        label of the writer identifies the sink. Without one, the next run, or the transaction
        timeout, aborts what tasks left.
        """
        sink = _sink_of(messages)
        if sink is None and not self._writer.label:
            return
        blocking, journals = open_journals(self._options)
        if sink is not None or batchId > _FIRST_BATCH:
            blocking.connect(is_patient=True)  # a task got through, so the address is right
        if sink is None:
            sink = blocking.run(find_stopped(ClusterStops(journals), self._writer))
        if sink is not None:
            _abort(self.ports(sink), sink, batchId)

    def ports(self, sink: Sink) -> Ports:
        """Return the way to the cluster."""
        return open_ports(self._options, sink)


def _write(
    ports: Ports, options: WriteOptions, sink: Sink, batch: int, rows: Iterator[pa.RecordBatch]
) -> TaskMessage:
    context = TaskContext.get()
    assert context is not None, "tasks write"
    if batch > _FIRST_BATCH:
        # Others wrote before, so that a broker which is away comes back; the first to write learns
        # of a wrong address at once.
        ports.blocking.connect(is_patient=True)
    place = Place(sink, batch, context.partitionId(), context.attemptNumber())
    slot, record_count = write_rows(ports, options, place, rows)
    return TaskMessage(sink, slot, record_count, place.attempt)


def _commit(
    ports: Ports, options: WriteOptions, sink: Sink, batch: int, messages: Messages
) -> None:
    slots = tuple(
        message.slot
        for message in messages
        if isinstance(message, TaskMessage) and message.slot is not None
    )
    # Spark commits in another process than it wrote in, which knows no broker yet.
    ports.blocking.connect(is_patient=True)
    work = commit_batch(ports.journal, ports.transactions, sink, batch, slots)
    for lost in ports.blocking.run(work):
        if options.fails_on_loss:
            raise RowsLost(_explain(lost))
        warnings.warn(_explain(lost), stacklevel=2)


def _abort(ports: Ports, sink: Sink, batch: int) -> None:
    ports.blocking.run(abort_batch(ports.journal, ports.transactions, sink, batch))


def _sink_of(messages: Messages) -> Sink | None:
    return next((each.sink for each in messages if isinstance(each, TaskMessage)), None)


def _explain_left(lost: LostRows) -> str:
    names = ", ".join(lost.transactional_ids[:NAMED_MAX])
    return (
        f"another batch write, whose driver died after its decision, is incomplete: the "
        f"cluster aborted {len(lost.transactional_ids)} of its {lost.total} transactions ({names}) "
        f"before they could be committed, as they were open for longer than {TIMEOUT_NAME}. "
        "Write the missing rows again"
    )


def _explain(lost: LostRows) -> str:
    names = ", ".join(lost.transactional_ids[:NAMED_MAX])
    return (
        f"batch {lost.batch}: the cluster aborted {len(lost.transactional_ids)} of its "
        f"{lost.total} transactions before they could be committed ({names}), so that their "
        f"rows are missing. They were open for longer than {TIMEOUT_NAME}: raise it, and the "
        "brokers' transaction.max.timeout.ms. The next run continues after this batch; write the "
        "missing rows again with a batch job over the same input"
    )
