"""Committed offsets of groups: those that count, and those of open transactions.

Only the store: `offsets.commits` decides who may commit, `offsets.expiry` what is too old.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from headrace.ids import ZERO_TOPIC_ID

NO_LEADER_EPOCH: Final = -1


class CommittedOffset(NamedTuple):
    """How far a group has read a partition."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int | None = None
    """When it ends at a time of its own, as old clients could ask for."""
    topic_id: bytes = ZERO_TOPIC_ID


class _Written(NamedTuple):
    """What a transaction has written for the partitions of a topic, and in which order."""

    offsets: dict[int, CommittedOffset]
    orders: dict[int, int]


Place = tuple[str, int]
"""A topic and a partition."""
ByTopic = dict[str, dict[int, CommittedOffset]]
UndecidedByTopic = dict[str, _Written]
_NO_TOPICS: Final[Mapping[str, Mapping[int, CommittedOffset]]] = {}
_NO_PARTITIONS: Final[Mapping[int, CommittedOffset]] = {}
_NO_ORDERS: Final[Mapping[int, int]] = {}


class Offsets:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._committed: dict[str, ByTopic] = {}
        self._undecided: dict[int, dict[str, UndecidedByTopic]] = {}
        """By producer id: what its transaction has written, by group."""
        self._producers: dict[str, set[int]] = {}
        """By group: who has a transaction with offsets of it under way."""
        self._groups: dict[str, dict[str, int]] = {}
        """By topic: the groups that have offsets of it, and in how many places these are: among
        what counts, and in the transactions of how many producers."""
        self._order = 0
        """Counts what transactions have written: the last that was written wins, not the last
        that was decided."""
        self._decided: dict[str, dict[str, dict[int, int]]] = {}
        """By group with transactions under way, by topic: the order of what came to count
        meanwhile."""

    # Looking up

    def committed(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return what a group has committed by topic, outside of undecided transactions."""
        return self._committed.get(group_id, _NO_TOPICS)

    def of_topic(self, group_id: str, topic: str) -> Mapping[int, CommittedOffset]:
        """Return what a group has committed for the partitions of a topic."""
        return self._committed.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_topic(group_id, topic).get(partition)

    def is_undecided(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction under way has another offset for it."""
        return any(
            topic in each and partition in each[topic].offsets for each in self._written(group_id)
        )

    def undecided(self, group_id: str) -> set[Place]:
        """Return the partitions for which transactions under way have offsets."""
        return {
            (topic, partition)
            for written in self._written(group_id)
            for topic, (offsets, _) in written.items()
            for partition in offsets
        }

    def undecided_of_topic(self, group_id: str, topic: str) -> set[int]:
        """Return the partitions of a topic for which transactions under way have offsets."""
        return {
            partition
            for written in self._written(group_id)
            if topic in written
            for partition in written[topic].offsets
        }

    def has_undecided(self, group_id: str) -> bool:
        return group_id in self._producers

    def transaction_count(self, group_id: str) -> int:
        """Return how many transactions under way have offsets of a group."""
        return len(self._producers.get(group_id, ()))

    def has_only(self, group_id: str, count: int) -> bool:
        """Return whether a group has so many offsets and no more, decided or not."""
        topics = self._committed.get(group_id, _NO_TOPICS)
        if group_id in self._producers or len(topics) > count:
            return False
        return sum(map(len, topics.values())) == count

    def __contains__(self, group_id: str) -> bool:
        """Whether a group has offsets, decided or not."""
        return group_id in self._committed or group_id in self._producers

    def groups(self) -> Iterator[str]:
        """Yield the groups that have offsets, decided or not."""
        yield from self._committed
        yield from (each for each in self._producers if each not in self._committed)

    def groups_of(self, topic: str) -> Collection[str]:
        """Return the groups that have offsets of a topic, decided or not."""
        return self._groups.get(topic, {}).keys()

    def _written(self, group_id: str) -> Iterator[UndecidedByTopic]:
        for producer_id in self._producers.get(group_id, ()):
            yield self._undecided[producer_id][group_id]

    # Changing: for replay

    def put(
        self, group_id: str, place: Place, offset: CommittedOffset, *, producer_id: int = -1
    ) -> None:
        """Store an offset. With a producer it is pending until the transaction ends."""
        topic, partition = place
        if producer_id < 0:
            self._count(group_id, topic)[partition] = offset
            if group_id in self._producers:
                self._order += 1
                decided = self._decided.setdefault(group_id, {})
                decided.setdefault(topic, {})[partition] = self._order
            return
        self._order += 1
        groups = self._undecided.setdefault(producer_id, {})
        by_topic = groups.setdefault(group_id, {})
        written = by_topic.get(topic)
        if written is None:
            written = by_topic[topic] = _Written({}, {})
            self._hold(topic, group_id)
        written.offsets[partition] = offset
        written.orders[partition] = self._order
        self._producers.setdefault(group_id, set()).add(producer_id)

    def remove(self, group_id: str, place: Place) -> None:
        """Remove an offset, and the pending ones of open transactions."""
        topics = self._committed.get(group_id)
        topic, partition = place
        if topics is not None and topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
                self._release(topic, group_id)
                if not topics:
                    del self._committed[group_id]
        for producer_id in tuple(self._producers.get(group_id, ())):
            by_topic = self._undecided[producer_id][group_id]
            if topic in by_topic:
                by_topic[topic].offsets.pop(partition, None)
                by_topic[topic].orders.pop(partition, None)
                if not by_topic[topic].offsets:
                    del by_topic[topic]
                    self._release(topic, group_id)
            if not by_topic:
                self._forget(producer_id, group_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or discard the offsets of a transaction.

        What was written after it and counts already stays: a commit outside of the transaction,
        or one of another that was decided first.

        It is one step, however much was written: who reads sees all of a transaction or nothing,
        and the operations that come next stand on it. So there is no Python for a partition: the
        offsets of a topic come to count as a whole.
        """
        for group_id, written in tuple(self._undecided.get(producer_id, {}).items()):
            if is_commit:
                self._let_count(group_id, written)
            self._forget(producer_id, group_id)

    def _let_count(self, group_id: str, by_topic: UndecidedByTopic) -> None:
        """Apply the offsets of a transaction, which consumes `by_topic`."""
        decided = self._decided.setdefault(group_id, {})
        is_only = self.transaction_count(group_id) == 1
        for topic, (offsets, orders) in by_topic.items():
            for partition, order in decided.get(topic, _NO_ORDERS).items():
                if orders.get(partition, order) < order:
                    del offsets[partition], orders[partition]
            if not offsets:
                continue
            self._count(group_id, topic).update(offsets)
            if not is_only:  # else nobody is left who could come too late
                decided.setdefault(topic, {}).update(orders)

    def _count(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """Return the place of what counts for a topic."""
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._hold(topic, group_id)
        return partitions

    def _forget(self, producer_id: int, group_id: str) -> None:
        """Drop what a transaction wrote for a group."""
        groups = self._undecided[producer_id]
        for topic in groups.pop(group_id):
            self._release(topic, group_id)
        if not groups:
            del self._undecided[producer_id]
        producers = self._producers[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._producers[group_id]
            self._decided.pop(group_id, None)

    # The index by topic

    def _hold(self, topic: str, group_id: str) -> None:
        groups = self._groups.setdefault(topic, {})
        groups[group_id] = groups.get(group_id, 0) + 1

    def _release(self, topic: str, group_id: str) -> None:
        groups = self._groups[topic]
        groups[group_id] -= 1
        if not groups[group_id]:
            del groups[group_id]
            if not groups:
                del self._groups[topic]
