"""A member of a share group (KIP-932): its subscription and its assignment.

Members are never changed, only replaced.
"""

from dataclasses import dataclass, field

from headrace.groups.assignors import Assignment
from headrace.groups.heartbeats import JOINING_EPOCH
from headrace.groups.state import MemberId


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member: what it said, and what it has."""

    member_id: MemberId
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Subscribed to, in order."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    assigned: Assignment = field(default_factory=dict)

    def described(self) -> tuple[object, ...]:
        """Return what the client sent: the contents of its member record."""
        return (self.rack_id, self.client_id, self.client_host, self.topic_names)
