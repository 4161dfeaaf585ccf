"""Requests that scripts send often, in few words. One request serves every version of its API."""

import time
from typing import Final

import msgspec

from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

T0: Final = int(time.time() * 1000) - 60_000
"""The time of the first record of a script: past, but not so far that retention takes it."""

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

TIMEOUT_MS: Final = 5_000


class Topic(msgspec.Struct, frozen=True):
    """A topic as requests name it: by its name in older versions, by its id in newer ones."""

    name: str
    id: bytes = bytes(16)


class Producer(msgspec.Struct, frozen=True):
    """Who a batch says that it is from."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


ANONYMOUS: Final = Producer()


def batch(
    *values: bytes | None,
    codec: Compression = Compression.NONE,
    timestamp: int = T0,
    producer: Producer = ANONYMOUS,
    is_keyed: bool = True,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Build a batch of records one millisecond apart, keyed by their number."""
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        time_ms = timestamp + number if timestamp >= 0 else timestamp
        builder.append(time_ms, b"%d" % number if is_keyed else None, value)
    return bytes(
        builder.build(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            is_transactional=is_transactional,
            is_control=is_control,
        )
    )


def produce(
    topic: Topic,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.id,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


def fetch(
    *topics: FetchTopic,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics),
    )


def from_offset(
    topic: Topic,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchTopic:
    return FetchTopic(
        topic=topic.name,
        topic_id=topic.id,
        partitions=[
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=max_bytes,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
        ],
    )


def list_offsets(
    topic: Topic, *partitions: tuple[int, int], leader_epoch: int = -1, isolation_level: int = 0
) -> ListOffsetsRequest:
    rows = [
        ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
        )
        for partition, timestamp in partitions
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic.name, partitions=rows)],
        timeout_ms=TIMEOUT_MS,
    )


def metadata(*names: str, is_auto_created: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=is_auto_created,
    )


def creatable(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )


def delete(*names: str, ids: tuple[bytes, ...] = (), version: int = 6) -> DeleteTopicsRequest:
    """Deletes by name, or by id, which exists from version 6 on."""
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    rows = [DeleteTopicState(name=name) for name in names]
    rows += [DeleteTopicState(topic_id=topic_id) for topic_id in ids]
    return DeleteTopicsRequest(topics=rows, timeout_ms=TIMEOUT_MS)
