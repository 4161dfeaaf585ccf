"""What one partition of `__share_group_state` knows: a state for each share partition.

A `ShareState` is what the last snapshot and the updates behind it say. Beside it is what the
records' own place in the log says: how many updates a snapshot is behind, and from where on the
log is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from headrace.config import AnySettings
from headrace.coordinator.deadlines import Deadlines
from headrace.coordinator.machine import Reply
from headrace.ids import UNKNOWN_OFFSET, SharePartitionKey, TopicId
from headrace.metadata.image import Image
from headrace.share.durable import DurableState, StateBatch, StateSummary, StateWrite
from headrace.share.state.merging import merge_batches


class ShareState(Struct, frozen=True):
    """The durable state of one share partition."""

    snapshot_epoch: int
    """Grows with every snapshot."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    """When the state of the last snapshot was new."""
    written_ms: int
    """When the last snapshot was written: later, if nothing had changed and it was for the log's
    sake."""
    batches: tuple[StateBatch, ...] = ()

    @property
    def is_cold(self) -> bool:
        """Whether the last snapshot was written though nothing was new."""
        return self.created_ms != self.written_ms

    @property
    def durable(self) -> DurableState:
        return DurableState(
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.batches,
        )

    @property
    def summary(self) -> StateSummary:
        return StateSummary(
            self.state_epoch, self.leader_epoch, self.start_offset, self.delivery_complete_count
        )


@dataclass(slots=True)
class ShareStates:
    """The share partitions of one partition of the topic."""

    settings: AnySettings
    image_of: Callable[[], Image]
    prune: Reply[int]
    """Takes the offset below which no record is needed any more: the shell's part."""
    states: dict[SharePartitionKey, ShareState] = field(default_factory=dict)
    keys_of: dict[TopicId, dict[SharePartitionKey, None]] = field(default_factory=dict)
    """The keys of `states`, by topic."""
    update_counts: dict[SharePartitionKey, int] = field(default_factory=dict)
    """How many updates there are since the last snapshot."""
    snapshot_offsets: dict[SharePartitionKey, int] = field(default_factory=dict)
    """Where the last snapshot is in the log."""
    end_offset: int = 0
    """Behind the last record."""
    deadlines: Deadlines[str | TopicId] = field(default_factory=Deadlines)

    @property
    def redundant_offset(self) -> int:
        """The offset below which every record is made redundant by a later one."""
        return min(self.snapshot_offsets.values(), default=self.end_offset)

    def exists(self, key: SharePartitionKey) -> bool:
        """Whether the cluster has the partition that a share partition is of."""
        topic = self.image_of().topic_by_id(key.topic_id)
        return topic is not None and 0 <= key.partition < len(topic.partitions)


def merged(state: ShareState, write: StateWrite) -> ShareState:
    """Give a state with a change; an unknown start leaves it where it is."""
    start_offset = (
        state.start_offset if write.start_offset == UNKNOWN_OFFSET else write.start_offset
    )
    return msgspec.structs.replace(
        state,
        leader_epoch=write.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=write.delivery_complete_count,
        batches=merge_batches(state.batches, write.batches, start_offset),
    )


def snapshotted(state: ShareState, now_ms: int) -> ShareState:
    """Give a state as a new snapshot has it."""
    return msgspec.structs.replace(
        state, snapshot_epoch=state.snapshot_epoch + 1, created_ms=now_ms, written_ms=now_ms
    )
