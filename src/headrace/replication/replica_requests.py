"""The messages between a follower and its leader, made from and taken apart into plain values."""

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

from headrace.ids import BrokerId, TopicId
from headrace.log.epochs import UNDEFINED_OFFSET, EpochEnd
from headrace.replication.following import Place, Row
from headrace.wire.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from headrace.wire.messages.fetch_response import PartitionData
from headrace.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic

NAMED_MAX: Final = 5
"""How many partitions a log line names."""

Key: TypeAlias = tuple[TopicId, int]
"""A partition, as a Fetch names it."""

logger = logging.getLogger(__name__)


def fetch_topics(places: Iterable[tuple[Key, Place]], bytes_max: int) -> list[FetchTopic]:
    """Return the rows of a Fetch request that say where partitions are fetched from."""
    topics: dict[TopicId, FetchTopic] = {}
    for (topic_id, index), place in places:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=place.leader_epoch,
                fetch_offset=place.offset,
                last_fetched_epoch=place.last_epoch,
                log_start_offset=place.start_offset,
                partition_max_bytes=bytes_max,
            )
        )
    return list(topics.values())


def forgotten_topics(forgotten: Iterable[Key]) -> list[ForgottenTopic]:
    """Return the rows of a Fetch request that take partitions out of its session."""
    topics: dict[TopicId, ForgottenTopic] = {}
    for topic_id, index in forgotten:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())


def offset_topics(
    asked: Iterable[tuple[tuple[str, int], int]], timestamp: int
) -> list[ListOffsetsTopic]:
    """Return the rows of a ListOffsets request for partitions with their leader epochs."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), leader_epoch in asked:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = ListOffsetsTopic(name=name, partitions=[])
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp
            )
        )
    return list(topics.values())


def row_of(row: PartitionData) -> Row:
    """Return what a row of a Fetch response says to a follower."""
    end = row.diverging_epoch
    diverging = None if end.end_offset == UNDEFINED_OFFSET else EpochEnd(end.epoch, end.end_offset)
    return Row(row.error_code, bool(row.records), diverging)


class Complaints:
    """Errors of many partitions, to be logged as one line for each kind."""

    __slots__ = ("_counts", "_names", "_reasons")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._names: dict[str, list[str]] = {}
        self._reasons: dict[str, str] = {}

    def add(self, kind: str, reason: str, name: str) -> None:
        """Keep an error of a partition; of each kind the first reason and some names count."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._reasons.setdefault(kind, reason)
        names = self._names.setdefault(kind, [])
        if len(names) < NAMED_MAX:
            names.append(name)

    def log(self, leader: BrokerId) -> None:
        """Log what there is."""
        for kind, count in self._counts.items():
            logger.warning(
                "%d partitions led by node %s are tried again later: %s (%s); %s",
                *(count, leader, kind, self._reasons[kind], ", ".join(self._names[kind])),
            )
        self._counts.clear()
        self._names.clear()
        self._reasons.clear()
