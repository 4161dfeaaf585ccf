"""The eight responses of seed 002, and the header that each begins with.

The tag of a class is its number on the wire. Numbers from 64 up are for messages of our own:
one more class with such a tag in `ClusterResponse` is all that it takes.
"""

from typing import TypeAlias

from headrace.cluster.protocol.errors import ClusterErrorCode
from headrace.cluster.protocol.names import NodeId, PartitionName
from headrace.cluster.protocol.postcard import I64, U16, U32, U64, Buffer, Form


class ResponseHeader(Form, frozen=True):
    correlation_id: U64
    """That of the request."""
    error_code: U16 = ClusterErrorCode.NONE
    """A number, as a peer may know codes that ClusterErrorCode lacks."""
    error_message: str | None = None

    @property
    def is_success(self) -> bool:
        return self.error_code == ClusterErrorCode.NONE


class PartitionMetadata(Form, frozen=True):
    partition_index: U32
    leader_id: NodeId | None
    leader_epoch: U64
    replica_nodes: tuple[NodeId, ...]
    isr_nodes: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]


class TopicMetadata(Form, frozen=True):
    name: str
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool


class BrokerMetadata(Form, frozen=True):
    node_id: NodeId
    host: str
    port: U16
    rack: str | None


class Metadata(Form, frozen=True, tag=0):
    """Answers FetchMetadata."""

    header: ResponseHeader
    cluster_id: str
    controller_id: NodeId | None
    topics: tuple[TopicMetadata, ...]
    brokers: tuple[BrokerMetadata, ...]


class MetadataProposal(Form, frozen=True, tag=1):
    """Answers ProposeMetadata."""

    header: ResponseHeader


class Fetch(Form, frozen=True, tag=2):
    """Answers Fetch."""

    header: ResponseHeader
    partition: PartitionName
    high_watermark: U64
    log_start_offset: U64
    records: Buffer
    """Kafka's record batches."""


class Append(Form, frozen=True, tag=3):
    """Answers Append."""

    header: ResponseHeader
    partition: PartitionName
    base_offset: U64
    log_append_time: I64
    """Milliseconds since 1970, or -1."""


class ReplicaStateAck(Form, frozen=True, tag=4):
    """Answers ReplicaState."""

    header: ResponseHeader
    partition: PartitionName
    in_sync: bool


class ElectLeader(Form, frozen=True, tag=5):
    """Answers ElectLeader."""

    header: ResponseHeader
    partition: PartitionName
    leader: NodeId | None
    epoch: U64


class Heartbeat(Form, frozen=True, tag=6):
    """Answers Heartbeat."""

    header: ResponseHeader


class Error(Form, frozen=True, tag=7):
    """Answers any request that failed before its own response could be made."""

    header: ResponseHeader


ClusterResponse: TypeAlias = (
    Metadata | MetadataProposal | Fetch | Append | ReplicaStateAck | ElectLeader | Heartbeat | Error
)
