"""The state of one partition of `__consumer_offsets`, for groups of every kind.

It is changed by replaying records. Anything beside them (deadlines, pending responses) is lost with
it, and members rejoin. Each kind of group has its own module of operations on this state.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, NewType, Protocol, TypeAlias

from headrace.config import AnySettings
from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.offsets.store import Offsets
from headrace.groups.offsets.walk import OffsetWalk
from headrace.ids import TopicId
from headrace.loop.deadlines import Deadlines
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)


class GroupKind(Enum):
    """The protocol that a group's members speak, by Kafka's names in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(Protocol):
    """What every kind of group has."""

    group_id: GroupId
    kind: GroupKind

    @property
    def state_name(self) -> str:
        """As Kafka's tools print it: `Stable`, `Empty` and so on."""

    @property
    def protocol_type(self) -> str:
        """What ListGroups shows: `consumer`, `share`, `connect` and so on."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member wants a topic: its offsets are not expired or deleted then."""


class HeldHeartbeat(NamedTuple):
    """A heartbeat that waits for the first partitions of its member."""

    member_id: MemberId
    reply: Reply[ShareGroupHeartbeatResponse]
    until_ms: int


DeadlineKey: TypeAlias = tuple[str, ...]
"""What is due, in the word of the module that handles it, then of which group and member."""
PartitionCheck: TypeAlias = Callable[[TopicId, int], None]
"""Raises the KafkaError that a commit is refused with for the sake of one partition."""


@dataclass(slots=True)
class GroupsState:
    """Groups and offsets of one partition."""

    settings: AnySettings
    image_of: Callable[[], Image]
    new_id: Callable[[], str]
    """Returns a new unique id, such as a member's: an input, so that a seed repeats it."""
    groups: dict[GroupId, Group] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=Offsets)
    deadlines: Deadlines[DeadlineKey] = field(default_factory=Deadlines)
    compute_elsewhere: Reply["Computation"] | None = None
    """Has something done off the loop; None if there is nowhere else."""
    share_topics: dict[TopicId, dict[GroupId, None]] = field(default_factory=dict)
    """The share groups that know something of the states of a topic's partitions."""
    unexamined: list[GroupId] = field(default_factory=list)
    """Groups whose offsets are still to be looked at for those that are too old."""
    examination: OffsetWalk | None = None
    """How far the last of these was looked at."""
    unforgotten: dict[DeadlineKey, list[str]] = field(default_factory=dict)
    """Groups whose offsets of a deleted topic are still to be deleted."""
    held_heartbeats: dict[GroupId, list[HeldHeartbeat]] = field(default_factory=dict)
    """Heartbeats of share groups that are answered later (`share.holding`). Not in the log."""
    matching: dict[GroupId, "Computation"] = field(default_factory=dict)
    """What matches patterns elsewhere, one at a time for a name of a group. Not in the log."""
    assigning: dict[GroupId, "Computation"] = field(default_factory=dict)
    """What computes targets elsewhere, one at a time for a group. Not in the log."""
    ending: set[str] = field(default_factory=set)
    """Groups that are being deleted in parts. Not in the log: after a load they are served."""

    @property
    def image(self) -> Image:
        return self.image_of()

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the configs of a group (resource GROUP)."""
        return self.image.configs(ResourceType.GROUP, group_id)


class Computation(Protocol):
    """Work that is too much for the loop (`groups.assigning`)."""

    @property
    def group_id(self) -> GroupId: ...

    def compute(self) -> Generator[None, None, Any]:
        """Do it in parts, and return what came of it.

        In a thread, with nothing that anybody changes meanwhile. Between two parts others have
        their turn in that thread, and what nobody wants any more ends.
        """

    def is_wanted(self, state: GroupsState) -> bool:
        """Return whether anybody still waits for it."""

    def finish(self, state: GroupsState, found: Any, now_ms: int) -> Outcome:
        """Write what `compute` returned, None if it failed or ended before. As an operation."""


def check_stays(state: GroupsState, group_id: str) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS if a group is being deleted in parts: clients try again.

    Somebody who joined or committed between two parts would have a group with half its offsets.
    """
    if group_id in state.ending:
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id!r} is being deleted"
        )


def not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
