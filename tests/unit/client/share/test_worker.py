"""A handler run over a queue."""

import asyncio

import pytest

from headrace.client import AcknowledgeType, Retry, ShareRecord, TopicPartition, share_worker
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.unit.client.share.brokers import (
    LOCK_MS,
    Brokers,
    acquired,
    batch,
    on_brokers,
    said,
    until,
)

P0 = TopicPartition("orders", 0)
ACCEPT, RELEASE, REJECT, RENEW = map(int, AcknowledgeType)


def words(brokers: Brokers) -> dict[int, list[int]]:
    """Give what was said of each offset, in the order in which it was said."""
    told: dict[int, list[int]] = {}
    for _, body in brokers.requests:
        if isinstance(body, ShareFetchRequest | ShareAcknowledgeRequest):
            for _, first, last, types in said(body):
                for offset in range(first, last + 1):
                    kind = types[0 if len(types) == 1 else offset - first]
                    told.setdefault(offset, []).append(kind)
    return told


def has_records(brokers: Brokers, count: int) -> None:
    brokers.leaders = {P0: 1}
    records = batch(0, *[b"x"] * count)
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, records, (0, count - 1, 1)))


@on_brokers()
async def test_a_record_is_accepted_when_the_handler_returns(brokers: Brokers) -> None:
    has_records(brokers, 3)
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        seen.append(record.offset)

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
        await until(lambda: len(words(brokers)) == 3)
    assert seen == [0, 1, 2]
    assert words(brokers) == {0: [ACCEPT], 1: [ACCEPT], 2: [ACCEPT]}


@on_brokers()
async def test_what_a_handler_raises_decides_whether_a_record_is_tried_again(
    brokers: Brokers,
) -> None:
    has_records(brokers, 4)
    errors = [
        Retry("not now"),
        KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"),
        KafkaError(ErrorCode.INVALID_RECORD, "never"),
        ValueError("never"),
    ]

    async def handle(record: ShareRecord) -> None:
        raise errors[record.offset]

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle, concurrency=4):
        await until(lambda: len(words(brokers)) == 4)
    assert words(brokers) == {0: [RELEASE], 1: [RELEASE], 2: [REJECT], 3: [REJECT]}


@on_brokers()
async def test_the_user_may_say_which_errors_are_tried_again(brokers: Brokers) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        raise ValueError

    worker = share_worker(
        brokers.bootstrap, "group", ["orders"], handle, retry_on=lambda error: True
    )
    async with worker:
        await until(lambda: len(words(brokers)) == 1)
    assert words(brokers) == {0: [RELEASE]}


@on_brokers()
async def test_no_more_records_run_and_are_asked_for_than_the_concurrency(
    brokers: Brokers,
) -> None:
    has_records(brokers, 9)
    most = 0

    async def handle(record: ShareRecord) -> None:
        nonlocal most
        most = max(most, worker.running)
        await asyncio.sleep(1)

    worker = share_worker(brokers.bootstrap, "group", ["orders"], handle, concurrency=3)
    async with worker:
        await until(lambda: len(words(brokers)) == 9)
    assert most == 3
    first, *_ = brokers.asked(ShareFetchRequest)
    assert (first.max_records, first.share_acquire_mode) == (3, 1)
    assert all(1 <= body.max_records <= 3 for body in brokers.asked(ShareFetchRequest))


@on_brokers()
async def test_the_lock_is_renewed_at_half_its_time_while_the_handler_runs(
    brokers: Brokers,
) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 1.6)

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
        await until(lambda: ACCEPT in words(brokers).get(0, []))
    assert words(brokers) == {0: [RENEW, RENEW, RENEW, ACCEPT]}
    renewals = [body for body in brokers.asked(ShareAcknowledgeRequest) if said(body)]
    assert [body.is_renew_ack for body in renewals[:3]] == [True] * 3


@on_brokers()
async def test_the_end_waits_for_what_runs_and_takes_no_more(brokers: Brokers) -> None:
    has_records(brokers, 5)
    done: list[int] = []

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(20)
        done.append(record.offset)

    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, concurrency=2
    ) as worker:
        await until(lambda: worker.running == 2)
    assert done == [0, 1]
    assert words(brokers) == {0: [RENEW, ACCEPT], 1: [RENEW, ACCEPT]}
    assert brokers.asked(ShareAcknowledgeRequest)[-1].share_session_epoch == -1


@on_brokers()
async def test_what_runs_for_too_long_at_the_end_is_cancelled_and_released(
    brokers: Brokers,
) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(1000)

    worker = share_worker(brokers.bootstrap, "group", ["orders"], handle, drain_timeout_ms=1000)
    async with worker:
        await until(lambda: worker.running == 1)
    assert words(brokers) == {0: [RELEASE]}


@on_brokers()
async def test_what_ends_the_membership_reaches_whoever_waits(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    brokers.then(1, ShareGroupHeartbeatRequest, brokers.placed, refusal)

    async def handle(record: ShareRecord) -> None: ...

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await worker.wait()


def test_a_worker_needs_at_least_one_hand() -> None:
    async def handle(record: ShareRecord) -> None: ...

    with pytest.raises(ValueError, match="concurrency"):
        share_worker("node:1", "group", ["orders"], handle, concurrency=0)
