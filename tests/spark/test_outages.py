"""A broker that is away for a moment at each step of a write: it is waited for."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from headrace.client.errors import NotReachable
from headrace.spark.blocking import close_clusters
from headrace.spark.sink.write_options import write_options
from headrace.spark.sink.writers import BatchWriter, StreamWriter, TaskMessage
from headrace.testing.broker import TestBroker
from tests.spark.sink_reads import committed_values, open_transactions

SCHEMA = StructType().add("value", StringType())
AWAY_SECONDS = 0.3
NOBODY = "127.0.0.1:1"


def be_task_of(batch: int) -> None:
    """Tell this process what Spark tells a task."""
    context = TaskContext._getOrCreate()
    context._attemptNumber, context._partitionId = 0, 0
    context._localProperties = {
        "sql.streaming.queryId": "query",
        "streaming.sql.batchId": str(batch),
        "spark.jobGroup.id": "run",
    }


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    yield
    close_clusters()
    TaskContext._setTaskContext(None)


@pytest.fixture
def topic(headrace: TestBroker) -> str:
    headrace.create_topic("t", partitions=2)
    return "t"


@contextmanager
def away(broker: TestBroker, *, is_new_process: bool) -> Iterator[None]:
    """Have the broker killed now and back soon.

    With `is_new_process` nobody here has a connection to it, as in the processes that Spark makes
    for a commit.
    """
    if is_new_process:
        close_clusters()
    broker.crash()
    comes_back = threading.Timer(AWAY_SECONDS, broker.start)
    comes_back.start()
    try:
        yield
    finally:
        comes_back.join()


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(values, pa.string())})])


def options_for(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "topic": "t", "kafka.retry.backoff.ms": "10"}


def stream_writer(bootstrap: str) -> StreamWriter:
    return StreamWriter(write_options(options_for(bootstrap), SCHEMA, "a test"))


def write(writer: StreamWriter | BatchWriter, batch: int, *values: str) -> TaskMessage:
    be_task_of(batch)
    message = writer.write(rows(*values))
    assert isinstance(message, TaskMessage)
    return message


both = pytest.mark.parametrize("is_new_process", [False, True], ids=["known", "new process"])


@both
@pytest.mark.usefixtures("topic")
def test_a_commit_waits_for_the_broker(headrace: TestBroker, is_new_process: bool) -> None:
    writer = stream_writer(headrace.bootstrap)
    message = write(writer, 0, "a", "b")
    with away(headrace, is_new_process=is_new_process):
        writer.commit([message], 0)
    assert committed_values(headrace.bootstrap, "t") == [b"a", b"b"]
    assert open_transactions(headrace.bootstrap) == []


@both
@pytest.mark.usefixtures("topic")
def test_an_abort_waits_for_the_broker(headrace: TestBroker, is_new_process: bool) -> None:
    writer = stream_writer(headrace.bootstrap)
    message = write(writer, 0, "a", "b")
    with away(headrace, is_new_process=is_new_process):
        writer.abort([message, None], 0)
    assert committed_values(headrace.bootstrap, "t") == []
    assert open_transactions(headrace.bootstrap) == []


@both
@pytest.mark.usefixtures("topic")
def test_a_task_of_a_running_stream_waits_for_the_broker(
    headrace: TestBroker, is_new_process: bool
) -> None:
    writer = stream_writer(headrace.bootstrap)
    writer.commit([write(writer, 0, "a")], 0)
    with away(headrace, is_new_process=is_new_process):
        message = write(writer, 1, "b")
    writer.commit([message], 1)
    assert committed_values(headrace.bootstrap, "t") == [b"a", b"b"]


@both
@pytest.mark.usefixtures("topic")
def test_a_batch_write_is_committed_when_the_broker_is_back(
    headrace: TestBroker, is_new_process: bool
) -> None:
    writer = BatchWriter(write_options(options_for(headrace.bootstrap), SCHEMA, "a test"))
    message = write(writer, 0, "a")
    with away(headrace, is_new_process=is_new_process):
        writer.commit([message])
    assert committed_values(headrace.bootstrap, "t") == [b"a"]


@pytest.mark.parametrize("kind", [StreamWriter, BatchWriter])
def test_a_wrong_address_is_told_at_once(kind: type[StreamWriter | BatchWriter]) -> None:
    writer = kind(write_options(options_for(NOBODY), SCHEMA, "a test"))
    with pytest.raises(NotReachable, match=re.escape(NOBODY)):
        write(writer, 0, "a")
    if isinstance(writer, BatchWriter):
        with pytest.raises(NotReachable, match=re.escape(NOBODY)):
            writer.abort([None])
