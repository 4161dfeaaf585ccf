"""The names of things: no raw int or str crosses a package.

A topic id is sixteen plain bytes, as on the wire: the cheapest thing to compare and to look up.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple, NewType

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
UNKNOWN_OFFSET: Final = -1
"""The start of an unread share partition: its leader resolves it."""

GROUPS_TOPIC: Final = TopicName("__consumer_offsets")
TRANSACTIONS_TOPIC: Final = TopicName("__transaction_state")
SHARE_STATES_TOPIC: Final = TopicName("__share_group_state")
REMOTE_METADATA_TOPIC: Final = TopicName("__remote_log_metadata")
UNTIERED_TOPICS: Final = frozenset(
    (GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATES_TOPIC, REMOTE_METADATA_TOPIC)
)
"""Topics that are never in the tier, whatever their configs say."""

_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)


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


class SharePartitionKey(NamedTuple):
    """One partition of a topic as one group sees it."""

    group_id: str
    topic_id: TopicId
    partition: PartitionIndex

    @property
    def text(self) -> str:
        """The key as FindCoordinator has it, and as its coordinator is chosen by."""
        return f"{self.group_id}:{topic_id_text(self.topic_id)}:{self.partition}"


def parse_share_partition(text: str) -> SharePartitionKey:
    """Read what `text` wrote, or raise ValueError. The group may have colons in it."""
    group_id, topic_id, partition = ("", "", *text.rsplit(":", 2))[-3:]
    if not group_id or not _NUMBER.fullmatch(partition):
        raise ValueError(f"{text!r} is no share partition: group:topic id:partition is")
    return SharePartitionKey(group_id, parse_topic_id(topic_id), PartitionIndex(int(partition)))
