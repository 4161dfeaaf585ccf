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
        """Answer the state; who led with a smaller epoch may not write any more."""

    def write_state(self, key: SharePartitionKey, write: StateWrite, reply: Reply[None]) -> None:
        """Merge a change; answers None once it is durable."""

    def read_summary(
        self, key: SharePartitionKey, leader_epoch: int, reply: Reply[StateSummary]
    ) -> None:
        """Answer the summary."""

    def delete(self, key: SharePartitionKey, reply: Reply[None]) -> None:
        """Forget a share partition; answers None, also if there was none."""


class MemberConnection(Protocol):
    """The connection of a share group member."""

    address: str
    """Where it comes from, as `host:port`."""
    on_close: dict[Callable[[], None], None]
    """Called once when the connection ends."""
