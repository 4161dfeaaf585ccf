"""The share session that a member has with one node: its epoch, and what it asks for (KIP-932).

Pure. A session opens with epoch 0 and ends with -1; in between each request of the member, fetch or
acknowledgement, has the next number. The broker remembers the partitions, so a request names only
those that are new and those that are not wanted any more.
"""

from collections.abc import Set
from typing import Final, NamedTuple

from headrace.client.topics import TopicPartition
from headrace.ids import TopicId

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class SharedPartition(NamedTuple):
    """A partition of the assignment: a topic that was made anew is another one."""

    topic_id: TopicId
    topic: str
    partition_index: int

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition_index)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition_index}"


class FetchPlan(NamedTuple):
    """What a fetch says of its session."""

    epoch: int
    added: Set[SharedPartition]
    forgotten: Set[SharedPartition]


def epoch_after(epoch: int) -> int:
    """Give the epoch of the next request: 0 would open a session, so 1 comes after the largest."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class ShareSession:
    """One session, as the broker will have it when everything that was sent is answered."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions: frozenset[SharedPartition] = frozenset()
        """What the broker fetches from."""

    @property
    def is_new(self) -> bool:
        """Whether the next request opens it. Such a request cannot acknowledge anything."""
        return self.epoch == INITIAL_EPOCH

    def plan(self, wanted: Set[SharedPartition]) -> FetchPlan:
        """Say how a fetch makes the broker ask for `wanted` and nothing else."""
        return FetchPlan(self.epoch, wanted - self.partitions, self.partitions - wanted)

    def fetched(self, wanted: Set[SharedPartition]) -> None:
        """Take note that a fetch with this plan was answered."""
        self.partitions = frozenset(wanted)
        self.epoch = epoch_after(self.epoch)

    def acknowledged(self) -> None:
        """Take note that a request without fetching was answered."""
        self.epoch = epoch_after(self.epoch)

    def reset(self) -> None:
        """Begin anew: the broker does not know the session, or not this far."""
        self.epoch = INITIAL_EPOCH
        self.partitions = frozenset()
