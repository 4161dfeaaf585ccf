"""What the image holds: the rows that entries make and a snapshot carries.

Only facts are here, each once; what can be computed from them is an index of `image`. Rows are
frozen, and a change puts a new one in the place of the old, so a handler may keep a row for as long
as it likes. Dictionaries keep the order of the log, which makes snapshots of equal images equal.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from headrace.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.metadata.descriptors import (
    DescriptorId,
    DescriptorLease,
    Hlc,
    UInt16,
    UInt32,
    UInt64,
)
from headrace.metadata.phases import Phase

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Bytes16 = Annotated[bytes, Meta(min_length=16, max_length=16)]

NO_LEADER: Final = BrokerId(-1)
METADATA_GROUP: Final = 0
"""The replication group of this log; those of partitions follow."""


class Partition(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """The replicas and the leader of a partition."""

    replicas: tuple[BrokerId, ...]
    """In order of preference: the first leads if it can."""
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    """`NO_LEADER` if none can lead."""
    vshard_id: UInt32
    """The slot in the routing table, never used again."""
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    partition_epoch: int = 0
    """One more with each change."""
    adding: tuple[BrokerId, ...] = ()
    """Replicas that copy and do not count yet: the group's learners."""
    removing: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    """Replicas outside of the ISR that have all that is committed (KIP-966)."""
    last_known_elr: tuple[BrokerId, ...] = ()
    is_recovering: bool = False
    """Whether an unclean leader has yet to recover its log (KIP-704)."""


class Topic(Struct, array_like=True, forbid_unknown_fields=True):
    """A topic and its partitions, the place of each being its index."""

    name: TopicName
    topic_id: TopicId
    partitions: list[Partition]
    is_internal: bool = False
    version: int = 1
    """The descriptor version that leases are held on: changed configs or partitions add one."""


class Endpoint(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a broker listens."""

    listener: str
    host: str
    port: UInt16
    security_protocol: UInt16


class Broker(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A broker as it registered itself."""

    broker_id: BrokerId
    broker_epoch: int
    """One more with each registration in the cluster: it fences a broker's former lives."""
    incarnation_id: Bytes16
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: dict[str, tuple[int, int]] = {}
    """The lowest and highest version of each feature that the broker supports."""
    is_fenced: bool = True
    is_shutting_down: bool = False
    log_dirs: tuple[Bytes16, ...] = ()
    node_name: str = ""
    """Its id in the node-to-node protocol, where ids are text."""


class ResourceType(IntEnum):
    """What has configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AclPattern(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an ACL is about, by Kafka's numbers."""

    resource_type: int
    pattern_type: int
    name: str


class Acl(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An ACL: principal, operation and host, with Kafka's codes."""

    pattern: AclPattern
    principal: str
    host: str
    operation: int
    permission: int


class ScramCredential(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a SCRAM login is checked against; never the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationToken(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A token that represents its owner (KIP-48)."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int
    hmac: bytes


class NodeState(IntEnum):
    """By seed 004's numbers. Nothing enters JOINING: a node joins as a learner."""

    JOINING = 0
    ACTIVE = 1
    DRAINING = 2
    DECOMMISSIONED = 3
    LEARNER = 4


class Node(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node of the cluster."""

    node_id: UInt64
    addr: str
    state: NodeState


class ReplicationGroup(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The nodes that replicate something together."""

    leader: int | None
    """None if not known; zero is a node like any other, unlike in seed 004."""
    members: tuple[int, ...]
    learners: tuple[int, ...] = ()


class Drain(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Versions of a descriptor that get no new leases."""

    up_to_version: UInt64
    expires_at: Hlc


class TokenStatus(IntEnum):
    """Where a join token is in its life."""

    ISSUED = 0
    IN_FLIGHT = 1
    CONSUMED = 2
    EXPIRED = 3
    ABORTED = 4


class JoinTokenState(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What became of a join token."""

    status: TokenStatus
    expires_at_ms: int
    attempt: int = 0
    """How often a node began to join with it."""
    node_addr: str | None = None
    """The address of the node that joins, or joined, with this token."""
    consumed_at_ms: int | None = None


class MigrationRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far the move of a partition is."""

    phase: Phase
    attempt: UInt32
    ts_ms: UInt64
    """When the last checkpoint was taken."""
    vshard: UInt32
    group_id: UInt64
    source_node: UInt64
    target_node: UInt64
    started_at: Hlc
    write_pause_budget_us: UInt64
    former_leader: int | None
    """The leader when the migration started."""


class GhostStub(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a partition moved to, for requests that still reach its source."""

    source_node: UInt64
    target_node: UInt64


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type and name, None being the default of the type; in order of the type."""


class ImageState(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that a snapshot carries; fields with their default are omitted.

    See `snapshot` before adding a field here or to a row.
    """

    applied_index: int = 0
    cluster_id: str = ""
    cluster_version: UInt16 = 0
    catalog_entries_applied: int = 0
    """DDLs in the log so far, refused ones included."""
    topics: dict[TopicName, Topic] = {}
    next_vshard: int = 0
    regrouped: dict[int, int] = {}
    """Vshards whose group is not the one after their own number."""
    brokers: dict[BrokerId, Broker] = {}
    next_broker_epoch: int = 0
    configs: dict[tuple[ResourceType, str], dict[str, str]] = {}
    features: dict[str, int] = {}
    acls: dict[AclPattern, tuple[Acl, ...]] = {}
    scram_credentials: dict[tuple[str, int], ScramCredential] = {}
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    delegation_tokens: dict[str, DelegationToken] = {}
    surrogate_hwm: UInt32 = 0
    nodes: dict[int, Node] = {}
    topology_version: int = 0
    metadata_group: ReplicationGroup = ReplicationGroup(None, ())
    leases: dict[DescriptorId, dict[int, DescriptorLease]] = {}
    drains: dict[DescriptorId, Drain] = {}
    ca_certificates: dict[bytes, bytes] = {}
    join_tokens: dict[bytes, JoinTokenState] = {}
    migrations: dict[str, MigrationRow] = {}
    finished_migrations: dict[str, str] = {}
    """How the last ones ended, so that a late checkpoint does not start one again."""
    ghosts: dict[int, GhostStub] = {}
