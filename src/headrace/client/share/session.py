"""A member's share session with one node: its epoch and its partitions (KIP-932).

Pure. A session opens with epoch 0 and ends with -1; in between each request of the member, fetch or
acknowledgement, has the next epoch. The broker remembers the partitions, so a request names only
added and removed ones.
"""

from collections.abc import Set
from typing import Final, NamedTuple

from headrace.client.topics import TopicPartition
from headrace.ids import TopicId

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class SharedPartition(NamedTuple):
    """A partition of the assignment; a recreated topic is a different one."""

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
    """Return the epoch of the next request; the largest wraps around to 1, as 0 opens a session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class ShareSession:
    """One session, as the broker will have it after all requests sent so far."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions: frozenset[SharedPartition] = frozenset()
        """What the broker fetches from."""

    @property
    def is_new(self) -> bool:
        """Whether the next request opens it. Such a request cannot acknowledge."""
        return self.epoch == INITIAL_EPOCH

    def plan(self, wanted: Set[SharedPartition]) -> FetchPlan:
        """Return the changes of a fetch that set the session's partitions to `wanted`."""
        return FetchPlan(self.epoch, wanted - self.partitions, self.partitions - wanted)

    def fetched(self, wanted: Set[SharedPartition]) -> None:
        """Record that a fetch with this plan got its response."""
        self.partitions = frozenset(wanted)
        self.epoch = epoch_after(self.epoch)

    def acknowledged(self) -> None:
        """Record that an acknowledgement request got its response."""
        self.epoch = epoch_after(self.epoch)

    def reset(self) -> None:
        """Start over: the broker does not know the session, or not this epoch."""
        self.epoch = INITIAL_EPOCH
        self.partitions = frozenset()
