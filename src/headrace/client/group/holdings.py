"""The partitions that a consumer has as a member of a group: where they change hands.

Call these while the reader is held at its gate: nobody works on a record then.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias

import msgspec

from headrace.client.fetcher import Fetcher
from headrace.client.topics import TopicPartition
from headrace.ids import TopicId

RebalanceCallback: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A function, plain or `async`, that is told of partitions."""


class RebalanceCallbacks(msgspec.Struct, frozen=True):
    """What a user wants to be told of."""

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
        """`commit` commits what is done of partitions, if that is wanted, and does not fail.

        `on_error` is told what a user's callback raised: the rebalance goes on.
        """
        self.callbacks = RebalanceCallbacks()
        self.partitions: dict[TopicPartition, TopicId | None] = {}
        self.committed: dict[TopicPartition, int] = {}
        """What is committed, as far as we know."""
        self._fetcher = fetcher
        self._commit = commit
        self._on_error = on_error

    async def take(self, new: Mapping[TopicPartition, TopicId | None]) -> None:
        """Have these too. They are read from where the group left off, or the callback seeks."""
        if not new:
            return
        self.partitions.update(new)
        self._fetcher.readings.add(new)
        self._fetcher.wake()
        await self._tell(self.callbacks.on_assigned, new)

    async def revoke(self, gone: Collection[TopicPartition]) -> None:
        """Give these up in good order: first commit, then tell, then drop what was fetched."""
        if not gone:
            return
        try:
            await self._commit(gone)
            await self._tell(self.callbacks.on_revoked, gone)
        finally:
            self._drop(gone)

    async def lose(self) -> None:
        """Give up everything, which may be somebody else's already: nothing is committed.

        Told to `on_revoked` if there is no `on_lost`, as in Kafka's own client.
        """
        gone = list(self.partitions)
        if not gone:
            return
        try:
            await self._tell(self.callbacks.on_lost or self.callbacks.on_revoked, gone)
        finally:
            self._drop(gone)

    def clear(self) -> None:
        """Have nothing any more, whatever anybody hears of it."""
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
