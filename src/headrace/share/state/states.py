"""The states in one partition of `__share_group_state`, one per share partition.

A `ShareState` is the last snapshot with its updates applied. Next to it is what the offsets of the
records determine: how many updates follow a snapshot, and from where on the log is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from headrace.config import AnySettings
from headrace.coordinator.machine import Reply
from headrace.ids import UNKNOWN_OFFSET, SharePartitionKey, TopicId
from headrace.loop.deadlines import Deadlines
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
    """When the state last changed before the last snapshot."""
    written_ms: int
    """When the last snapshot was written: later, if nothing had changed and it was for the log's
    sake."""
    batches: tuple[StateBatch, ...] = ()

    @property
    def is_cold(self) -> bool:
        """Whether the last snapshot was written without a change."""
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
    """Called with the offset below which no record is needed any more; set by the shell."""
    states: dict[SharePartitionKey, ShareState] = field(default_factory=dict)
    keys_of: dict[TopicId, dict[SharePartitionKey, None]] = field(default_factory=dict)
    """The keys of `states`, by topic."""
    update_counts: dict[SharePartitionKey, int] = field(default_factory=dict)
    """The number of updates since the last snapshot."""
    snapshot_offsets: dict[SharePartitionKey, int] = field(default_factory=dict)
    """The offset of the last snapshot."""
    end_offset: int = 0
    """The offset after the last record."""
    deadlines: Deadlines[str | TopicId] = field(default_factory=Deadlines)

    @property
    def redundant_offset(self) -> int:
        """The offset below which every record is superseded by a later one."""
        return min(self.snapshot_offsets.values(), default=self.end_offset)

    def exists(self, key: SharePartitionKey) -> bool:
        """Return whether the partition of a share partition exists."""
        topic = self.image_of().topic_by_id(key.topic_id)
        return topic is not None and 0 <= key.partition < len(topic.partitions)


def merged(state: ShareState, write: StateWrite) -> ShareState:
    """Return a state with a change merged in; an unknown start keeps the current one."""
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
    """Return a state as a new snapshot has it."""
    return msgspec.structs.replace(
        state, snapshot_epoch=state.snapshot_epoch + 1, created_ms=now_ms, written_ms=now_ms
    )
