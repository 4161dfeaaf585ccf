"""Offsets of partitions: where they begin, where they end, what was written since some time."""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import refusal
from headrace.client.leaders import ask_leaders, by_topic
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
CONSUMER_REPLICA_ID = -1


class Start(IntEnum):
    """Places in a partition that need no number; in Kafka's requests they are timestamps."""

    END = -1
    BEGINNING = -2


class FoundOffset(msgspec.Struct, frozen=True):
    """An offset and the timestamp of its record: both -1 if no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], *, is_committed: bool = False
) -> Outcomes[TopicPartition, FoundOffset]:
    """Look offsets up: a `Start`, or ms since 1970 for the first record at that time or later.

    With `is_committed` the end is where a reader of committed records stops now.
    """

    async def ask(
        node_id: int, group: list[TopicPartition]
    ) -> Outcomes[TopicPartition, FoundOffset]:
        body = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index, timestamp=times[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(group).items()
            ],
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        connection = await cluster.connection(node_id)
        answer = await connection.request(body, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, row.partition_index): refusal(
                row.error_code, None, f"partition {topic.name}-{row.partition_index}"
            )
            if row.error_code
            else FoundOffset(row.offset, row.timestamp, row.leader_epoch)
            for topic in answer.topics
            for row in topic.partitions
        }

    return await ask_leaders(cluster, times, ask)


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition, int]:
    """Return where these leader epochs end in the log, or the ones before them that it has.

    -1 if the log has none. An end below an offset that was read under that epoch means that the
    log was cut off there since (KIP-320).
    """

    async def ask(node_id: int, group: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
        body = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=index, leader_epoch=epochs[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(group).items()
            ],
        )
        connection = await cluster.connection(node_id)
        answer = await connection.request(body, OffsetForLeaderEpochResponse)
        return {
            TopicPartition(topic.topic, row.partition): refusal(
                row.error_code, None, f"partition {topic.topic}-{row.partition}"
            )
            if row.error_code
            else row.end_offset
            for topic in answer.topics
            for row in topic.partitions
        }

    return await ask_leaders(cluster, epochs, ask)


async def delete_records(
    cluster: Cluster, up_to: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition, int]:
    """Delete what lies before these offsets (-1: everything); give where partitions begin now."""

    async def ask(node_id: int, group: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
        body = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=index, offset=up_to[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(group).items()
            ],
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        connection = await cluster.connection(node_id)
        answer = await connection.request(body, DeleteRecordsResponse, patience_ms=body.timeout_ms)
        return {
            TopicPartition(topic.name, row.partition_index): refusal(
                row.error_code, None, f"partition {topic.name}-{row.partition_index}"
            )
            if row.error_code
            else row.low_watermark
            for topic in answer.topics
            for row in topic.partitions
        }

    return await ask_leaders(cluster, up_to, ask)
