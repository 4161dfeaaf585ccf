"""OffsetCommit and TxnOffsetCommit, and OffsetFetch of what they left."""

import asyncio
import errno
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode, KafkaError
from headrace.log.flushing import Flush
from headrace.records.control import build_end_transaction_marker
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.harness import Harness

pytestmark = pytest.mark.parametrize(
    "harness", [{"offsets.topic.num.partitions": "2"}], indirect=True
)
UNKNOWN_ID = b"x" * 16
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def topic_id(harness: Harness) -> bytes:
    """Have a coordinator, and a topic `a` of three partitions."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.run(_load(harness))
    return bytes(harness.create_topic("a", 3))


async def _load(harness: Harness) -> None:
    for shard in harness.broker.groups:
        await shard.loaded()


def commit(
    harness: Harness, *topics: Any, group_id: str = "g", version: int = 9, **who: Any
) -> Any:
    """Commit offset 10 + its index for partitions of topics; give rows as pairs."""
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name if isinstance(name, str) else "",
                topic_id=bytes(16) if isinstance(name, str) else name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=10 + index,
                        committed_metadata=f"m{index}",
                        committed_leader_epoch=4 if version >= 6 else -1,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
        **who,
    )
    return codes(harness.ask(request, version))


def codes(response: Any) -> Any:
    return [
        (
            row.name or getattr(row, "topic_id", ""),
            [(each.partition_index, each.error_code) for each in row.partitions],
        )
        for row in response.topics
    ]


def fetch(harness: Harness, group_id: str = "g", *, version: int = 9, **asked: Any) -> Any:
    """Fetch all offsets of a group: by topic a list of partition, offset, metadata."""
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None, **asked)
    (answer,) = harness.ask(OffsetFetchRequest(groups=[group]), version).groups
    assert answer.error_code == ErrorCode.NONE
    return {
        row.name or row.topic_id: [
            (each.partition_index, each.committed_offset, each.metadata) for each in row.partitions
        ]
        for row in answer.topics
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits_what_exists_and_names_what_does_not(
    harness: Harness, topic_id: bytes, version: int
) -> None:
    if version < 10:
        rows = commit(harness, ("a", [0, 9]), ("nope", [0]), version=version)
        assert rows == [("a", [(9, UNKNOWN), (0, 0)]), ("nope", [(0, UNKNOWN)])]
    else:
        rows = commit(harness, (topic_id, [0, 9]), (UNKNOWN_ID, [0]), version=version)
        assert rows == [
            (topic_id, [(9, UNKNOWN), (0, 0)]),
            (UNKNOWN_ID, [(0, ErrorCode.UNKNOWN_TOPIC_ID)]),
        ]
    assert fetch(harness) == {"a": [(0, 10, "m0")]}
    assert fetch(harness, version=10) == {topic_id: [(0, 10, "m0")]}


def test_rows_of_what_is_missing_come_first(harness: Harness, topic_id: bytes) -> None:
    harness.create_topic("b", 1)
    assert commit(harness, ("b", [0]), ("nope", [0]), ("a", [7, 1])) == [
        ("nope", [(0, UNKNOWN)]),
        ("a", [(7, UNKNOWN), (1, 0)]),
        ("b", [(0, 0)]),
    ]


def test_a_request_without_anything_that_exists_makes_no_group(
    harness: Harness, topic_id: bytes
) -> None:
    assert commit(harness) == []
    assert commit(harness, ("nope", [0])) == [("nope", [(0, UNKNOWN)])]
    assert fetch(harness) == {}


def test_a_refusal_is_told_of_every_partition(harness: Harness, topic_id: bytes) -> None:
    stranger: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit(harness, ("a", [0, 1]), **stranger) == [
        ("a", [(0, ErrorCode.GROUP_ID_NOT_FOUND), (1, ErrorCode.GROUP_ID_NOT_FOUND)])
    ]
    assert commit(harness, ("a", [0]), version=8, **stranger) == [
        ("a", [(0, ErrorCode.ILLEGAL_GENERATION)])
    ]


def test_the_empty_group_id_can_commit(harness: Harness, topic_id: bytes) -> None:
    assert commit(harness, ("a", [1]), group_id="") == [("a", [(1, 0)])]
    assert fetch(harness, "") == {"a": [(1, 11, "m1")]}


def test_before_there_is_a_coordinator_there_is_none(harness: Harness) -> None:
    harness.create_topic("a", 1)
    assert commit(harness, ("a", [0])) == [("a", [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)])]
    answer = harness.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (group,) = harness.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8
    ).groups
    assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_offsets_are_there_after_a_restart(harness: Harness, topic_id: bytes) -> None:
    commit(harness, ("a", [0, 1]))
    harness.restart()
    harness.run(_load(harness))
    assert fetch(harness) == {"a": [(0, 10, "m0"), (1, 11, "m1")]}


def test_with_flush_messages_1_a_commit_that_the_disk_loses_is_refused(
    harness: Harness, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in harness.broker.groups:
        log = shard.journal.log
        log.change_settings(replace(log.settings, flush_messages=1))
    assert commit(harness, ("a", [0])) == [("a", [(0, 0)])]

    def fail(flush: Flush) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(Flush, "run", fail)
    assert commit(harness, ("a", [1])) == [("a", [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE)])]


def test_offsets_of_a_deleted_topic_are_gone_with_it(harness: Harness, topic_id: bytes) -> None:
    harness.create_topic("b", 1)
    commit(harness, ("a", [0]), ("b", [0]))
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=10_000)
    assert harness.ask(deletion, 6).responses[0].error_code == ErrorCode.NONE
    assert fetch(harness) == {"b": [(0, 10, "m0")]}


# OffsetFetch


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_is_asked_for_partitions(harness: Harness, topic_id: bytes, version: int) -> None:
    commit(harness, ("a", [0]))
    topics = [
        OffsetFetchRequestTopic(name="a", partition_indexes=[0, 2]),
        OffsetFetchRequestTopic(name="nope", partition_indexes=[0]),
    ]
    answer = harness.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
    assert [
        (row.name, [(each.committed_offset, each.metadata) for each in row.partitions])
        for row in answer.topics
    ] == [("a", [(10, "m0"), (-1, "")]), ("nope", [(-1, "")])]
    assert {each.error_code for row in answer.topics for each in row.partitions} == {0}
    if version >= 5:
        assert answer.topics[0].partitions[0].committed_leader_epoch == 4
        assert answer.topics[0].partitions[1].committed_leader_epoch == -1


def test_null_topics_are_all_that_a_group_has(harness: Harness, topic_id: bytes) -> None:
    commit(harness, ("a", [0, 1]))
    answer = harness.ask(OffsetFetchRequest(group_id="g", topics=None), 2)
    assert [(row.name, len(row.partitions)) for row in answer.topics] == [("a", 2)]
    assert harness.ask(OffsetFetchRequest(group_id="g", topics=[]), 2).topics == []


def test_groups_of_many_coordinators_are_answered_in_the_order_of_the_request(
    harness: Harness, topic_id: bytes
) -> None:
    names = [f"group-{number}" for number in range(6)]
    for name in names[:3]:
        commit(harness, ("a", [0]), group_id=name)
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    asked = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names]
    answer = harness.ask(OffsetFetchRequest(groups=asked), 8)
    assert [
        (group.group_id, group.topics[0].partitions[0].committed_offset) for group in answer.groups
    ] == [(name, 10 if name in names[:3] else -1) for name in names]
    assert harness.ask(OffsetFetchRequest(groups=[]), 8).groups == []


def test_unknown_topic_ids_come_last_with_an_error(harness: Harness, topic_id: bytes) -> None:
    commit(harness, ("a", [0]))
    topics = [
        OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]),
    ]
    asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
    (group,) = harness.ask(OffsetFetchRequest(groups=[asked]), 10).groups
    assert [
        (row.topic_id, row.partitions[0].committed_offset, row.partitions[0].error_code)
        for row in group.topics
    ] == [(topic_id, 10, 0), (UNKNOWN_ID, -1, ErrorCode.UNKNOWN_TOPIC_ID)]


# Transactions


@pytest.fixture
def verified(harness: Harness) -> Any:
    """Let every transaction be known to its coordinator; give what it was asked."""
    asked: list[int] = []

    def verify(body: TxnOffsetCommitRequest, version: int, reply: Any) -> None:
        asked.append(version)
        asyncio.get_running_loop().call_soon(reply, None)

    harness.broker.verify_offsets = verify
    return asked


def txn_commit(
    harness: Harness,
    *topics: Any,
    version: int = 3,
    epoch: int = 0,
    group_id: str = "g",
    **who: Any,
) -> Any:
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group_id,
        producer_id=7,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=77)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
        **who,
    )
    return codes(harness.ask(request, version))


def end_transaction(harness: Harness, *, is_commit: bool, epoch: int = 0) -> None:
    marker = build_end_transaction_marker(
        is_commit=is_commit,
        producer_id=7,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp=harness.clock.now_ms(),
    )

    async def end() -> None:
        shard = harness.broker.groups.shard("g")
        shard.end_transaction(memoryview(marker), transaction_version=1)

    harness.run(end())


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_count_when_it_is_committed(
    harness: Harness, topic_id: bytes, verified: list[int], version: int
) -> None:
    commit(harness, ("a", [0]))
    assert txn_commit(harness, ("a", [0]), version=version) == [("a", [(0, 0)])]
    assert verified == [version]
    assert fetch(harness) == {"a": [(0, 10, "m0")]}
    end_transaction(harness, is_commit=True)
    assert fetch(harness) == {"a": [(0, 77, "")]}


def test_offsets_of_an_aborted_transaction_never_count(
    harness: Harness, topic_id: bytes, verified: list[int]
) -> None:
    txn_commit(harness, ("a", [0]))
    end_transaction(harness, is_commit=False)
    assert fetch(harness) == {}


def test_an_undecided_transaction_is_known_after_a_restart(
    harness: Harness, topic_id: bytes, verified: list[int]
) -> None:
    txn_commit(harness, ("a", [0]))
    harness.restart()
    harness.run(_load(harness))
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])]
    asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
    (group,) = harness.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9).groups
    assert [each.error_code for each in group.topics[0].partitions] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]
    end_transaction(harness, is_commit=True)
    assert fetch(harness) == {"a": [(0, 77, "")]}


def test_a_producer_that_was_replaced_is_refused_and_nobody_else_notices(
    harness: Harness, topic_id: bytes, verified: list[int]
) -> None:
    txn_commit(harness, ("a", [0]), epoch=2)
    assert txn_commit(harness, ("a", [1]), epoch=1) == [
        ("a", [(1, ErrorCode.INVALID_PRODUCER_EPOCH)])
    ]
    assert commit(harness, ("a", [2])) == [("a", [(2, 0)])]


def test_what_the_coordinator_of_the_transaction_says_is_the_answer(
    harness: Harness, topic_id: bytes
) -> None:
    def refuse(body: TxnOffsetCommitRequest, version: int, reply: Any) -> None:
        reply(KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction"))

    harness.broker.verify_offsets = refuse
    assert txn_commit(harness, ("a", [0])) == [("a", [(0, ErrorCode.INVALID_TXN_STATE)])]
    assert fetch(harness) == {}


def test_a_transaction_needs_a_group_that_has_its_generation(
    harness: Harness, topic_id: bytes, verified: list[int]
) -> None:
    assert txn_commit(harness, ("a", [0]), group_id="") == [
        ("a", [(0, ErrorCode.INVALID_GROUP_ID)])
    ]
    assert txn_commit(harness, ("a", [0]), generation_id=3, member_id="m") == [
        ("a", [(0, ErrorCode.ILLEGAL_GENERATION)])
    ]
    assert txn_commit(harness, ("a", [9]), ("nope", [0])) == [
        ("a", [(9, UNKNOWN)]),
        ("nope", [(0, UNKNOWN)]),
    ]


def test_producers_that_do_not_know_of_loading_hear_that_nobody_is_available(
    harness: Harness, topic_id: bytes
) -> None:
    def loading(body: TxnOffsetCommitRequest, version: int, reply: Any) -> None:
        reply(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading"))

    harness.broker.verify_offsets = loading
    for version, code in (
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ):
        assert txn_commit(harness, ("a", [0]), version=version) == [("a", [(0, code)])]
