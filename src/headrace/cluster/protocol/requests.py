"""The seven requests of seed 002, and the header that each begins with.

The tag of a class is its number on the wire. Numbers from 64 up are for messages of our own:
one more class with such a tag in `ClusterRequest` is all that it takes.
"""

from enum import IntEnum, unique
from typing import Final, TypeAlias

from headrace.cluster.protocol.commands import MetadataCommand
from headrace.cluster.protocol.names import NodeId, PartitionName
from headrace.cluster.protocol.postcard import U16, U32, U64, Buffer, Form

PROTOCOL_VERSION: Final = 1
DEFAULT_TIMEOUT_MS: Final = 30_000


@unique
class Acks(IntEnum):
    """The replicas that must have a record before the response; the value is the wire's index."""

    NONE = 0
    LEADER = 1
    ALL = 2

    @property
    def required_acks(self) -> int:
        """The number that Kafka's Produce has for it: 0, 1 or -1."""
        return -1 if self is Acks.ALL else self.value

    @classmethod
    def of_required_acks(cls, number: int) -> "Acks":
        """Return what a number of Kafka's means; ValueError for any but 0, 1 and -1.

        Seed 002 takes any other number for `LEADER`.
        """
        if number not in (0, 1, -1):
            raise ValueError(f"acks is {number}, not 0, 1 or -1")
        return cls.ALL if number == -1 else cls(number)


class RequestHeader(Form, frozen=True, kw_only=True):
    version: U16 = PROTOCOL_VERSION
    correlation_id: U64
    """What the response is matched by."""
    source: NodeId
    """The node that asks."""
    timeout_ms: U32 = DEFAULT_TIMEOUT_MS


class FetchMetadata(Form, frozen=True, tag=0):
    """`responses.Metadata` of some topics, or of all if `topics` is None."""

    header: RequestHeader
    topics: tuple[str, ...] | None


class ProposeMetadata(Form, frozen=True, tag=1):
    """A change of the metadata, for the controller (`responses.MetadataProposal`)."""

    header: RequestHeader
    command: MetadataCommand


class Fetch(Form, frozen=True, tag=2):
    """Records of a partition from its leader (`responses.Fetch`)."""

    header: RequestHeader
    partition: PartitionName
    offset: U64
    max_bytes: U32
    """A wish: a response is never above MESSAGE_BYTES_MAX."""


class Append(Form, frozen=True, tag=3):
    """Records for a partition (`responses.Append`)."""

    header: RequestHeader
    partition: PartitionName
    records: Buffer
    """Kafka's record batches."""
    required_acks: Acks


class ReplicaState(Form, frozen=True, tag=4):
    """How far a follower is (`responses.ReplicaStateAck`)."""

    header: RequestHeader
    partition: PartitionName
    log_end_offset: U64
    high_watermark: U64


class ElectLeader(Form, frozen=True, tag=5):
    """A leader for a partition (`responses.ElectLeader`)."""

    header: RequestHeader
    partition: PartitionName
    preferred_leader: NodeId | None


class HeartbeatPartition(Form, frozen=True):
    partition: PartitionName
    leader_epoch: U64
    high_watermark: U64


class Heartbeat(Form, frozen=True, tag=6):
    """From a leader to followers (`responses.Heartbeat`)."""

    header: RequestHeader
    partitions: tuple[HeartbeatPartition, ...]


ClusterRequest: TypeAlias = (
    FetchMetadata | ProposeMetadata | Fetch | Append | ReplicaState | ElectLeader | Heartbeat
)
