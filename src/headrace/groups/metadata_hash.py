"""The metadata hash of a group: one number for everything about its topics that an assignor sees.

If it differs from the one written with the group epoch, a topic was created or deleted, or its
partitions or racks changed, and the group needs a new assignment. It is Kafka's number (KIP-1101):
a coordinator of either kind that loads the other's records sees no change where there is none.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct as Layout
from typing import Final

from xxhash import xxh3_64_intdigest

from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Topic

NO_TOPICS_HASH: Final = 0
TOPICS_KNOWN_MAX: Final = 10_000
"""The most topics whose hash is remembered: groups look again at every change of metadata."""
_MAGIC: Final = b"\0"
_INT32: Final = Layout("<i")
_INT64: Final = Layout("<Q")
_SIGN: Final = 1 << 63


def metadata_hash(topics: Iterable[str], image: Image) -> int:
    """Return the hash of those of the topics that exist; zero if none does."""
    racks = {broker.broker_id: broker.rack for broker in image.brokers() if broker.rack is not None}
    found = [
        _INT64.pack(
            _topic_hash(topic, racks)
            if racks
            else _topic_hash_without_racks(topic.topic_id, topic.name, len(topic.partitions))
        )
        for name in sorted(topics)
        if (topic := image.topic(TopicName(name))) is not None
    ]
    if not found:
        return NO_TOPICS_HASH
    unsigned = xxh3_64_intdigest(b"".join(found))
    return unsigned - 2 * _SIGN if unsigned & _SIGN else unsigned


def _topic_hash(topic: Topic, racks: Mapping[BrokerId, str]) -> int:
    parts = [_topic_start(topic.topic_id, topic.name, len(topic.partitions))]
    for index, partition in enumerate(topic.partitions):
        parts.append(_INT32.pack(index))
        for rack in sorted(racks[each] for each in partition.replicas if each in racks):
            parts += (_INT32.pack(_utf16_units(rack)), _string(rack))
    return xxh3_64_intdigest(b"".join(parts))


@lru_cache(TOPICS_KNOWN_MAX)
def _topic_hash_without_racks(topic_id: TopicId, name: str, partition_count: int) -> int:
    indexes = Layout(f"<{partition_count}i").pack(*range(partition_count))
    return xxh3_64_intdigest(_topic_start(topic_id, name, partition_count) + indexes)


def _topic_start(topic_id: TopicId, name: str, partition_count: int) -> bytes:
    start = (_MAGIC, topic_id[7::-1], topic_id[:7:-1], _string(name), _INT32.pack(partition_count))
    return b"".join(start)


def _string(text: str) -> bytes:
    """Return a string as it is hashed: its UTF-16 units, then their number."""
    return text.encode("utf-16-le", "surrogatepass") + _INT32.pack(_utf16_units(text))


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
