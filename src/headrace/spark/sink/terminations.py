"""Queries that end without a word to their sink: what they left open is aborted all the same.

A stop that comes between the last task of a batch and the call of its sink interrupts the thread
that was about to make the call, and every call that it tries after that: neither commit nor abort
reach Python. In the first batch of an application that is a matter of seconds, as long as Spark
takes to start a process. So the user's own process listens for the end of queries, and looks after
the run. Where it cannot listen, with Spark Connect, the next run or the transaction timeout does.
"""

import asyncio
import atexit
import logging
import shutil
import threading
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError
from headrace.spark.options import Connecting
from headrace.spark.sink.coordination import Coordination
from headrace.spark.sink.driver import CLUSTERS_FOLDER, noted_clusters
from headrace.spark.sink.journal import ClusterJournal
from headrace.spark.sink.journal_partition import JournalPartition, partition_of
from headrace.spark.sink.protocol import Sink, abort_batch

_LOGGER = logging.getLogger("headrace.spark")
_NO_BATCH: Final = -1
_EXIT_SECONDS_MAX: Final = 5.0
"""How long a process that ends waits for what it looks after."""
_ENDING: WeakSet[threading.Thread] = WeakSet()
_LISTENING: WeakSet[SparkSession] = WeakSet()
"""The sessions that are listened to."""


def tell_folder(spark: SparkSession) -> Path:
    """Create the message folder and have Spark tell the driver's processes of it; return it."""
    environment = spark.sparkContext.environment
    if CLUSTERS_FOLDER not in environment:
        folder = mkdtemp(prefix="headrace-spark-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        environment[CLUSTERS_FOLDER] = folder
    return Path(environment[CLUSTERS_FOLDER])


def listen(spark: SparkSession, folder: Path) -> None:
    """Look after the queries of a session from now on, once."""
    if spark not in _LISTENING:
        spark.streams.addListener(Terminations(folder))
        _LISTENING.add(spark)


class Terminations(StreamingQueryListener):
    """Hears of the end of queries. Spark calls it itself, so that no other event is decoded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wrapped: Any = None

    @property
    def _jlistener(self) -> Any:
        if self._wrapped is None:
            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._wrapped

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's
        """Nothing is to be done."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's
        """Nothing is to be done."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's
        """Nothing is to be done."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's
        """Look after the run, without keeping Spark waiting."""
        run = event.id().toString(), event.runId().toString()
        ending = threading.Thread(target=end_run, args=(self._folder, *run), daemon=True)
        _ENDING.add(ending)
        ending.start()

    class Java:
        """The marker that Py4J looks for."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def wait_for_ends() -> None:
    """Wait a little for aborts in progress, as a job may end right after its query."""
    until = time.monotonic() + _EXIT_SECONDS_MAX
    for ending in list(_ENDING):
        ending.join(max(0.0, until - time.monotonic()))


def end_run(folder: Path, query: str, run: str) -> None:
    """Abort what a run left open, in every cluster that the driver writes to."""
    for connecting in noted_clusters(folder):
        try:
            asyncio.run(_end_run(connecting, Sink(query, run)))
        except (HeadraceError, OSError) as error:
            _LOGGER.warning("what query %s left open cannot be aborted: %s", query, error)


async def _end_run(connecting: Connecting, sink: Sink) -> None:
    async with Cluster(connecting.bootstrap, connecting) as cluster:
        partition = JournalPartition(cluster, partition_of(sink.name))
        journal = ClusterJournal(cluster, partition, sink.name)
        history = await journal.read()
        if history.claim is None or history.claim.run != sink.run:
            return  # it never wrote, or its end is known
        transactions = Coordination(cluster, None)
        if history.unended is not None or await transactions.left_open((sink.prefix,)):
            await abort_batch(journal, transactions, sink, _NO_BATCH)


atexit.register(wait_for_ends)
