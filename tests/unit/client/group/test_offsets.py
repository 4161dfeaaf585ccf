"""Commits as a member: when they are tried again, and as who."""

import asyncio
from collections import deque
from typing import Any, cast

import pytest

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.group.link import CoordinatorLink
from headrace.client.group.offsets import CommitFailed, GroupOffsets
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.settings import ClientSettings
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.wire import ApiKey
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest
from headrace.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.client.loops import on_a_loop

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
TOPIC_ID = TopicId(bytes(range(16)))
QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=1, topic_wait_ms=20)


class Coordinator:
    """Answers with the codes of a script, for each partition, and with success after that."""

    def __init__(self, *script: int | type[NotReachable]) -> None:
        self.script = deque(script)
        self.requests: list[OffsetCommitRequest] = []
        self.forgotten = 0
        self.cluster = Cluster("127.0.0.1:1", QUICK)
        self.group_id = "group"
        self.version = 10

    async def connection(self) -> "Coordinator":
        return self

    def forget(self) -> None:
        self.forgotten += 1

    def version_of(self, key: ApiKey) -> int:
        return self.version

    async def request(self, body: Any, _: object, *, version: int) -> Any:
        if isinstance(body, OffsetFetchRequest):
            return self._fetched(body)
        self.requests.append(body)
        code = self.script.popleft() if self.script else 0
        if not isinstance(code, int):
            raise code("gone")
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name if version < 10 else "",
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=code
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    def _fetched(self, body: OffsetFetchRequest) -> OffsetFetchResponse:
        group = body.groups[0]
        code = self.script.popleft() if self.script else 0
        assert isinstance(code, int)
        assert group.topics is not None
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    error_code=code,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            partitions=[
                                OffsetFetchResponsePartitions(
                                    partition_index=index,
                                    committed_offset=7 if index == 0 else -1,
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics
                    ],
                )
            ]
        )


class Member:
    """Whose epoch grows when it is told that it is behind."""

    def __init__(self) -> None:
        self.epoch = 1

    def identify(self) -> GroupMetadata:
        return GroupMetadata("group", self.epoch, "me", "till")

    def catch_up(self) -> None:
        self.epoch += 1


def offsets_at(coordinator: Coordinator, member: Member) -> GroupOffsets:
    offsets = GroupOffsets(cast(CoordinatorLink, coordinator), member.identify)
    offsets.on_stale = member.catch_up
    return offsets


@on_a_loop
async def test_a_commit_says_who_makes_it_and_names_topics_by_id() -> None:
    coordinator, member = Coordinator(), Member()
    await offsets_at(coordinator, member).commit(
        {ZERO: CommittedOffset(5, 3, "note")}, topic_ids={ZERO: TOPIC_ID}
    )
    (sent,) = coordinator.requests
    assert (sent.generation_id_or_member_epoch, sent.member_id) == (1, "me")
    assert sent.group_instance_id == "till"
    (topic,) = sent.topics
    assert (topic.topic_id, topic.partitions[0].committed_offset) == (TOPIC_ID, 5)
    assert topic.partitions[0].committed_metadata == "note"


@on_a_loop
async def test_a_stale_epoch_is_tried_again_with_the_new_one_while_the_partition_is_ours() -> None:
    coordinator, member = Coordinator(ErrorCode.STALE_MEMBER_EPOCH), Member()
    await offsets_at(coordinator, member).commit(
        {ZERO: CommittedOffset(5)}, topic_ids={ZERO: TOPIC_ID}
    )
    assert [sent.generation_id_or_member_epoch for sent in coordinator.requests] == [1, 2]


@on_a_loop
async def test_a_stale_epoch_is_not_tried_again_for_a_partition_that_went_to_another() -> None:
    coordinator, member = Coordinator(*[ErrorCode.STALE_MEMBER_EPOCH] * 9), Member()
    ours: dict[TopicPartition, TopicId | None] = {ZERO: TOPIC_ID, ONE: TOPIC_ID}
    offsets = offsets_at(coordinator, member)
    offsets.on_stale = lambda: ours.__delitem__(ONE)
    with pytest.raises(CommitFailed, match="another member's by now"):
        await offsets.commit({ONE: CommittedOffset(5)}, topic_ids=ours)
    assert len(coordinator.requests) == 1


@on_a_loop
async def test_a_lost_connection_is_not_followed_by_a_commit_for_what_went_to_another() -> None:
    coordinator, member = Coordinator(NotReachable), Member()
    ours: dict[TopicPartition, TopicId | None] = {ZERO: TOPIC_ID, ONE: TOPIC_ID}

    def lose_one_and_join_again() -> None:
        del ours[ONE]
        member.catch_up()

    coordinator.forget = lose_one_and_join_again  # type: ignore[method-assign]
    with pytest.raises(CommitFailed, match="another member's by now"):
        await offsets_at(coordinator, member).commit({ONE: CommittedOffset(5)}, topic_ids=ours)
    assert len(coordinator.requests) == 1


@on_a_loop
async def test_a_commit_that_waits_for_another_is_not_made_for_what_went_to_another() -> None:
    coordinator, member = Coordinator(NotReachable, ErrorCode.STALE_MEMBER_EPOCH), Member()
    ours: dict[TopicPartition, TopicId | None] = {ZERO: TOPIC_ID, ONE: TOPIC_ID}
    offsets = offsets_at(coordinator, member)
    offsets.on_stale = lambda: ours.__delitem__(ONE)
    outcomes = await asyncio.gather(
        offsets.commit({ZERO: CommittedOffset(5)}, topic_ids=ours),
        offsets.commit({ONE: CommittedOffset(5)}, topic_ids=ours),
        return_exceptions=True,
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], CommitFailed)
    committed = {
        row.partition_index for sent in coordinator.requests for row in sent.topics[0].partitions
    }
    assert committed == {0}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_who_may_not_commit_is_told_so_at_once(code: ErrorCode) -> None:
    @on_a_loop
    async def test() -> None:
        coordinator = Coordinator(code)
        with pytest.raises(CommitFailed) as failed:
            await offsets_at(coordinator, Member()).commit({ZERO: CommittedOffset(5)})
        assert failed.value.code == code
        assert len(coordinator.requests) == 1

    test()


@on_a_loop
async def test_a_coordinator_that_moves_or_is_gone_is_looked_for() -> None:
    coordinator = Coordinator(
        ErrorCode.NOT_COORDINATOR, NotReachable, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    await offsets_at(coordinator, Member()).commit({ZERO: CommittedOffset(5)})
    assert (len(coordinator.requests), coordinator.forgotten) == (4, 2)


@on_a_loop
async def test_a_topic_that_stays_away_is_not_waited_for_for_long() -> None:
    coordinator = Coordinator(*[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000)
    with pytest.raises(KafkaError, match="orders-0") as failed:
        await offsets_at(coordinator, Member()).commit({ZERO: CommittedOffset(5)})
    assert failed.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_a_loop
async def test_topics_without_a_known_id_go_by_name() -> None:
    coordinator = Coordinator()
    await offsets_at(coordinator, Member()).commit({ZERO: CommittedOffset(5)})
    assert coordinator.requests[0].topics[0].name == "orders"


@on_a_loop
async def test_what_is_committed_is_read_and_what_is_not_is_none() -> None:
    coordinator = Coordinator(ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH)
    found = await offsets_at(coordinator, Member()).committed([ZERO, ONE])
    assert found == {ZERO: CommittedOffset(7), ONE: None}
