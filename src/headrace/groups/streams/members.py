"""A member of a streams group (KIP-1071): its properties, its tasks and its state.

Members are never changed, only replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from headrace.groups.heartbeats import JOINING_EPOCH
from headrace.groups.state import MemberId
from headrace.groups.streams.tasks import NOTHING_TO_RUN, TaskId, Tasks


class MemberState(IntEnum):
    """How far a member is on its way to the target, by Kafka's numbers."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has been told to give up tasks and has not said yet that it did."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others, or others of its own process, still have."""
    UNKNOWN = 127
    """A newer software knows what it is."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a member answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member: what it said, and what it has."""

    member_id: MemberId
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    """Members of one process share the folder of its state: of a task one of them has a copy."""
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NOTHING_TO_RUN
    revoking: Tasks = NOTHING_TO_RUN
    """What it has to give up and still may have."""
    active_epochs: Mapping[TaskId, int] = field(default_factory=dict)
    """The epoch at which the member got each active task that it has or is giving up."""

    @property
    def held(self) -> Tasks:
        """All tasks that it may be running."""
        return self.assigned.joined(self.revoking)

    def described(self) -> tuple[object, ...]:
        """Return what the client sent: the contents of its member record."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topology_epoch,
            self.process_id,
            self.endpoint,
            self.client_tags,
        )

    def progress(self) -> tuple[object, ...]:
        """Return its progress: the contents of its current assignment record."""
        return (self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch
