"""The partitions that a consumer owns as a group member, and their changes.

Call these while the reader is held at its gate: then no record is being processed.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias

import msgspec

from headrace.client.fetcher import Fetcher
from headrace.client.topics import TopicPartition
from headrace.ids import TopicId

RebalanceCallback: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A function, plain or `async`, that is called with partitions."""


class RebalanceCallbacks(msgspec.Struct, frozen=True):
    """A user's callbacks."""

    on_assigned: RebalanceCallback | None = None
    on_revoked: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None


class Holdings:
    """Partitions that are ours, with the topic ids that they came with."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        commit: Callable[[Collection[TopicPartition]], Awaitable[None]],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`commit` commits finished records of partitions, if enabled, and does not fail.

        `on_error` is called with a user callback's exception: the rebalance continues.
        """
        self.callbacks = RebalanceCallbacks()
        self.partitions: dict[TopicPartition, TopicId | None] = {}
        self.committed: dict[TopicPartition, int] = {}
        """What is committed, as far as we know."""
        self._fetcher = fetcher
        self._commit = commit
        self._on_error = on_error

    async def take(self, new: Mapping[TopicPartition, TopicId | None]) -> None:
        """Add partitions. They are read from the group's offsets, unless the callback seeks."""
        if not new:
            return
        self.partitions.update(new)
        self._fetcher.readings.add(new)
        self._fetcher.wake()
        await self._tell(self.callbacks.on_assigned, new)

    async def revoke(self, gone: Collection[TopicPartition]) -> None:
        """Revoke partitions: first commit, then call back, then drop fetched records."""
        if not gone:
            return
        try:
            await self._commit(gone)
            await self._tell(self.callbacks.on_revoked, gone)
        finally:
            self._drop(gone)

    async def lose(self) -> None:
        """Drop all partitions, which other members may own already: nothing is committed.

        Calls `on_revoked` if there is no `on_lost`, like Kafka's own client.
        """
        gone = list(self.partitions)
        if not gone:
            return
        try:
            await self._tell(self.callbacks.on_lost or self.callbacks.on_revoked, gone)
        finally:
            self._drop(gone)

    def clear(self) -> None:
        """Drop all partitions without callbacks."""
        self._drop(list(self.partitions))

    def _drop(self, gone: Collection[TopicPartition]) -> None:
        self._fetcher.readings.drop(gone)
        self._fetcher.wake()
        for partition in gone:
            self.partitions.pop(partition, None)
            self.committed.pop(partition, None)

    async def _tell(
        self, callback: RebalanceCallback | None, partitions: Collection[TopicPartition]
    ) -> None:
        if callback is None:
            return
        try:
            outcome = callback(sorted(partitions))
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:
            self._on_error(error)
