"""Reading and appending of whole batches, one or many partitions at a time."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import refusal
from headrace.client.mirror.positions import Extent
from headrace.client.offsets import CONSUMER_REPLICA_ID, READ_UNCOMMITTED, Start, list_offsets
from headrace.client.outcomes import Outcomes
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId
from headrace.wire import ApiKey
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse, PartitionData
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.mirror_records import ACKS_KEEP_OFFSETS, Front, encode_front

PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of one partition is fetched at once, unless one batch is larger."""
FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
WAIT_MS: Final = 250
"""How long a source waits for new records before it responds without."""
ALONE_WAIT_MS: Final = 10_000
"""How long it waits, asked for one partition, for records that it has, in a slow tier perhaps."""
END_WAIT_MS: Final = 1000
"""Likewise where compaction may have removed them."""
THROTTLE_MS_MIN: Final = 50
THROTTLE_MS_MAX: Final = 10_000
"""How long to wait, at the least and at the most, after a response without any partition."""
ACK_TIMEOUT_MS: Final = 30_000
"""How long the target's replicas may take to have what was appended."""
_FETCHES_BY_ID_FROM: Final = 13
_PRODUCES_BY_ID_FROM: Final = 13
_EPOCHS_FROM: Final = 12
_ANY_IDS: Final[Mapping[str, TopicId]] = {}


class Wanted(msgspec.Struct, frozen=True):
    """Where to read a partition."""

    offset: int
    last_epoch: int = -1
    """The leader epoch of the record before it, so that a broker sees if it lacks that record."""


async def fetch(
    cluster: Cluster,
    node_id: int,
    wanted: Mapping[TopicPartition, Wanted],
    *,
    wait_ms: int = 0,
    partition_bytes_max: int = PARTITION_BYTES_MAX,
    topic_ids: Mapping[str, TopicId] = _ANY_IDS,
) -> dict[TopicPartition, PartitionData]:
    """Return what the leader of some partitions has there; raise NotReachable or KafkaError.

    Topics are those with `topic_ids`, where not zeros, and not others of the same name; a broker
    before Kafka 3.1 knows names only. A partition may be missing in what is returned: a broker that
    throttles its client responds without any, and this waits as long as it says.
    """
    connection = await cluster.connection(node_id)
    version = connection.version_of(ApiKey.FETCH)
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, index), each in wanted.items():
        row = FetchPartition(
            partition=index, fetch_offset=each.offset, partition_max_bytes=partition_bytes_max
        )
        if version >= _EPOCHS_FROM:
            row.last_fetched_epoch = each.last_epoch
        topics.setdefault(topic, []).append(row)
    ids = {name: _id_of(cluster, name, topic_ids) for name in topics}
    body = FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=READ_UNCOMMITTED,
        topics=[
            FetchTopic(topic=name, topic_id=ids[name], partitions=rows)
            for name, rows in topics.items()
        ],
    )
    answer = await connection.request(body, FetchResponse, patience_ms=wait_ms)
    if answer.error_code:
        raise refusal(answer.error_code, None, f"a fetch from {connection.address}")
    if not answer.responses:
        pause_ms = min(max(answer.throttle_time_ms, THROTTLE_MS_MIN), THROTTLE_MS_MAX)
        await asyncio.sleep(pause_ms / 1000)
        return {}
    names = {topic_id: name for name, topic_id in ids.items()}
    by_id = version >= _FETCHES_BY_ID_FROM
    rows: dict[TopicPartition, PartitionData] = {}
    for found in answer.responses:
        name = names.get(TopicId(found.topic_id)) if by_id else found.topic
        if name is not None:
            rows.update(
                (TopicPartition(name, row.partition_index), row) for row in found.partitions
            )
    return rows


def _id_of(cluster: Cluster, name: str, topic_ids: Mapping[str, TopicId]) -> TopicId:
    given = topic_ids.get(name, ZERO_TOPIC_ID)
    return cluster.view.topic_id(name) if given == ZERO_TOPIC_ID else given


async def fetch_row(
    cluster: Cluster,
    partition: TopicPartition,
    wanted: Wanted,
    *,
    wait_ms: int,
    bytes_max: int = PARTITION_BYTES_MAX,
    topic_id: TopicId = ZERO_TOPIC_ID,
) -> PartitionData:
    """Return what a partition has at an offset, which may be an error or nothing.

    Raise KafkaError if its leader responds without it until the API timeout is over.
    """
    retries = Retries(cluster.settings)
    while True:
        leader = await cluster.leader(*partition)
        rows = await fetch(
            cluster,
            leader.leader_id,
            {partition: wanted},
            wait_ms=wait_ms,
            partition_bytes_max=bytes_max,
            topic_ids={partition.topic: topic_id},
        )
        row = rows.get(partition)
        if row is not None:
            return row
        if not await retries.pause():
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {leader.leader_id} responds to fetches without {partition}: does a quota "
                "throttle this client?",
            )


async def fetch_one(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    *,
    bytes_max: int,
    wait_ms: int,
    topic_id: TopicId = ZERO_TOPIC_ID,
) -> memoryview:
    """Return batches of a partition from an offset on; raise KafkaError if it is refused.

    At least one batch, if there is one; none if the broker cannot read it within `wait_ms`.
    """
    row = await fetch_row(
        cluster,
        partition,
        Wanted(offset),
        wait_ms=wait_ms,
        bytes_max=bytes_max,
        topic_id=topic_id,
    )
    if row.error_code:
        raise refusal(row.error_code, None, f"partition {partition}")
    return memoryview(row.records or b"")


async def extents(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> Outcomes[TopicPartition, Extent]:
    """Return where partitions begin and end."""
    wanted = list(partitions)
    starts = await list_offsets(cluster, dict.fromkeys(wanted, int(Start.BEGINNING)))
    ends = await list_offsets(cluster, dict.fromkeys(wanted, int(Start.END)))
    found: Outcomes[TopicPartition, Extent] = {}
    for partition in wanted:
        start, end = starts[partition], ends[partition]
        if isinstance(start, KafkaError):
            found[partition] = start
        elif isinstance(end, KafkaError):
            found[partition] = end
        else:
            found[partition] = Extent(start.offset, max(start.offset, end.offset))
    return found


class Piece(msgspec.Struct, frozen=True):
    """Batches for one partition of the target."""

    partition: TopicPartition
    front: Front
    records: memoryview


async def append(
    cluster: Cluster, node_id: int, pieces: Sequence[Piece]
) -> Outcomes[TopicPartition, int]:
    """Append batches at their offsets; return the end of each log when its replicas have them.

    Raise NotReachable without a response: then the batches may be there, or some of them.
    """
    connection = await cluster.connection(node_id)
    version = connection.version_of(ApiKey.PRODUCE)
    topics: dict[str, list[PartitionProduceData]] = {}
    for piece in pieces:
        records = b"".join((encode_front(piece.front), piece.records))
        row = PartitionProduceData(index=piece.partition.partition, records=records)
        topics.setdefault(piece.partition.topic, []).append(row)
    ids = {name: cluster.view.topic_id(name) for name in topics}
    body = ProduceRequest(
        acks=ACKS_KEEP_OFFSETS,
        timeout_ms=ACK_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(name=name, topic_id=ids[name], partition_data=rows)
            for name, rows in topics.items()
        ],
    )
    answer = await connection.request(body, ProduceResponse, patience_ms=ACK_TIMEOUT_MS)
    names = {topic_id: name for name, topic_id in ids.items()}
    by_id = version >= _PRODUCES_BY_ID_FROM
    outcomes: Outcomes[TopicPartition, int] = {}
    for topic in answer.responses:
        name = names[TopicId(topic.topic_id)] if by_id else topic.name
        for each in topic.partition_responses:
            partition = TopicPartition(name, each.index)
            outcomes[partition] = (
                refusal(each.error_code, each.error_message, f"partition {partition}")
                if each.error_code
                else each.base_offset
            )
    return outcomes
