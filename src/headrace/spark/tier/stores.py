"""A blocking interface to the store, for Spark's processes: see `spark.blocking`."""

import asyncio
import atexit
import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.store_options import StoreOptions

T = TypeVar("T")

STORES_MAX: Final = 4
"""How many stores a process keeps connections to."""


class BlockingStore:
    """One store on its own loop, which runs only during a call."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = open_store(url, options)
        self.objects = SegmentObjects(self.store)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        """Release its resources."""
        self.loop.run_until_complete(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def store_of(url: str, options: StoreOptions) -> BlockingStore:
    """Return this process's connections to a store."""
    key = (os.getpid(), url, options)  # what a parent opened is not a fork's to use
    known = _STORES.pop(key, None) or BlockingStore(url, options)
    _STORES[key] = known
    while len(_STORES) > STORES_MAX:
        first = next(iter(_STORES))
        oldest = _STORES.pop(first)
        if first[0] == os.getpid():
            oldest.close()
    return known


def close_stores() -> None:
    """Release every store of this process."""
    while _STORES:
        (pid, _, _), known = _STORES.popitem()
        if pid == os.getpid():
            known.close()


_STORES: dict[tuple[int, str, StoreOptions], BlockingStore] = {}
atexit.register(close_stores)
