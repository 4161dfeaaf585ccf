"""A member of a share group, as its requests and answers look on the wire."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.errors import ErrorCode
from headrace.ids import UNKNOWN_OFFSET, PartitionIndex, SharePartitionKey, TopicId
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.records.builder import BatchBuilder
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from headrace.share.durable import StateSummary
from headrace.wire.messages import share_acknowledge_request as acknowledging
from headrace.wire.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from tests.unit.harness import Harness

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
LATEST = 2
NOW_MS = 1_700_000_000_000
TURNS_MAX = 20
"""How many turns of the loop it takes, at most, until what is due is done."""

Ack = tuple[int, int, int | list[int]]
"""The first and the last offset, and what is said of them."""


class Row(NamedTuple):
    """What an answer says of a partition."""

    error: str
    ack_error: str
    acquired: list[tuple[int, int, int]]
    values: list[bytes | None]
    """The records that were acquired."""


class Member:
    """One member with a session, over partitions of one topic."""

    def __init__(
        self,
        harness: Harness,
        topic_id: bytes,
        member_id: str = "member-1",
        group_id: str = "group",
    ) -> None:
        self.harness = harness
        self.topic_id = topic_id
        self.member_id = member_id
        self.group_id = group_id
        self.epoch = 0
        self.peer = type(harness.peer)(harness.node.dispatcher)

    def disconnect(self) -> None:
        async def run() -> None:
            self.peer.close("gone")

        self.harness.run(run())

    # Fetching

    def fetch(self, *partitions: int, **options: Any) -> dict[int, Row]:
        """Fetch in the session; give what the answer says, which must be no error."""
        answer = self.harness.run(self.fetch_async(*partitions, **options))
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        return rows(answer)

    def fetch_error(self, *partitions: int, **options: Any) -> str:
        """Give the error of the whole answer."""
        answer = self.harness.run(self.fetch_async(*partitions, **options))
        return ErrorCode(answer.error_code).name

    async def fetch_async(
        self,
        *partitions: int,
        acks: dict[int, list[Ack]] | None = None,
        forgotten: tuple[int, ...] = (),
        epoch: int | None = None,
        version: int = LATEST,
        **fields: Any,
    ) -> Any:
        named = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=_types(types)
                    )
                    for first, last, types in (acks or {}).get(index, [])
                ],
            )
            for index in dict.fromkeys((*partitions, *(acks or {})))
        ]
        request = ShareFetchRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch if epoch is None else epoch,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": [FetchTopic(topic_id=self.topic_id, partitions=named)] if named else [],
                "forgotten_topics_data": (
                    [ForgottenTopic(topic_id=self.topic_id, partitions=list(forgotten))]
                    if forgotten
                    else []
                ),
                **fields,
            }
        )
        answer = await self.harness.ask_async(request, version, self.peer)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    # Acknowledging

    def acknowledge(self, index: int, *acks: Ack, **options: Any) -> str:
        """Say something of records of a partition; give the name of the error."""
        answer = self.harness.run(self.acknowledge_async({index: list(acks)}, **options))
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        return ErrorCode(answer.responses[0].partitions[0].error_code).name

    async def acknowledge_async(
        self,
        acks: dict[int, list[Ack]],
        *,
        epoch: int | None = None,
        version: int = LATEST,
        **fields: Any,
    ) -> Any:
        partitions = [
            acknowledging.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    acknowledging.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=_types(types)
                    )
                    for first, last, types in batches
                ],
            )
            for index, batches in acks.items()
        ]
        topic = acknowledging.AcknowledgeTopic(topic_id=self.topic_id, partitions=partitions)
        request = acknowledging.ShareAcknowledgeRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch if epoch is None else epoch,
                "topics": [topic] if partitions else [],
                **fields,
            }
        )
        answer = await self.harness.ask_async(request, version, self.peer)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer


def rows(answer: Any) -> dict[int, Row]:
    """Give what an answer to a fetch of one topic says, by partition."""
    return {
        row.partition_index: Row(
            ErrorCode(row.error_code).name,
            ErrorCode(row.acknowledge_error_code).name,
            [
                (each.first_offset, each.last_offset, each.delivery_count)
                for each in row.acquired_records
            ],
            [
                value
                for offset, value in _records(row.records)
                if any(a.first_offset <= offset <= a.last_offset for a in row.acquired_records)
            ],
        )
        for topic in answer.responses
        for row in topic.partitions
    }


def initialize(
    harness: Harness,
    topic_id: TopicId,
    *indexes: int,
    group_id: str = "group",
    start_offset: int = UNKNOWN_OFFSET,
    state_epoch: int = 1,
) -> None:
    """Begin share partitions, as the coordinator of a group does when it assigns them."""

    async def run() -> None:
        for index in indexes or (0,):
            key = SharePartitionKey(group_id, topic_id, PartitionIndex(index))
            done = asyncio.get_running_loop().create_future()
            harness.broker.persister.initialize(key, state_epoch, start_offset, done.set_result)
            assert await done is None

    harness.run(run())


def finished_up_to(harness: Harness, topic_id: TopicId, group_id: str = "group") -> int:
    """Give how far a share partition, of which only a prefix is finished, durably is.

    As in Kafka the start that is written is the one from before the write.
    """

    async def run() -> Any:
        done = asyncio.get_running_loop().create_future()
        key = SharePartitionKey(group_id, topic_id, PartitionIndex(0))
        harness.broker.persister.read_summary(key, -1, done.set_result)
        return await done

    found = harness.run(run())
    assert isinstance(found, StateSummary), found
    return found.start_offset + found.delivery_complete_count


def append(harness: Harness, *values: bytes, index: int = 0, timestamp: int = NOW_MS) -> None:
    """Append one batch."""

    async def run() -> None:
        append_now(harness, *values, index=index, timestamp=timestamp)

    harness.run(run())


def append_now(harness: Harness, *values: bytes, index: int = 0, timestamp: int = NOW_MS) -> None:
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.append(timestamp, b"key-%d" % number, value)
    partition = harness.partition("orders", index)
    partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)


def _types(types: int | list[int]) -> list[int]:
    return types if isinstance(types, list) else [types]


def _records(data: Any) -> Iterator[tuple[int, bytes | None]]:
    for position, header in read_headers(data):
        if not header.is_control:
            batch = data[position : position + header.size_bytes]
            for record in read_records(batch, header):
                yield record.offset, record.value


def configure(harness: Harness, group_id: str = "group", **configs: str) -> None:
    """Set configs of a group; `_` stands for `.` in their names."""
    values: dict[str, str | None] = {
        name.replace("_", "."): value for name, value in configs.items()
    }
    change = SetConfigs(ResourceType.GROUP, group_id, values)
    harness.run(harness.broker.quorum.propose(change))


def move_clock(harness: Harness, milliseconds: int) -> None:
    """Let time have passed, and everything that was due be done."""

    async def run() -> None:
        harness.clock.advance(milliseconds)
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)

    harness.run(run())
