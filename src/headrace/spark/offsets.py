"""Offsets of topics as Spark's Kafka connector writes them, and what a stream's offset adds.

    {"orders": {"0": 23, "1": 345}, "#group": "...", "#topicIds": {"orders": "..."}}

The first part is the connector's, so that each can read the other's checkpoints. A stream also
stores the ids of its topics, to recognize a re-created topic, and the group for which its progress
is committed. Both keys start with a character that no topic name has.
Pure: no Spark, no cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError

EARLIEST: Final = -2
LATEST: Final = -1
"""The connector's numbers for the two ends, which are Kafka's own."""

_GROUP: Final = "#group"
_TOPIC_IDS: Final = "#topicIds"
EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'

Offsets = dict[TopicPartition, int]


class InvalidOffsets(HeadraceError, ValueError):
    """Text that is not what this module writes."""


class AtEnd(msgspec.Struct, frozen=True):
    """Every partition at one of its ends: EARLIEST or LATEST."""

    end: int


class AtOffsets(msgspec.Struct, frozen=True):
    """Each partition at an offset, or at one of its ends."""

    offsets: dict[TopicPartition, int]


class AtTimes(msgspec.Struct, frozen=True):
    """Each partition at the first record of a time (ms since 1970) or later."""

    times: dict[TopicPartition, int]
    """Where no partition is named, `everywhere` holds."""
    everywhere: int | None = None


Bound = AtEnd | AtOffsets | AtTimes
"""A start or an end that is not yet resolved to offsets."""


class StreamOffset(msgspec.Struct, frozen=True):
    """How far a stream has read."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str] = {}
    group: str = ""
    """Empty where it is not known, as in what the connector wrote."""

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self.offsets}

    def to_json(self) -> dict[str, Any]:
        """Return the text that Spark stores, in a fixed order, as Spark compares texts."""
        stored: dict[str, Any] = {}
        if self.group:
            stored[_GROUP] = self.group
        if self.topic_ids:
            stored[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        return {**offsets_to_json(self.offsets), **stored}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json` gave, or what the connector wrote."""
        ids = stored.get(_TOPIC_IDS, {})
        return cls(
            offsets_from_json(stored),
            dict(ids) if isinstance(ids, Mapping) else {},
            str(stored.get(_GROUP, "")),
        )


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return the connector's form, sorted."""
    topics: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def offsets_from_json(stored: Mapping[str, Any]) -> Offsets:
    """Read the connector's form; InvalidOffsets names what is not."""
    found: Offsets = {}
    for topic, partitions in stored.items():
        if topic.startswith("#"):
            continue
        if not isinstance(partitions, Mapping):
            raise InvalidOffsets(f"{topic!r} has {partitions!r}; offsets are like {EXAMPLE}")
        for index, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not index.isdecimal() or not is_number or offset < EARLIEST:
                raise InvalidOffsets(
                    f"{topic!r} has {index!r}: {offset!r}; offsets are like {EXAMPLE}"
                )
            found[TopicPartition(topic, int(index))] = offset
    return found


def partitions_from_json(stored: Mapping[str, Any]) -> list[TopicPartition]:
    """Read what `assign` has: the partitions of each topic."""
    found: list[TopicPartition] = []
    for topic, indexes in stored.items():
        if not isinstance(indexes, list) or not all(type(index) is int for index in indexes):
            raise InvalidOffsets(f'{topic!r} has {indexes!r}; like {{"orders": [0, 1]}}')
        found += [TopicPartition(topic, index) for index in indexes]
    return sorted(set(found))


def describe(partitions: Iterable[TopicPartition], most: int = 5) -> str:
    """Name partitions for a message: all of a few, the first of many."""
    names = [str(partition) for partition in sorted(partitions)]
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
