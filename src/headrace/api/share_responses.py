"""The responses of ShareFetch and ShareAcknowledge, one row per partition."""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.replication.leaders import CurrentLeader, LeaderEndpoint, current_leader, endpoints
from headrace.server.broker import Broker
from headrace.share.partition.types import Acquired
from headrace.share.sessions import PartitionId
from headrace.wire.messages import share_acknowledge_response as acknowledging
from headrace.wire.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

_EMPTY: Final = memoryview(b"")


class ShareFetchAnswer:
    """A builder of the response to a share fetch."""

    __slots__ = ("_leaders", "_rows", "has_records")

    def __init__(self, broker: Broker) -> None:
        self.has_records = False
        self._rows: dict[PartitionId, PartitionData] = {}
        self._leaders = NamedLeaders(broker)

    def has(self, partition_id: PartitionId) -> bool:
        return partition_id in self._rows

    def acquire(
        self, partition_id: PartitionId, records: memoryview, acquired: list[Acquired]
    ) -> None:
        """Hand out records."""
        self.has_records = True
        self._rows[partition_id] = PartitionData(
            partition_index=partition_id[1],
            records=records,
            acquired_records=[AcquiredRecords(*each) for each in acquired],
        )

    def row(self, partition_id: PartitionId) -> PartitionData:
        """Name a partition, if it is not yet."""
        row = self._rows.get(partition_id)
        if row is None:
            row = PartitionData(partition_index=partition_id[1], records=_EMPTY)
            self._rows[partition_id] = row
        return row

    def fail(self, partition_id: PartitionId, error: KafkaError) -> None:
        """Set the error of a partition that cannot be read."""
        row = self.row(partition_id)
        row.error_code, row.error_message = error.code, error.message
        self._name_leader(partition_id, row, error)

    def acknowledge(self, partition_id: PartitionId, error: KafkaError | None) -> None:
        """Set the outcome of a partition's acknowledgements."""
        row = self.row(partition_id)
        if error is not None:
            row.acknowledge_error_code = error.code
            row.acknowledge_error_message = error.message
            self._name_leader(partition_id, row, error)

    def response(self, listener: str, lock_duration_ms: int) -> ShareFetchResponse:
        topics: dict[TopicId, ShareFetchableTopicResponse] = {}
        for (topic_id, _), row in self._rows.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
                topics[topic_id] = topic
            topic.partitions.append(row)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(**each._asdict()) for each in self._leaders.endpoints(listener)
            ],
        )

    def _name_leader(
        self, partition_id: PartitionId, row: PartitionData, error: KafkaError
    ) -> None:
        leader = self._leaders.find(partition_id, error)
        if leader is not None:
            row.current_leader = LeaderIdAndEpoch(**leader._asdict())


def acknowledge_response(
    broker: Broker,
    errors: dict[PartitionId, KafkaError | None],
    listener: str,
    lock_duration_ms: int,
) -> acknowledging.ShareAcknowledgeResponse:
    """Return the response with the outcome of each partition's acknowledgements."""
    topics: dict[TopicId, acknowledging.ShareAcknowledgeTopicResponse] = {}
    leaders = NamedLeaders(broker)
    for partition_id, error in errors.items():
        topic_id, index = partition_id
        row = acknowledging.PartitionData(partition_index=index)
        if error is not None:
            row.error_code, row.error_message = error.code, error.message
            leader = leaders.find(partition_id, error)
            if leader is not None:
                row.current_leader = acknowledging.LeaderIdAndEpoch(**leader._asdict())
        topic = topics.get(topic_id)
        if topic is None:
            topic = acknowledging.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
            topics[topic_id] = topic
        topic.partitions.append(row)
    return acknowledging.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            acknowledging.NodeEndpoint(**each._asdict()) for each in leaders.endpoints(listener)
        ],
    )


class NamedLeaders:
    """The leaders to which a response redirects its client (KIP-951)."""

    __slots__ = ("_broker", "_ids")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ids: set[int] = set()

    def find(self, partition_id: PartitionId, error: KafkaError) -> CurrentLeader | None:
        """Return the leader of a partition, if the error is that this node is not."""
        if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return None
        topic_id, index = partition_id
        topic = self._broker.image.topic_by_id(topic_id)
        if topic is None:
            return None
        leader = current_leader(self._broker.image, topic.name, index)
        self._ids.add(leader.leader_id)
        return leader

    def endpoints(self, listener: str) -> list[LeaderEndpoint]:
        """Return the addresses of the leaders that were named."""
        return endpoints(self._broker.image, self._ids, listener) if self._ids else []
