"""A member of a classic group: what it sent when it joined, and its assignment from the leader.

Static members (KIP-345) have an instance id: their membership outlives their process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.groups.state import MemberId
from headrace.wire.messages.group_metadata_value import MemberMetadata
from headrace.wire.messages.join_group_request import JoinGroupRequestProtocol


class OfferedProtocol(NamedTuple):
    """One way of assigning that a member can follow, with what it tells the leader for it.

    Nothing here reads the metadata: it belongs to the clients, be they consumers, workers of
    Connect or a schema registry.
    """

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joiner:
    """The client that wants to join, apart from what its request says."""

    client_id: str
    client_host: str
    fetches_id: bool = True
    """Whether it rejoins with the id that it is given (version 4 on)."""
    skips_assignment: bool = True
    """Whether it understands that it leads but is not to assign (version 9 on)."""


@dataclass(slots=True)
class ClassicMember:
    """One member."""

    member_id: MemberId
    instance_id: str | None
    """The instance id of a static member (KIP-345), whose place outlives its process."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    """What it can follow, what it likes best first."""
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has not been told its generation yet, and so cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def row(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        """Return the member as a record holds it."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )


def read_member(row: MemberMetadata, protocol_name: str | None) -> ClassicMember:
    """Return the member that a record holds: only the chosen protocol is known."""
    has_rebalance_timeout = row.rebalance_timeout >= 0
    return ClassicMember(
        MemberId(row.member_id),
        row.group_instance_id,
        row.client_id,
        row.client_host,
        rebalance_timeout_ms=row.rebalance_timeout
        if has_rebalance_timeout
        else row.session_timeout,
        session_timeout_ms=row.session_timeout,
        protocols=(OfferedProtocol(protocol_name or "", bytes(row.subscription)),),
        assignment=bytes(row.assignment),
    )


def read_protocols(offered: Iterable[JoinGroupRequestProtocol]) -> tuple[OfferedProtocol, ...]:
    """Return the protocols of a request, as bytes that outlive the request."""
    return tuple(OfferedProtocol(each.name, bytes(each.metadata)) for each in offered)
