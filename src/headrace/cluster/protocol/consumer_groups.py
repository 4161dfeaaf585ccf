"""A consumer group as UpdateConsumerGroup carries it: a snapshot of the whole group.

Decoded so that a peer of seed 002 is understood; groups of ours live in an internal topic and
are never changed by a metadata command (`headrace.cluster.command_entries`).
"""

from enum import IntEnum, unique

from msgspec import field

from headrace.cluster.protocol.postcard import I64, U32, U64, U128, Buffer, Form


@unique
class GroupState(IntEnum):
    EMPTY = 0
    PREPARING_REBALANCE = 1
    COMPLETING_REBALANCE = 2
    STABLE = 3
    DEAD = 4


@unique
class AssignmentStrategy(IntEnum):
    RANGE = 0
    ROUND_ROBIN = 1
    STICKY = 2


@unique
class RebalanceProtocol(IntEnum):
    """KIP-429: whether members give up all partitions in a rebalance, or those that move."""

    EAGER = 0
    COOPERATIVE = 1


class PartitionAssignment(Form, frozen=True):
    topic: str
    partition: U32


class GroupMember(Form, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None = None
    """KIP-345: the name of a static member."""
    client_id: str
    subscriptions: tuple[str, ...] = ()
    assignment: tuple[PartitionAssignment, ...] = ()
    pending_revocation: tuple[PartitionAssignment, ...] = ()
    last_heartbeat: U128
    """Milliseconds since 1970; the one field of this width. Peers keep the low 64 bits of it."""
    metadata: Buffer = b""
    is_static: bool = False
    supported_protocols: tuple[RebalanceProtocol, ...] = ()


class ConsumerGroup(Form, frozen=True, kw_only=True):
    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: U32 = 0
    leader_id: str | None = None
    protocol_name: str = "consumer"
    assignment_strategy: AssignmentStrategy = AssignmentStrategy.RANGE
    rebalance_protocol: RebalanceProtocol = RebalanceProtocol.EAGER
    members: dict[str, GroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by group instance id."""
    pending_static_members: dict[str, tuple[PartitionAssignment, ...]] = field(default_factory=dict)
    """By group instance id, what a static member had that left and may come back."""
    awaiting_revocation: dict[str, tuple[PartitionAssignment, ...]] = field(default_factory=dict)
    """By member id, what it has to revoke before another member gets it."""
    offsets: dict[str, dict[U32, I64]] = field(default_factory=dict)
    """Committed offsets by topic and partition."""
    session_timeout: U64
    """Milliseconds."""
    rebalance_timeout: U64
    """Milliseconds."""
