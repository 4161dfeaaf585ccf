"""DescribeQuorum: the metadata log, as a partition with a quorum."""

from typing import Any

import pytest

from headrace.api import describe_quorum
from headrace.errors import ErrorCode
from headrace.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from tests.unit.harness import Harness

METADATA = "__cluster_metadata"


def describe(harness: Harness, *asked: tuple[str, list[int]], version: int = 2) -> Any:
    topics = [
        TopicData(
            topic_name=name,
            partitions=[PartitionData(partition_index=index) for index in indexes],
        )
        for name, indexes in asked
    ]
    return harness.ask(DescribeQuorumRequest(topics=topics), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_quorum_of_one_is_led_by_its_only_voter(harness: Harness, version: int) -> None:
    answer = describe(harness, (METADATA, [0]), version=version)
    assert (answer.error_code, answer.error_message) == (0, "")
    (topic,) = answer.topics
    (row,) = topic.partitions
    (voter,) = row.current_voters
    node_id = harness.broker.node_id
    assert (row.error_code, row.leader_id, voter.replica_id) == (0, node_id, node_id)
    assert row.leader_epoch >= 1
    assert voter.log_end_offset == row.high_watermark > 1
    assert row.observers == []
    now_ms = harness.clock.now_ms()
    if version == 0:
        assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == -1
    else:
        assert 0 <= now_ms - voter.last_fetch_timestamp < 60_000
        assert 0 <= now_ms - voter.last_caught_up_timestamp < 60_000
    if version >= 2:
        assert voter.replica_directory_id == harness.broker.folder.meta.directory_id
        assert [node.node_id for node in answer.nodes] == [node_id]
    else:
        assert voter.replica_directory_id == bytes(16)
        assert answer.nodes == []


def test_the_high_watermark_goes_up_with_every_change(harness: Harness) -> None:
    before = describe(harness, (METADATA, [0])).topics[0].partitions[0].high_watermark
    harness.create_topic("orders")
    after = describe(harness, (METADATA, [0])).topics[0].partitions[0].high_watermark
    assert after > before


@pytest.mark.parametrize(
    "asked",
    [
        [("orders", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0]), ("orders", [0])],
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_nothing_else_has_a_quorum(
    harness: Harness, asked: list[tuple[str, list[int]]], version: int
) -> None:
    answer = describe(harness, *asked, version=version)
    assert answer.error_code == 0
    assert answer.nodes == []
    rows = [row for topic in answer.topics for row in topic.partitions]
    assert len(rows) == sum(len(indexes) for _, indexes in asked)
    assert {row.error_code for row in rows} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert all(bool(row.error_message) is (version >= 2) for row in rows)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_if_no_leader_answers_in_time_the_request_times_out(
    harness: Harness, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker of Kafka responds if no controller takes what it forwards."""
    monkeypatch.setattr(describe_quorum, "DESCRIBE_TIMEOUT_MS", 50)
    monkeypatch.setattr(harness.broker.quorum.driver.state, "leader", None)
    answer = describe(harness, (METADATA, [0]), version=version)
    assert (answer.error_code, answer.topics) == (ErrorCode.REQUEST_TIMED_OUT, [])
    assert bool(answer.error_message) is (version >= 2)


def test_asking_for_nothing_is_answered_with_nothing(harness: Harness) -> None:
    assert describe(harness).topics == []
    (topic,) = describe(harness, (METADATA, [])).topics
    assert (topic.topic_name, topic.partitions) == (METADATA, [])
