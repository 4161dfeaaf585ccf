"""A blocking interface to the store, for Spark's processes: see `spark.blocking`."""

import asyncio
import atexit
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.store_options import StoreOptions
from headrace.spark.kept import Kept

T = TypeVar("T")

STORES_MAX: Final = 4
"""How many stores a thread keeps connections to."""


class BlockingStore:
    """One store on its own loop, which runs only during a call."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = open_store(url, options)
        self.objects = SegmentObjects(self.store)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return self.loop.run_until_complete(work)

    @property
    def is_busy(self) -> bool:
        """Whether a call is running now."""
        return self.loop.is_running()

    def close(self) -> None:
        """Release its resources."""
        self.loop.run_until_complete(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def store_of(url: str, options: StoreOptions) -> BlockingStore:
    """Return this thread's connections to a store."""
    return _STORES.get((url, options), lambda: BlockingStore(url, options))


def close_stores() -> None:
    """Release the stores of this process, but for those that a thread is using."""
    _STORES.close()


_STORES: Final[Kept[tuple[str, StoreOptions], BlockingStore]] = Kept(STORES_MAX)
atexit.register(close_stores)
