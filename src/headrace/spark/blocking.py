"""A blocking interface to the asyncio client.

Spark calls sources from its own processes: a planner per query, a worker per concurrent task. They
are reused, so a process keeps its clusters: the next task reuses connections and leaders. Each
thread has its own.
"""

import asyncio
import atexit
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.retrying import Retries
from headrace.spark.kept import Kept
from headrace.spark.options import Connecting

T = TypeVar("T")

CLUSTERS_MAX: Final = 4
"""How many clusters a thread keeps connections to."""


class BlockingCluster:
    """One cluster on its own loop, which runs only during a call."""

    def __init__(self, connecting: Connecting) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = Cluster(connecting.bootstrap, connecting)
        self._is_connected = False

    def connect(self, *, is_patient: bool = False) -> None:
        """Connect to the cluster; every first use does.

        A patient caller retries up to the API timeout: a task, because the cluster was available
        when it was planned. Other callers learn of a wrong address at once.
        """
        if not self._is_connected:
            self.loop.run_until_complete(self._connect(is_patient=is_patient))
            self._is_connected = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        try:
            self.connect()
        except BaseException:
            work.close()
            raise
        return self.loop.run_until_complete(work)

    @property
    def is_busy(self) -> bool:
        """Whether a call is running now."""
        return self.loop.is_running()

    def close(self) -> None:
        """Hang up."""
        self.loop.run_until_complete(self.cluster.close())
        self.loop.close()

    async def _connect(self, *, is_patient: bool) -> None:
        retries = Retries(self.cluster.settings)
        while True:
            try:
                await self.cluster.connect()
                return
            except NotReachable:
                if not is_patient or not await retries.pause():
                    raise


def cluster_of(connecting: Connecting) -> BlockingCluster:
    """Return this thread's connections to a cluster."""
    return _CLUSTERS.get(connecting, lambda: BlockingCluster(connecting))


def close_clusters() -> None:
    """Hang up on the clusters of this process, but for those that a thread is using."""
    _CLUSTERS.close()


_CLUSTERS: Final[Kept[Connecting, BlockingCluster]] = Kept(CLUSTERS_MAX)
atexit.register(close_clusters)
