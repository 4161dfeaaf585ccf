"""The seam between the leader of a share partition and whoever keeps its state.

Every call ends with `reply(answer)`: the answer, or the KafkaError that it failed with. Local
states answer without a task; a node that leads another partition of the topic than the one asked
for goes over the network.
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
        """Begin a share partition; answers None."""

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
    """The connection of a member of a share group."""

    address: str
    """Where it comes from, as `host:port`."""
    on_close: dict[Callable[[], None], None]
    """Called once when the connection ends."""
