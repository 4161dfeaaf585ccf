"""Internal topics: who may produce to them, and what junk in them does to the coordinators."""

import pytest

from headrace.errors import ErrorCode
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.unit.api.test_produce import batch, only, produce
from tests.unit.harness import Harness

ADMIN_CLIENT_ID = "__admin_client"
GROUPS, TRANSACTIONS, SHARE = "__consumer_offsets", "__transaction_state", "__share_group_state"
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
KEY_TYPES = {GROUPS: 0, TRANSACTIONS: 1, SHARE: 2}
KEY_OF_GROUP = b"\x00\x02\x00\x01b"
"""The key of the metadata of the classic group `b`."""
single = pytest.mark.parametrize("harness", [SETTINGS], indirect=True)


def create(harness: Harness, topic: str) -> bytes:
    """Have the topic of a coordinator made, as clients do."""
    key = "g:AAAAAAAAAAAAAAAAAAAAAQ:0" if topic == SHARE else "a"
    harness.ask(FindCoordinatorRequest(key_type=KEY_TYPES[topic], coordinator_keys=[key]), 6)
    harness.run(settled(harness))
    return bytes(harness.topic(topic).topic_id)


async def settled(harness: Harness) -> None:
    for coordinator in (harness.broker.groups, harness.broker.transactions):
        for shard in coordinator:
            await shard.loaded()


def commit(harness: Harness, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    response = harness.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 9)
    code: int = response.topics[0].partitions[0].error_code
    return code


def committed(harness: Harness, group: str) -> tuple[int, int]:
    topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
    (row,) = harness.ask(OffsetFetchRequest(groups=[asked]), 9).groups
    offset = row.topics[0].partitions[0].committed_offset if row.topics else -1
    return row.error_code, offset


def write_as_admin(harness: Harness, topic: str, key: bytes, value: bytes) -> None:
    harness.client_id = ADMIN_CLIENT_ID
    row = only(harness.ask(produce(batch(value, key=key), topic=topic), 12))
    assert row.error_code == ErrorCode.NONE
    harness.client_id = "test"


@pytest.mark.parametrize("topic", [GROUPS, TRANSACTIONS, SHARE])
@pytest.mark.parametrize("version", [3, 12, 13])
def test_clients_cannot_produce_to_them(harness: Harness, topic: str, version: int) -> None:
    topic_id = create(harness, topic)
    end_offset = harness.partition(topic, 0).log.end_offset
    row = only(harness.ask(produce(batch(), topic=topic, topic_id=topic_id), version))
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (row.base_offset, row.log_start_offset) == (-1, -1)
    if version >= 8:
        assert topic in row.error_message
    assert harness.partition(topic, 0).log.end_offset == end_offset


def test_the_admin_client_may_as_in_kafka(harness: Harness) -> None:
    create(harness, GROUPS)
    write_as_admin(harness, GROUPS, b"xxx", b"junk")
    assert harness.partition(GROUPS, 0).log.end_offset == 1


@single
@pytest.mark.parametrize(
    "key",
    [
        pytest.param(b"xxx", id="type that nobody knows"),
        pytest.param(b"\x00", id="too short a key"),
        pytest.param(b"\x00\x02\x00\x40b", id="key that ends too early"),
    ],
)
def test_junk_that_names_no_group_is_passed_over(
    harness: Harness, key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    create(harness, GROUPS)
    harness.create_topic("orders")
    assert commit(harness, "a", 5) == ErrorCode.NONE
    write_as_admin(harness, GROUPS, key, b"junk")
    assert commit(harness, "b", 6) == ErrorCode.NONE
    harness.restart()
    harness.run(settled(harness))
    assert committed(harness, "a") == (ErrorCode.NONE, 5)
    assert committed(harness, "b") == (ErrorCode.NONE, 6)
    assert "offset 1" in caplog.text


@single
def test_a_group_with_a_record_that_cannot_be_read_is_refused_and_no_other(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    create(harness, GROUPS)
    harness.create_topic("orders")
    assert commit(harness, "a", 5) == ErrorCode.NONE
    assert commit(harness, "b", 6) == ErrorCode.NONE
    write_as_admin(harness, GROUPS, KEY_OF_GROUP, b"\x00\x63junk")
    harness.restart()
    harness.run(settled(harness))
    assert committed(harness, "a") == (ErrorCode.NONE, 5)
    assert committed(harness, "b") == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert commit(harness, "b", 7) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "offset 2" in caplog.text
    assert "of 'b'" in caplog.text


@single
def test_a_group_that_cannot_be_read_can_be_deleted_and_begins_anew(harness: Harness) -> None:
    create(harness, GROUPS)
    harness.create_topic("orders")
    assert commit(harness, "b", 6) == ErrorCode.NONE
    write_as_admin(harness, GROUPS, KEY_OF_GROUP, b"\x00\x63junk")
    harness.restart()
    harness.run(settled(harness))
    (row,) = harness.ask(DeleteGroupsRequest(groups_names=["b"]), 2).results
    assert row.error_code == ErrorCode.NONE
    assert committed(harness, "b") == (ErrorCode.NONE, -1)
    assert commit(harness, "b", 7) == ErrorCode.NONE
    harness.restart()
    harness.run(settled(harness))
    assert committed(harness, "b") == (ErrorCode.NONE, 7)


@single
def test_a_record_that_can_be_read_again_puts_a_group_back_into_service(harness: Harness) -> None:
    create(harness, GROUPS)
    harness.create_topic("orders")
    assert commit(harness, "b", 6) == ErrorCode.NONE
    key = b"\x00\x01\x00\x01b\x00\x06orders\x00\x00\x00\x00"
    write_as_admin(harness, GROUPS, key, b"\x00\x63junk")
    assert commit(harness, "b", 8) == ErrorCode.NONE
    harness.restart()
    harness.run(settled(harness))
    assert committed(harness, "b") == (ErrorCode.NONE, 8)


@single
def test_a_transactional_id_that_cannot_be_read_is_refused_and_no_other(harness: Harness) -> None:
    create(harness, TRANSACTIONS)
    write_as_admin(harness, TRANSACTIONS, b"\x00\x00\x00\x01t", b"\x00\x63junk")
    harness.restart()
    harness.run(settled(harness))
    asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    assert harness.ask(asked, 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    asked = InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=1000)
    assert harness.ask(asked, 4).error_code == ErrorCode.NONE
