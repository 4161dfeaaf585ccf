"""ListOffsets: API key 2, versions 1 to 11.

KIP-79 (by time), KIP-98 (isolation levels), KIP-320 (leader epochs), KIP-734 (the largest
timestamp, from 7), KIP-405 (the start of what is local, from 8; the end of what is tiered, from 9),
KIP-1023 (the start of what waits for the tier, from 11). A special timestamp that a version does
not have is UNSUPPORTED_VERSION for its partition. Consumers see what they may read up to, replicas
the end of the log. Only the leader responds, except to tools that debug (replica id -2), which may
ask any replica. KIP-207: a new leader that does not know yet what is committed says so. A lookup by
time reads from the disk and inflates: a thread does both.

Of topics in the tier lookups by time ask the tier first, several at once and for `timeout_ms` in
all (remote.list.offsets.request.timeout.ms if that is not given); the largest timestamp is that of
the local part, as in Kafka.
The work is in `log.lookup`, and in `tier.reading` for what is in the tier.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from headrace.config import REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.lookup import (
    NOT_FOUND,
    Found,
    SpecialTimestamp,
    list_offset,
)
from headrace.loop.slices import Slice, Slices, finish
from headrace.replication.partition import Partition
from headrace.replication.remote_log import find_by_time
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

CONSUMER: Final = -1
"""The replica id that clients send."""
DEBUGGER: Final = -2
"""The replica id of tools that look at any replica."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
FIRST_WITH_LEADER_EPOCH: Final = 4
FIRST_WITH_OFFSET_NOT_AVAILABLE: Final = 5
FIRST_WITH_TIMEOUT: Final = 10
LOOKUPS_AT_ONCE_MAX: Final = 10
"""How many lookups by time of a request wait for the tier or the disk at a time."""
ROWS_A_TURN: Final = 500
"""How many partitions are looked up in one turn of the loop."""
FIRST_VERSION_OF_NAME: Final[dict[int, int]] = {
    SpecialTimestamp.LATEST: 1,
    SpecialTimestamp.EARLIEST: 1,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
_AT_THE_EDGE: Final = (
    SpecialTimestamp.LATEST,
    SpecialTimestamp.EARLIEST,
    SpecialTimestamp.EARLIEST_LOCAL,
    SpecialTimestamp.LATEST_TIERED,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD,
)
"""What a log knows without a look into its files."""
logger = logging.getLogger(__name__)


def handle(
    broker: Broker, request: Request
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    body: ListOffsetsRequest = request.body
    asked_count = 0
    for topic in body.topics:
        asked_count += len(topic.partitions)
        if asked_count > ROWS_A_TURN:
            return _list_in_turns(broker, request)
        for asked in topic.partitions:
            if asked.timestamp not in _AT_THE_EDGE:
                return _list_in_turns(broker, request)
    response = ListOffsetsResponse(topics=[])
    for topic in body.topics:
        rows = [_list_one(broker, request, topic.name, asked) for asked in _once(topic)]
        _add_topic(response, topic, rows)
    return response


async def _list_in_turns(broker: Broker, request: Request) -> ListOffsetsResponse:
    """Answer some partitions per turn, so that neither many nor large ones hold up the loop."""
    body: ListOffsetsRequest = request.body
    response = ListOffsetsResponse(topics=[])
    by_time = await _list_all_by_time(broker, request)
    listed = 0
    for topic in body.topics:
        rows = []
        for asked in _once(topic):
            row = by_time.get((topic.name, asked.partition_index))
            rows.append(_list_one(broker, request, topic.name, asked) if row is None else row)
            listed += 1
            if listed % ROWS_A_TURN == 0:
                await asyncio.sleep(0)
        _add_topic(response, topic, rows)
        listed += 1
        if listed % ROWS_A_TURN == 0:
            await asyncio.sleep(0)
    return response


async def _list_all_by_time(
    broker: Broker, request: Request
) -> dict[tuple[str, int], ListOffsetsPartitionResponse]:
    """Answer for the partitions whose files have to be read, with one deadline for all."""
    deadline = asyncio.get_running_loop().time() + _timeout_ms(broker, request) / 1000
    wanted = await finish(wanted_by_time(request.body.topics))
    waiting = iter(wanted)
    rows: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}

    async def work() -> None:
        for name, asked in waiting:
            row = await _list_by_time(broker, request, name, asked, deadline)
            rows[name, asked.partition_index] = row
            if len(rows) % (ROWS_A_TURN // LOOKUPS_AT_ONCE_MAX) == 0:
                await asyncio.sleep(0)  # partitions that are not here wait for nothing

    await asyncio.gather(*(work() for _ in range(min(len(wanted), LOOKUPS_AT_ONCE_MAX))))
    return rows


def wanted_by_time(
    topics: list[ListOffsetsTopic],
) -> Slices[list[tuple[str, ListOffsetsPartition]]]:
    """Return the partitions, with their topics, whose files have to be read."""
    wanted: list[tuple[str, ListOffsetsPartition]] = []
    current = Slice()
    for topic in topics:
        for asked in _once(topic):
            if asked.timestamp not in _AT_THE_EDGE:
                wanted.append((topic.name, asked))
            if current.spend():
                yield
        if current.spend():
            yield
    return wanted


def _timeout_ms(broker: Broker, request: Request) -> int:
    timeout_ms: int = request.body.timeout_ms
    if request.version < FIRST_WITH_TIMEOUT or timeout_ms <= 0:
        return broker.settings[REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS]
    return timeout_ms


def _once(topic: ListOffsetsTopic) -> list[ListOffsetsPartition]:
    """Return the partitions that are requested exactly once."""
    counts = Counter(asked.partition_index for asked in topic.partitions)
    return [asked for asked in topic.partitions if counts[asked.partition_index] == 1]


def _add_topic(
    response: ListOffsetsResponse,
    topic: ListOffsetsTopic,
    rows: list[ListOffsetsPartitionResponse],
) -> None:
    """Add a topic to the response, with rows for its duplicate partitions too.

    A topic without requested partitions is omitted.
    """
    answered = {row.partition_index for row in rows}
    repeated = {asked.partition_index for asked in topic.partitions} - answered
    rows += [
        ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
        for index in sorted(repeated)
    ]
    if rows:
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))


async def _list_by_time(
    broker: Broker, request: Request, topic: str, asked: ListOffsetsPartition, deadline: float
) -> ListOffsetsPartitionResponse:
    """Answer for a partition whose files have to be read; a thread does that."""
    row = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        _check_timestamp(asked.timestamp, request.version)
        partition = _find(broker, request, TopicName(topic), asked)
        found = await _find_by_time(broker, partition, asked.timestamp, deadline)
    except KafkaError as error:
        row.error_code = error.code
    except OSError as error:
        logger.error("%s-%d: offsets by time: %s", topic, asked.partition_index, error)
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        # From the start: the partition may have another leader by now.
        return _list_one(broker, request, topic, asked, found)
    return row


async def _find_by_time(
    broker: Broker, partition: Partition, timestamp: int, deadline: float
) -> Found | None:
    """Find a record by time; raise KafkaError if the tier takes too long."""
    may_wait = partition.log.settings.is_tiered
    try:
        async with asyncio.timeout_at(deadline if may_wait else None):
            return await find_by_time(
                broker.replicas.remote, partition, timestamp, broker.inflating.run
            )
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{partition.name}: the tier did not find the time before the request's timeout",
        ) from None


def _list_one(
    broker: Broker,
    request: Request,
    topic: str,
    asked: ListOffsetsPartition,
    found: Found | None = None,
) -> ListOffsetsPartitionResponse:
    """Answer for a partition; `found` is what a look-up by time has found."""
    row = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        _check_timestamp(asked.timestamp, request.version)
        partition = _find(broker, request, TopicName(topic), asked)
        row.timestamp, row.offset, leader_epoch = _look_up(
            partition, request, asked.timestamp, found
        )
        if request.version >= FIRST_WITH_LEADER_EPOCH:
            row.leader_epoch = leader_epoch
    except KafkaError as error:
        row.error_code = error.code
    return row


def _find(
    broker: Broker, request: Request, topic: TopicName, asked: ListOffsetsPartition
) -> Partition:
    """Return a partition that may respond; raise KafkaError if it is not here, or may not."""
    return broker.replicas.find_replica(
        topic,
        asked.partition_index,
        asked.current_leader_epoch,
        is_leader_needed=request.body.replica_id != DEBUGGER,
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    first = FIRST_VERSION_OF_NAME.get(timestamp)
    if timestamp < 0 and (first is None or version < first):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"{timestamp} is no timestamp in version {version}"
        )


def _look_up(
    partition: Partition, request: Request, timestamp: int, found_by_time: Found | None
) -> Found:
    """Return the offset of a timestamp; raise KafkaError if it is not known yet."""
    body: ListOffsetsRequest = request.body
    latest_offset = readable_up_to(partition, body.replica_id, body.isolation_level)
    found = list_offset(partition.log, timestamp, latest_offset, found_by_time)
    is_latest = timestamp == SpecialTimestamp.LATEST
    if (is_latest or found is NOT_FOUND) and body.replica_id == CONSUMER:
        _check_committed(partition, request.version)
    return found._replace(leader_epoch=partition.leader_epoch) if is_latest else found


def _check_committed(partition: Partition, version: int) -> None:
    """Raise KafkaError if a new leader does not know yet what its predecessor has committed."""
    in_sync = partition.in_sync
    if in_sync is not None and partition.log.high_watermark < in_sync.start_offset:
        is_old = version < FIRST_WITH_OFFSET_NOT_AVAILABLE
        raise KafkaError(
            ErrorCode.LEADER_NOT_AVAILABLE if is_old else ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.name}: the high watermark has not reached this leader's first offset",
        )


def readable_up_to(partition: Partition, replica_id: int, isolation_level: int) -> int:
    """Return the offset up to which the client may read."""
    log = partition.log
    if replica_id != CONSUMER:
        return log.end_offset
    if isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    if isolation_level == READ_UNCOMMITTED:
        return log.high_watermark
    raise KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {isolation_level}"
    )
