"""ShareAcknowledge: what becomes of records, and of the requests that cannot be right."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from headrace.api.share_acknowledgements import BATCHES_MAX
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.records.builder import BatchBuilder
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    NOW_MS,
    REJECT,
    RELEASE,
    RENEW,
    Ack,
    Member,
    append,
    configure,
    finished_up_to,
    initialize,
    move_clock,
    rows,
)

LOCK_MS = 30_000

pytestmark = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


@pytest.fixture
def topic_id(harness: Harness) -> TopicId:
    topic_id: TopicId = harness.create_topic("orders", partitions=2)
    initialize(harness, topic_id, 0, 1, start_offset=0)
    return topic_id


@pytest.fixture
def member(harness: Harness, topic_id: TopicId) -> Member:
    """A member that holds offsets 0 to 3."""
    append(harness, b"a", b"b")
    append(harness, b"c", b"d")
    member = Member(harness, topic_id)
    assert member.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 3, 1)]
    return member


def next_acquired(harness: Harness, topic_id: TopicId) -> list[tuple[int, int, int]]:
    other = Member(harness, topic_id, "member-2")
    found = other.fetch(0)
    return found[0].acquired


def test_accepted_records_are_durable_when_it_is_answered(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    assert member.acknowledge(0, (0, 1, ACCEPT)) == "NONE"
    assert finished_up_to(harness, topic_id) == 2


def test_each_record_of_a_batch_may_have_its_own_end(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    assert member.acknowledge(0, (0, 3, [ACCEPT, RELEASE, REJECT, RELEASE])) == "NONE"
    assert next_acquired(harness, topic_id) == [(1, 1, 2), (3, 3, 2)]


def test_released_records_are_delivered_again_until_they_are_given_up(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    configure(harness, share_delivery_count_limit="2")
    member.acknowledge(0, (0, 3, RELEASE))
    delivered = []
    while got := member.fetch():
        delivered += got[0].acquired
        for first, last, _ in got[0].acquired:
            member.acknowledge(0, (first, last, RELEASE))
    assert {delivery_count for _, _, delivery_count in delivered} == {2}
    assert finished_up_to(harness, topic_id) == 4


def test_a_rejected_record_is_not_delivered_again(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    member.acknowledge(0, (0, 3, REJECT))
    assert next_acquired(harness, topic_id) == []
    assert finished_up_to(harness, topic_id) == 4


def test_a_lock_that_runs_out_gives_its_records_to_who_waits(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    other = Member(harness, topic_id, "member-2")
    other.fetch(0)

    async def run() -> Any:
        waiting = asyncio.ensure_future(other.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        harness.clock.advance(LOCK_MS + 1)
        return await waiting

    assert rows(harness.run(run()))[0].acquired == [(0, 3, 2)]
    assert member.acknowledge(0, (0, 3, ACCEPT)) == "INVALID_RECORD_STATE"


def test_locks_of_many_partitions_that_end_together_end_some_in_each_turn(harness: Harness) -> None:
    count = 100
    many_id = harness.create_topic("many", partitions=count)
    initialize(harness, many_id, *range(count), start_offset=0)
    member = Member(harness, many_id)

    async def fill() -> None:
        for index in range(count):
            builder = BatchBuilder()
            builder.append(NOW_MS, b"key", b"value")
            partition = harness.partition("many", index)
            partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)

    harness.run(fill())
    member.fetch(*range(count), max_wait_ms=9000)
    while member.fetch(max_wait_ms=20):
        pass
    shares = harness.broker.share_partitions

    async def wait() -> list[int]:
        harness.clock.advance(LOCK_MS)
        left = [count]
        while left[-1]:
            await asyncio.sleep(0)
            left.append(sum(led.machine.next_fetch_offset(0) > 0 for led in shares))
        return left

    left = harness.run(wait())
    assert max(before - after for before, after in pairwise(left)) < count / 3


def test_a_lock_lasts_as_long_as_the_group_says(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    move_clock(harness, LOCK_MS - 1000)
    assert next_acquired(harness, topic_id) == []
    move_clock(harness, 1001)
    assert next_acquired(harness, topic_id) == [(0, 3, 2)]


def test_a_renewed_lock_begins_anew(harness: Harness, topic_id: TopicId, member: Member) -> None:
    move_clock(harness, LOCK_MS - 1000)
    renewal = {0: [(0, 1, RENEW)]}
    answer = harness.run(member.acknowledge_async(renewal, is_renew_ack=True))  # type: ignore[arg-type]
    assert answer.acquisition_lock_timeout_ms == LOCK_MS
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    move_clock(harness, 1001)
    assert next_acquired(harness, topic_id) == [(2, 3, 2)]
    assert member.acknowledge(0, (0, 1, ACCEPT)) == "NONE"


def test_some_records_may_be_renewed_while_others_end(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    types = [RENEW, ACCEPT, RELEASE, RENEW]
    assert member.acknowledge(0, (0, 3, types), is_renew_ack=True) == "NONE"
    assert next_acquired(harness, topic_id) == [(2, 2, 2)]


def test_a_group_may_forbid_renewal(harness: Harness, member: Member) -> None:
    configure(harness, share_renew_acknowledge_enable="false")
    assert member.acknowledge(0, (0, 0, RENEW), is_renew_ack=True) == "INVALID_RECORD_STATE"


def test_an_unannounced_renewal_is_refused(member: Member) -> None:
    assert member.acknowledge(0, (0, 0, RENEW)) == "INVALID_REQUEST"
    assert member.acknowledge(0, (0, 0, RENEW), version=1) == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "acks",
    [
        [(1, 0, ACCEPT)],
        [(0, 1, [])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 0, 9)],
        [(0, 0, -1)],
        [(-5, -4, ACCEPT)],
        [(2, 3, ACCEPT), (0, 1, ACCEPT)],
        [(0, 0, ACCEPT), (100, 100, ACCEPT)],
    ],
)
def test_what_no_state_makes_right_is_refused_and_undone(
    harness: Harness, topic_id: TopicId, member: Member, acks: list[Ack]
) -> None:
    assert member.acknowledge(0, *acks) == "INVALID_REQUEST"
    assert member.acknowledge(0, (0, 3, ACCEPT)) == "NONE"


def test_more_than_anybody_could_hold_is_refused(harness: Harness, member: Member) -> None:
    stale: list[Ack] = [(0, 0, ACCEPT)] * (BATCHES_MAX + 1)
    assert member.acknowledge(0, *stale) == "INVALID_REQUEST"
    assert member.acknowledge(0, (0, 3, ACCEPT)) == "NONE"


def test_records_that_a_member_does_not_hold_are_not_its_to_acknowledge(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    other = Member(harness, topic_id, "member-2")
    other.fetch(0)
    assert other.acknowledge(0, (0, 0, ACCEPT)) == "INVALID_RECORD_STATE"
    assert member.acknowledge(0, (0, 0, ACCEPT)) == "NONE"


def test_records_before_the_start_are_over_and_that_is_no_error(member: Member) -> None:
    member.acknowledge(0, (0, 1, ACCEPT))
    assert member.acknowledge(0, (0, 1, ACCEPT)) == "NONE"


def test_a_partition_that_nobody_fetched_has_nothing_to_acknowledge(member: Member) -> None:
    assert member.acknowledge(1, (0, 0, ACCEPT)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert member.acknowledge(9, (0, 0, ACCEPT)) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_version_1_has_no_lock_time(harness: Harness, member: Member) -> None:
    answer = harness.run(member.acknowledge_async({0: [(0, 0, ACCEPT)]}, version=1))
    assert answer.acquisition_lock_timeout_ms == 0


class FailingPersister:
    """Fails every write with one error."""

    def __init__(self, persister: Any, code: ErrorCode) -> None:
        self._persister = persister
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._persister, name)

    def write_state(self, key: Any, write: Any, reply: Any) -> None:
        reply(KafkaError(self._code, "it is not written"))


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.NOT_COORDINATOR, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ErrorCode.CORRUPT_MESSAGE, "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_what_could_not_be_written_is_undone_and_said(
    harness: Harness, topic_id: TopicId, member: Member, code: ErrorCode, answered: str
) -> None:
    shares = harness.broker.share_partitions
    persister, shares.persister = shares.persister, FailingPersister(shares.persister, code)
    assert member.acknowledge(0, (0, 3, ACCEPT)) == answered
    shares.persister = persister
    assert member.acknowledge(0, (0, 3, ACCEPT)) == "NONE"


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_a_fenced_leader_says_so_and_reads_the_state_anew(
    harness: Harness, topic_id: TopicId, member: Member, code: ErrorCode
) -> None:
    shares = harness.broker.share_partitions
    persister, shares.persister = shares.persister, FailingPersister(shares.persister, code)
    answer = harness.run(member.acknowledge_async({0: [(0, 3, ACCEPT)]}))
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader.leader_id == harness.broker.node_id
    assert [node.node_id for node in answer.node_endpoints] == [harness.broker.node_id]
    shares.persister = persister
    other = Member(harness, topic_id, "member-2")
    assert other.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 3, 1)]
