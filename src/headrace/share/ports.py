"""The seam between the leader of a share partition and the keeper of its state.

Every call ends with `reply(answer)`: the result, or the KafkaError that it failed with. Local
states reply without a task; states on other nodes are reached over the network.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.coordinator.machine import Reply
from headrace.ids import SharePartitionKey
from headrace.share.durable import DurableState, StateSummary, StateWrite


class Persister(Protocol):
    """Keeps the states of share partitions."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Reply[None]
    ) -> None:
        """Initialize a share partition; reply None."""

    def read_state(
        self, key: SharePartitionKey, leader_epoch: int, reply: Reply[DurableState]
    ) -> None:
        """Reply the state; fence writers with a smaller leader epoch."""

    def write_state(self, key: SharePartitionKey, write: StateWrite, reply: Reply[None]) -> None:
        """Merge a change; reply None once it is durable."""

    def read_summary(
        self, key: SharePartitionKey, leader_epoch: int, reply: Reply[StateSummary]
    ) -> None:
        """Reply the summary."""

    def delete(self, key: SharePartitionKey, reply: Reply[None]) -> None:
        """Delete a share partition; reply None, also if there was none."""


class MemberConnection(Protocol):
    """The connection of a share group member."""

    address: str
    """The client's address, as `host:port`."""
    on_close: dict[Callable[[], None], None]
    """Called once when the connection closes."""
