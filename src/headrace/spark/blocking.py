"""A blocking interface to the asyncio client.

Spark calls sources from its own processes: a planner per query, a worker per concurrent task. They
are reused, so a process keeps its clusters: the next task reuses connections and leaders. One
thread of a process uses them, as Spark's workers have one.
"""

import asyncio
import atexit
import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.retrying import Retries
from headrace.spark.options import Connecting

T = TypeVar("T")

CLUSTERS_MAX: Final = 4
"""How many clusters a process keeps connections to."""


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
    """Return this process's connections to a cluster."""
    key = (os.getpid(), connecting)  # what a parent opened is not a fork's to use
    known = _CLUSTERS.pop(key, None) or BlockingCluster(connecting)
    _CLUSTERS[key] = known
    while len(_CLUSTERS) > CLUSTERS_MAX:
        (pid, _), oldest = next(iter(_CLUSTERS.items()))
        del _CLUSTERS[next(iter(_CLUSTERS))]
        if pid == os.getpid():
            oldest.close()
    return known


def close_clusters() -> None:
    """Hang up on every cluster of this process."""
    while _CLUSTERS:
        (pid, _), known = _CLUSTERS.popitem()
        if pid == os.getpid():
            known.close()


_CLUSTERS: dict[tuple[int, Connecting], BlockingCluster] = {}
atexit.register(close_clusters)
