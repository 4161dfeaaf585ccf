"""The metadata that a node starts with, and the switch to the real one.

A node starts before it can reach the topic of the metadata, which may be on the node itself. Until
then `NotReadyMetadata` refuses everything: nothing is copied that nobody would know of, and nothing
is taken for missing. `SwappableMetadata` is what everyone holds; the one behind it is exchanged at
any time, also while calls are under way: those end with the one that they began with.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from headrace.remote.segments import (
    DeleteState,
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentUpdate,
    TopicIdPartition,
)
from headrace.tier.ports import NotReady, RemoteMetadata

STARTING: Final = "the metadata of remote segments is being started"


class LedMetadata(RemoteMetadata, Protocol):
    """RemoteMetadata with what the sweeper of deleted topics and a new leader need."""

    def lead(self, metadata_partitions: Iterable[int]) -> None: ...

    def keys_in(self, metadata_partition: int) -> list[TopicIdPartition]: ...

    def delete_state(self, key: PartitionKey) -> DeleteState | None: ...

    def unreferenced(self, key: PartitionKey) -> Sequence[RemoteSegment]: ...

    async def catch_up(self, key: PartitionKey) -> None: ...


class NotReadyMetadata:
    """Metadata that nobody can ask yet."""

    def __init__(self, why: str = STARTING) -> None:
        self.on_changed: list[Callable[[PartitionKey], None]] = []
        self._why = why

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        pass

    def lead(self, metadata_partitions: Iterable[int]) -> None:
        pass

    def is_ready(self, key: PartitionKey) -> bool:
        return False

    def keys_in(self, metadata_partition: int) -> list[TopicIdPartition]:
        raise NotReady(self._why)

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        raise NotReady(self._why)

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        raise NotReady(self._why)

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        raise NotReady(self._why)

    def segments(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        raise NotReady(self._why)

    def segments_of(self, key: PartitionKey, epoch: int) -> Sequence[RemoteSegment]:
        raise NotReady(self._why)

    def unreferenced(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        raise NotReady(self._why)

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        raise NotReady(self._why)

    def delete_state(self, key: PartitionKey) -> DeleteState | None:
        raise NotReady(self._why)

    async def add(self, segment: RemoteSegment) -> None:
        raise NotReady(self._why)

    async def update(self, update: SegmentUpdate) -> None:
        raise NotReady(self._why)

    async def delete_partition(self, delete: PartitionDelete) -> None:
        raise NotReady(self._why)

    async def catch_up(self, key: PartitionKey) -> None:
        raise NotReady(self._why)


class SwappableMetadata:
    """Metadata behind which another one can be put."""

    def __init__(self, first: LedMetadata | None = None) -> None:
        self.on_changed: list[Callable[[PartitionKey], None]] = []
        self._followed: list[TopicIdPartition] = []
        self._led: list[int] = []
        self._current: LedMetadata = NotReadyMetadata() if first is None else first
        self._current.on_changed.append(self._tell)

    @property
    def current(self) -> LedMetadata:
        """The one that answers."""
        return self._current

    def swap(self, following: LedMetadata) -> LedMetadata:
        """Replace the manager; return the former one, which may be in use.

        The new one follows what the former one followed, and is heard by the same listeners.
        """
        former, self._current = self._current, following
        if former is not following:
            former.on_changed.remove(self._tell)
            following.on_changed.append(self._tell)
        following.lead(self._led)
        following.follow(self._followed)
        return former

    def _tell(self, key: PartitionKey) -> None:
        for listener in self.on_changed:
            listener(key)

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        self._followed = list(partitions)
        self._current.follow(self._followed)

    def lead(self, metadata_partitions: Iterable[int]) -> None:
        self._led = list(metadata_partitions)
        self._current.lead(self._led)

    def is_ready(self, key: PartitionKey) -> bool:
        return self._current.is_ready(key)

    def keys_in(self, metadata_partition: int) -> list[TopicIdPartition]:
        return self._current.keys_in(metadata_partition)

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        return self._current.find(key, epoch, offset)

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        return self._current.find_with_aborted(key, epoch, offset)

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        return self._current.highest_offset(key, epoch)

    def segments(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        return self._current.segments(key)

    def segments_of(self, key: PartitionKey, epoch: int) -> Sequence[RemoteSegment]:
        return self._current.segments_of(key, epoch)

    def unreferenced(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        return self._current.unreferenced(key)

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        return self._current.size_bytes(key, epoch)

    def delete_state(self, key: PartitionKey) -> DeleteState | None:
        return self._current.delete_state(key)

    async def add(self, segment: RemoteSegment) -> None:
        await self._current.add(segment)

    async def update(self, update: SegmentUpdate) -> None:
        await self._current.update(update)

    async def delete_partition(self, delete: PartitionDelete) -> None:
        await self._current.delete_partition(delete)

    async def catch_up(self, key: PartitionKey) -> None:
        await self._current.catch_up(key)
