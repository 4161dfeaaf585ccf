"""What a share partition is called: a group, a topic by its id, and a partition of it."""

import re
from typing import Final, NamedTuple

from headrace.ids import PartitionIndex, TopicId, parse_topic_id, topic_id_text

_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)


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
    """Read what `text` wrote; ValueError if it is none. The group may have colons in it."""
    group_id, topic_id, partition = ("", "", *text.rsplit(":", 2))[-3:]
    if not group_id or not _NUMBER.fullmatch(partition):
        raise ValueError(f"{text!r} is no share partition: group:topic id:partition is")
    return SharePartitionKey(group_id, parse_topic_id(topic_id), PartitionIndex(int(partition)))
