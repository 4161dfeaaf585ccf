"""The names of things: no raw int or str crosses a package.

A topic id is sixteen plain bytes, as on the wire: the cheapest thing to compare and to look up.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NewType

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", bytes)
PartitionIndex = NewType("PartitionIndex", int)
BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)

ZERO_TOPIC_ID: Final = TopicId(bytes(16))
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)


def topic_id_text(topic_id: TopicId) -> str:
    """Write a topic id as Kafka's tools do: 22 characters of URL-safe base64, unpadded."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """Read what `topic_id_text` wrote; ValueError if it is not sixteen bytes."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16 or len(text) != 22:
        raise ValueError(f"{text!r} is not a topic id: 22 characters of URL-safe base64 are")
    return TopicId(raw)
