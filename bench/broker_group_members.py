"""Members of groups made of bare requests: they never pause, so that a broker's time shows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final
from uuid import uuid4

from headrace.client.addresses import Address
from headrace.client.connection import Connection, open_connection
from headrace.client.errors import raise_for
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.messages.sync_group_response import SyncGroupResponse

SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 60_000
HEARTBEAT_SECONDS: Final = 0.02
"""Between two heartbeats of a member that waits for others: 50 of them are no load."""
IN_FLIGHT_MAX: Final = 200
_ASSIGNOR: Final = "bench"


async def open_connection_to(port: int) -> Connection:
    return await open_connection(Address("127.0.0.1", port), ClientSettings())


class ClassicMember:
    """A member whose leader gives each member a count of partitions, as many bytes as it needs."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.member_id = ""
        self._connection = connection
        self._group = group
        self._metadata = topic.encode()

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int, group: str, topic: str) -> AsyncIterator["ClassicMember"]:
        connection = await open_connection_to(port)
        try:
            yield cls(connection, group, topic)
        finally:
            connection.close()

    async def run(
        self,
        shares: dict[str, tuple[int, int]],
        is_done: Callable[[], bool],
        partitions: int,
    ) -> None:
        """Join, note generation and count of partitions, and join again when told to."""
        while not is_done():
            generation = await self._join(shares, partitions)
            if generation is None:
                continue
            while not is_done():
                body = HeartbeatRequest(
                    group_id=self._group, generation_id=generation, member_id=self.member_id
                )
                answer = await self._connection.request(body, HeartbeatResponse)
                if answer.error_code:
                    break
                await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _join(self, shares: dict[str, tuple[int, int]], partitions: int) -> int | None:
        """Join and sync once; give the generation, or None if that has to be done again."""
        body = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=_ASSIGNOR,
            protocols=[JoinGroupRequestProtocol(name=_ASSIGNOR, metadata=self._metadata)],
        )
        patience_ms = REBALANCE_TIMEOUT_MS
        joined = await self._connection.request(body, JoinGroupResponse, patience_ms=patience_ms)
        if joined.member_id:
            self.member_id = joined.member_id
        if joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
            return None
        raise_for(joined.error_code, None, "a join")
        assignments = []
        if joined.leader == self.member_id:
            every, more = divmod(partitions, len(joined.members))
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=row.member_id, assignment=bytes(every + (number < more))
                )
                for number, row in enumerate(joined.members)
            ]
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = await self._connection.request(sync, SyncGroupResponse, patience_ms=patience_ms)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        raise_for(answer.error_code, None, "a sync")
        shares[self.member_id] = joined.generation_id, len(answer.assignment)
        return joined.generation_id


class ConsumerMember:
    """A member of the consumer protocol that takes and gives up what it is told to, at once."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        self._member_id = uuid4().hex

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int, group: str, topic: str) -> AsyncIterator["ConsumerMember"]:
        connection = await open_connection_to(port)
        try:
            yield cls(connection, group, topic)
        finally:
            connection.close()

    async def run(self, shares: dict[str, int], is_done: Callable[[], bool]) -> None:
        """Heartbeat until all partitions are with their members; note the count of its own."""
        epoch = 0
        owned: list[TopicPartitions] = []
        while not is_done():
            body = ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=epoch,
                topic_partitions=owned,
            )
            if epoch == 0:
                body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
                body.subscribed_topic_names = [self._topic]
            answer = await self._connection.request(body, ConsumerGroupHeartbeatResponse)
            raise_for(answer.error_code, answer.error_message, "a heartbeat")
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = [
                    TopicPartitions(topic_id=row.topic_id, partitions=list(row.partitions))
                    for row in answer.assignment.topic_partitions
                ]
                shares[self._member_id] = sum(len(row.partitions) for row in owned)
            else:
                await asyncio.sleep(HEARTBEAT_SECONDS)


async def heartbeat_many(
    connection: Connection, epochs: dict[str, int], topic: str | None
) -> dict[str, int]:
    """Send a heartbeat for the one member of each group; a join if it names a topic.

    Gives the epochs that the groups' members have now.
    """

    async def one(group: str, epoch: int) -> tuple[str, int]:
        body = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=f"{group}-member", member_epoch=epoch
        )
        if topic is not None:
            body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            body.subscribed_topic_names = [topic]
            body.topic_partitions = []
        answer = await connection.request(body, ConsumerGroupHeartbeatResponse)
        raise_for(answer.error_code, answer.error_message, f"the heartbeat of {group}")
        return group, answer.member_epoch

    left = iter(epochs.items())
    found: dict[str, int] = {}
    while some := list(islice(left, IN_FLIGHT_MAX)):
        found.update(await asyncio.gather(*(one(group, epoch) for group, epoch in some)))
    return found
