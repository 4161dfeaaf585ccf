"""The keys of objects in the store. Pure.

    orders-7-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-oAtiIQ95REujbuzNd_lkLQ.log
    topic-partition-topic id       /start offset        -segment id            .kind
    .headrace/cluster.json

The layout is that of Kafka's own LocalTieredStorage (in the test jar of kafka-storage), so that
Kafka and we read each other's folder. Kafka appends `kafka-tiered-storage` to its `dir`: that
folder is the one to name here.

What we keep beside segments lives below `.headrace/`. Kafka copies, reads and deletes segments
beside it; only `LocalTieredStorage.traverse` and `clear`, which its tests use, expect nothing but
partitions. Every other key is foreign: it is reported and never deleted.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.ids import PartitionIndex, TopicId, TopicName, parse_topic_id, topic_id_text
from headrace.remote.segments import RemoteSegment, SegmentId, TopicIdPartition

OWN_PREFIX: Final = ".headrace/"
MARKER_KEY: Final = OWN_PREFIX + "cluster.json"
TOPICS_PREFIX: Final = OWN_PREFIX + "topics/"
LEASES_PREFIX: Final = OWN_PREFIX + "leases/"

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1

_KEY: Final = re.compile(
    r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})-([a-zA-Z0-9_-]{22})/"
    r"(\d{20})-([a-zA-Z0-9_-]{22})(\.[a-z_]+)",
    re.ASCII,
)


class ObjectKind(StrEnum):
    """What an object of a segment has, by the end of its key."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    LEADER_EPOCHS = ".leader_epoch_checkpoint"


WRITE_ORDER: Final = tuple(ObjectKind)
"""The leader epochs come last: a segment whose epochs are there is there whole.

Deletion goes the other way: the epochs first, so that what is left never looks complete.
"""

_KINDS: Final = {str(kind): kind for kind in ObjectKind}


class SegmentKey(NamedTuple):
    """What the key of an object of a segment says."""

    partition: TopicIdPartition
    start_offset: int
    id: SegmentId
    kind: ObjectKind


class OwnKey(NamedTuple):
    """The key of an object of ours that belongs to no segment."""

    name: str
    """The rest of the key, below `.headrace/`."""


def partition_prefix(partition: TopicIdPartition) -> str:
    """Return what the keys of a partition begin with, the slash included."""
    return f"{partition.topic}-{partition.index}-{topic_id_text(partition.topic_id)}/"


def segment_prefix(partition: TopicIdPartition, start_offset: int, segment_id: SegmentId) -> str:
    """Return what the keys of a segment begin with: all but the kind."""
    segment = topic_id_text(TopicId(segment_id))
    return f"{partition_prefix(partition)}{start_offset:020d}-{segment}"


def object_key(segment: RemoteSegment, kind: ObjectKind) -> str:
    """Return the key of an object of a segment."""
    return segment_prefix(segment.partition, segment.start_offset, segment.id) + kind


def topic_key(topic_id: TopicId) -> str:
    """Return the key of the object that describes a topic."""
    return f"{TOPICS_PREFIX}{topic_id_text(topic_id)}.json"


def lease_key(lease_id: str) -> str:
    """Return the key of a reader's lease."""
    return f"{LEASES_PREFIX}{lease_id}.json"


def parse_key(key: str) -> SegmentKey | OwnKey | None:
    """Return what a key says, None if it is foreign.

    A key that we would not write ourselves is foreign, even if it is similar: nobody knows whose
    it is.
    """
    if key.startswith(OWN_PREFIX):
        return OwnKey(key.removeprefix(OWN_PREFIX))
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    topic, index, topic_id, offset, segment_id, suffix = match.groups()
    kind = _KINDS.get(suffix)
    if kind is None or int(offset) > MAX_OFFSET or int(index) > MAX_PARTITION:
        return None
    partition = TopicIdPartition(
        parse_topic_id(topic_id), TopicName(topic), PartitionIndex(int(index))
    )
    parsed = SegmentKey(partition, int(offset), SegmentId(parse_topic_id(segment_id)), kind)
    written = segment_prefix(partition, parsed.start_offset, parsed.id) + kind
    return parsed if written == key else None
