"""Full windows of many share partitions, held by one member made of bare requests."""

import asyncio
import base64
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from bench.broker_group_members import open_connection_to
from bench.broker_servers import Server
from headrace.client.connection import Connection
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

WINDOW_RECORDS: Final = 2000
PARTITIONS: Final = 1000
SCATTERED_PARTITIONS: Final = 100
ACKNOWLEDGED_AT_ONCE: Final = 5
"""Partitions in one request: a thousand rows each."""
DEADLINE_SECONDS: Final = 55.0
"""Before locks of a minute end."""
HEARTBEAT_SECONDS: Final = 0.1
FETCH_BYTES_MAX: Final = 50 * 2**20
FETCH_WAIT_MS: Final = 500
_ACCEPT: Final = 1


class Windows(NamedTuple):
    """What a broker's memory grew by, in MiB."""

    acquired: float
    """While a member holds all records, in the batches in which they were written."""
    scattered: float
    """More, when every second record of a hundred is accepted: each offset has its own state."""


async def hold_windows(server: Server, group: str, topic: str) -> Windows:
    """Acquire 2,000 records of each of a topic's partitions; accept every second one of some."""
    connection = await open_connection_to(server.port)
    try:
        member = _Member(connection, group, topic)
        await member.join()
        before = server.resident_mib()
        await member.acquire_all()
        held = server.resident_mib()
        await member.accept_every_second()
        return Windows(held - before, server.resident_mib() - held)
    finally:
        connection.close()


class _Member:
    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        # A version 4 Uuid as Kafka writes it, which does not begin with a dash.
        self._id = base64.urlsafe_b64encode(b"\x01" + os.urandom(15)).decode().rstrip("=")
        self._topic_id = b""
        self._session_epoch = 0
        self._deadline = 0.0

    async def join(self) -> None:
        """Wait until all partitions are assigned to this member."""
        self._deadline = time.monotonic() + DEADLINE_SECONDS
        await self._until(self._find_coordinator)
        epoch = 0

        async def is_assigned() -> bool:
            nonlocal epoch
            answer = await self._connection.request(
                ShareGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=self._id,
                    member_epoch=epoch,
                    subscribed_topic_names=[self._topic],
                ),
                ShareGroupHeartbeatResponse,
            )
            epoch = answer.member_epoch
            for row in answer.assignment.topic_partitions if answer.assignment else ():
                self._topic_id = row.topic_id
                return len(row.partitions) == PARTITIONS
            return False

        await self._until(is_assigned)

    async def _find_coordinator(self) -> bool:
        """Create the internal topic of groups, if it does not exist."""
        answer = await self._connection.request(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group]),
            FindCoordinatorResponse,
        )
        return not answer.coordinators[0].error_code

    async def _until(self, is_done: Callable[[], Awaitable[bool]]) -> None:
        while not await is_done():
            if time.monotonic() > self._deadline:
                sys.exit(f"group {self._group} was not assigned its partitions in time")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def acquire_all(self) -> None:
        self._deadline = time.monotonic() + DEADLINE_SECONDS
        left = PARTITIONS * WINDOW_RECORDS
        topics = [
            FetchTopic(
                topic_id=self._topic_id,
                partitions=[FetchPartition(partition_index=index) for index in range(PARTITIONS)],
            )
        ]
        while left > 0:
            answer = await self._connection.request(
                ShareFetchRequest(
                    group_id=self._group,
                    member_id=self._id,
                    share_session_epoch=self._session_epoch,
                    max_wait_ms=FETCH_WAIT_MS,
                    min_bytes=1,
                    max_bytes=FETCH_BYTES_MAX,
                    max_records=left,
                    batch_size=WINDOW_RECORDS,
                    topics=topics,
                ),
                ShareFetchResponse,
            )
            topics = []
            self._session_epoch += 1
            left -= sum(
                acquired.last_offset - acquired.first_offset + 1
                for topic in answer.responses
                for partition in topic.partitions
                for acquired in partition.acquired_records
            )
            if answer.error_code or time.monotonic() > self._deadline:
                sys.exit(f"{left} records were not acquired: {answer.error_message}")

    async def accept_every_second(self) -> None:
        batches = [
            AcknowledgementBatch(offset, offset, [_ACCEPT])
            for offset in range(1, WINDOW_RECORDS, 2)
        ]
        for indexes in _portions(range(SCATTERED_PARTITIONS), ACKNOWLEDGED_AT_ONCE):
            rows = [AcknowledgePartition(index, batches) for index in indexes]
            answer = await self._connection.request(
                ShareAcknowledgeRequest(
                    group_id=self._group,
                    member_id=self._id,
                    share_session_epoch=self._session_epoch,
                    topics=[AcknowledgeTopic(self._topic_id, rows)],
                ),
                ShareAcknowledgeResponse,
            )
            self._session_epoch += 1
            codes = {row.error_code for topic in answer.responses for row in topic.partitions}
            if answer.error_code or codes != {0}:
                sys.exit(f"records were not accepted: {answer.error_code}, {codes}")


def _portions(numbers: Iterable[int], size: int) -> Iterable[list[int]]:
    rest = iter(numbers)
    while portion := list(islice(rest, size)):
        yield portion
