"""A handler run over a queue."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.client import AcknowledgeType, Retry, ShareRecord, TopicPartition, share_worker
from headrace.client.settings import ConsumerSettings
from headrace.client.share.terms import ShareSettings
from headrace.client.share.worker import ShareWorker
from headrace.errors import ErrorCode, KafkaError
from headrace.wire import ApiKey
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.unit.client.share.brokers import (
    LATE_SECONDS,
    LOCK_MS,
    Brokers,
    Log,
    acquired,
    batch,
    confirmed,
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


def has_records(brokers: Brokers, count: int, delivery: int = 1, lock_ms: int = LOCK_MS) -> None:
    brokers.leaders = {P0: 1}
    records = batch(0, *[b"x"] * count)
    ranges = (0, count - 1, delivery)
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, records, ranges, lock_ms=lock_ms))


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

    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, concurrency=4, retry_timeout_ms=0
    ):
        await until(lambda: len(words(brokers)) == 4)
    assert words(brokers) == {0: [RELEASE], 1: [RELEASE], 2: [REJECT], 3: [REJECT]}


@on_brokers()
async def test_the_user_may_say_which_errors_are_tried_again(brokers: Brokers) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        raise ValueError

    async with share_worker(
        brokers.bootstrap,
        "group",
        ["orders"],
        handle,
        retry_on=lambda error: True,
        retry_timeout_ms=0,
    ):
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
    assert sorted(done) == [0, 1]
    rest = {offset: [RELEASE] for offset in (2, 3, 4)}
    assert words(brokers) == {0: [RENEW, ACCEPT], 1: [RENEW, ACCEPT], **rest}
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


def test_a_handler_that_would_never_run_is_refused() -> None:
    async def handle(record: ShareRecord):  # type: ignore[no-untyped-def]
        yield record

    with pytest.raises(TypeError, match="yield"):
        share_worker("node:1", "group", ["orders"], handle)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"retry_backoff_ms": 0}, "retry_backoff_ms is 0"),
        ({"retry_backoff_ms": 10, "retry_backoff_max_ms": 9}, "retry_backoff_max_ms is 9"),
        ({"drain_timeout_ms": -1}, "drain_timeout_ms is -1, and must be at least 0"),
        ({"retry_timeout_ms": -1}, "retry_timeout_ms is -1"),
    ],
)
def test_a_limit_that_makes_no_sense_is_named(wrong: dict[str, int], message: str) -> None:
    async def handle(record: ShareRecord) -> None: ...

    with pytest.raises(ValueError, match=message):
        share_worker("node:1", "group", ["orders"], handle, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("group", "topics"), [("", ["orders"]), ("group", [])])
def test_a_worker_needs_a_group_and_a_topic(group: str, topics: list[str]) -> None:
    async def handle(record: ShareRecord) -> None: ...

    with pytest.raises(ValueError, match="name "):
        share_worker("node:1", group, topics, handle)


# Another attempt


@on_brokers()
async def test_an_outage_of_three_seconds_costs_no_delivery(brokers: Brokers) -> None:
    has_records(brokers, 8)
    loop = asyncio.get_running_loop()
    over_at = loop.time() + 3
    failures = 0

    async def handle(record: ShareRecord) -> None:
        nonlocal failures
        if loop.time() < over_at:
            failures += 1
            raise ConnectionError("the bank is closed")

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle, concurrency=8):
        await until(lambda: len(words(brokers)) == 8)
    assert words(brokers) == {offset: [ACCEPT] for offset in range(8)}
    assert 8 * 3 < failures < 8 * 10, "each record is tried a few times, less and less often"


@on_brokers()
async def test_a_record_is_renewed_while_it_is_retried_and_then_released(brokers: Brokers) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        raise Retry("not today")

    with Log() as log:
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
            await until(lambda: RELEASE in words(brokers).get(0, []))
    assert words(brokers) == {0: [RENEW, RELEASE]}
    assert log.has("orders-0 offset 0", "is released", "not today")


@on_brokers()
async def test_errors_in_a_group_are_cured_if_each_of_them_is(brokers: Brokers) -> None:
    has_records(brokers, 2)

    async def handle(record: ShareRecord) -> None:
        other = ValueError() if record.offset else Retry()
        raise ExceptionGroup("two tasks", [ConnectionError(), other])

    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, concurrency=2, retry_timeout_ms=0
    ):
        await until(lambda: len(words(brokers)) == 2)
    assert words(brokers) == {0: [RELEASE], 1: [REJECT]}


@on_brokers()
async def test_the_end_does_not_wait_for_another_attempt(brokers: Brokers) -> None:
    has_records(brokers, 1)
    attempts = 0

    async def handle(record: ShareRecord) -> None:
        nonlocal attempts
        attempts += 1
        raise Retry

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle, retry_backoff_ms=5000):
        await until(lambda: attempts == 1)
    assert attempts == 1
    assert words(brokers) == {0: [RELEASE]}


def has_configs(brokers: Brokers, **values: str) -> None:
    """Let the group have configs; `_` for the dots of their names."""
    brokers.versions |= {ApiKey.DESCRIBE_CONFIGS: (4, 4)}
    rows = [
        DescribeConfigsResourceResult(name=name.replace("_", "."), value=value)
        for name, value in values.items()
    ]
    result = DescribeConfigsResult(resource_type=32, resource_name="group", configs=rows)
    answer = DescribeConfigsResponse(results=[result])
    for node_id in brokers.nodes:
        brokers.then(node_id, DescribeConfigsRequest, answer, answer, answer)


@pytest.mark.parametrize(
    ("topic", "destination"),
    [("dlq.orders", "the dead letters in 'dlq.orders'"), ("", "archived")],
)
def test_the_last_delivery_is_logged_as_given_up_with_where_the_record_goes(
    topic: str, destination: str
) -> None:
    @on_brokers()
    async def check(brokers: Brokers) -> None:
        has_records(brokers, 1, delivery=5)
        has_configs(
            brokers, share_delivery_count_limit="5", errors_deadletterqueue_topic_name=topic
        )

        async def handle(record: ShareRecord) -> None:
            raise Retry("closed for good")

        with Log() as log:
            async with share_worker(
                brokers.bootstrap, "group", ["orders"], handle, retry_timeout_ms=1000
            ):
                await until(lambda: len(words(brokers)) == 1)
        assert log.has(
            "orders-0 offset 0", "delivery 5", "given up", "closed for good", destination
        )

    check()


@on_brokers()
async def test_the_end_tries_again_what_would_be_given_up(brokers: Brokers) -> None:
    has_records(brokers, 1, delivery=2)
    has_configs(brokers, share_delivery_count_limit="2")
    attempts = 0

    async def handle(record: ShareRecord) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise Retry

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle, retry_backoff_ms=500):
        await until(lambda: attempts == 1)
    assert words(brokers) == {0: [ACCEPT]}


@on_brokers()
async def test_a_rejection_that_no_broker_took_is_not_logged_as_one(brokers: Brokers) -> None:
    has_records(brokers, 1)
    brokers.then(1, ShareFetchRequest, None)

    async def handle(record: ShareRecord) -> None:
        raise ValueError("never")

    with Log() as log:
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
            await until(lambda: bool(log.lines))
    assert log.has("offset 0", "that it is rejected did not arrive")
    assert not log.has("offset 0, delivery 1 is rejected")


# Locks that are lost


@on_brokers()
async def test_the_word_of_a_delivery_that_another_followed_is_dropped(brokers: Brokers) -> None:
    lock_ms = 2000
    has_records(brokers, 1, lock_ms=lock_ms)
    again = acquired("orders", 0, batch(0, b"x"), (0, 0, 2), lock_ms=lock_ms)
    brokers.then(1, ShareFetchRequest, again)
    first_goes_on, second_goes_on = asyncio.Event(), asyncio.Event()
    begun: list[int] = []

    async def handle(record: ShareRecord) -> None:
        begun.append(record.delivery_count)
        if record.delivery_count == 1:
            await first_goes_on.wait()
        else:
            await second_goes_on.wait()
            raise ValueError("the second one says no")

    with Log() as log:
        async with share_worker(
            brokers.bootstrap, "group", ["orders"], handle, concurrency=2
        ) as worker:
            await until(lambda: begun == [1, 2])
            first_goes_on.set()
            await until(lambda: worker.running == 1)
            await asyncio.sleep(5)
            assert ACCEPT not in words(brokers)[0], "the first delivery has no say any more"
            second_goes_on.set()
            await until(lambda: REJECT in words(brokers)[0])
    assert set(words(brokers)[0]) == {RENEW, REJECT}
    assert log.has("offset 0, delivery 1", "lock was lost", "not accepted")


@on_brokers()
async def test_the_word_of_a_handler_that_outlived_its_lock_is_dropped(brokers: Brokers) -> None:
    has_records(brokers, 1)
    brokers.then(
        1, ShareAcknowledgeRequest, lambda body: confirmed(body, ErrorCode.INVALID_RECORD_STATE)
    )

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 0.7)

    with Log() as log:
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
            await until(lambda: worker.running == 1)
            await until(lambda: worker.running == 0)
    assert words(brokers) == {0: [RENEW]}
    assert log.has("offset 0, delivery 1", "not accepted", "delivered again")


@on_brokers()
async def test_a_lock_whose_renewal_nobody_answers_is_lost_when_its_time_is_over(
    brokers: Brokers,
) -> None:
    has_records(brokers, 1, lock_ms=2000)
    brokers.versions[ApiKey.SHARE_ACKNOWLEDGE] = (1, 1)  # from before renewals

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(3)

    with Log() as log:
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
            await until(lambda: worker.running == 1)
            await until(lambda: worker.running == 0)
    assert words(brokers) == {}
    assert log.has("cannot renew")
    assert log.has("offset 0, delivery 1", "not accepted")


# Beside a fetch that waits


@on_brokers()
async def test_acknowledgements_and_renewals_do_not_wait_for_a_long_poll(brokers: Brokers) -> None:
    has_records(brokers, 1)
    limits = ShareSettings(limits=ConsumerSettings(max_wait_ms=1_000_000))

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 0.6)

    loop = asyncio.get_running_loop()
    began_at = loop.time()
    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, concurrency=2, settings=limits
    ):
        await until(lambda: RENEW in words(brokers).get(0, []))
        assert loop.time() < began_at + LOCK_MS / 1000 * 0.52
        await until(lambda: ACCEPT in words(brokers)[0])
        assert loop.time() < began_at + LOCK_MS / 1000 * 0.63


# Hands


@on_brokers(3)
async def test_concurrency_is_one_budget_across_brokers(brokers: Brokers) -> None:
    brokers.leaders = {TopicPartition("orders", index): index + 1 for index in range(3)}
    asked: dict[int, int] = {}
    most = 0

    def answer(node_id: int) -> Callable[[ShareFetchRequest], ShareFetchResponse]:
        def note(body: ShareFetchRequest) -> ShareFetchResponse:
            nonlocal most
            asked[node_id] = body.max_records
            most = max(most, sum(asked.values()))
            return ShareFetchResponse(acquisition_lock_timeout_ms=LOCK_MS, responses=[])

        return note

    for node_id in brokers.nodes:
        brokers.then(node_id, ShareFetchRequest, *[answer(node_id)] * 5)

    async def handle(record: ShareRecord) -> None: ...

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle, concurrency=7):
        await until(lambda: len(asked) == 3)
        await asyncio.sleep(5)
    assert most == 7


@on_brokers(2)
async def test_a_single_hand_serves_every_broker_in_turn(brokers: Brokers) -> None:
    brokers.leaders = {TopicPartition("orders", index): index + 1 for index in range(2)}
    for node_id in brokers.nodes:
        records = acquired("orders", node_id - 1, batch(0, b"x"), (0, 0, 1))
        brokers.then(node_id, ShareFetchRequest, records)
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        seen.append(record.partition)
        await asyncio.sleep(1)

    limits = ShareSettings(limits=ConsumerSettings(max_wait_ms=1_000_000))
    async with share_worker(brokers.bootstrap, "group", ["orders"], handle, settings=limits):
        await until(lambda: len(seen) == 2)
        assert all(body.max_records == 1 for body in brokers.asked(ShareFetchRequest))
    assert sorted(seen) == [0, 1]


@on_brokers(2)
async def test_a_node_that_does_not_answer_keeps_no_hand_from_the_others(brokers: Brokers) -> None:
    brokers.leaders = {TopicPartition("orders", index): index + 1 for index in range(2)}
    brokers.silent = {1}
    loop, done = asyncio.get_running_loop(), [asyncio.get_running_loop().time()]
    for offset in range(5):
        records = acquired("orders", 1, batch(offset, b"x"), (offset, offset, 1))
        brokers.then(2, ShareFetchRequest, records)

    async def handle(record: ShareRecord) -> None:
        done.append(loop.time())

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
        await until(lambda: len(done) == 6)
    assert done[-1] - done[0] < 5


def one_late_record(brokers: Brokers, delivery: int = 1) -> None:
    """Have the first of two nodes answer when the only hand holds a record of the second."""
    brokers.leaders = {TopicPartition("orders", index): index + 1 for index in range(2)}
    brokers.late = {1}
    for node_id in brokers.nodes:
        ranges = (node_id, node_id, delivery)
        records = acquired("orders", node_id - 1, batch(node_id, b"x"), ranges)
        brokers.then(node_id, ShareFetchRequest, records)


@on_brokers(2)
async def test_records_that_came_late_keep_their_locks_until_a_hand_is_free(
    brokers: Brokers,
) -> None:
    one_late_record(brokers)
    done: list[int] = []

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 2.2)
        done.append(record.offset)

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
        await until(lambda: len(done) == 2)
        await until(lambda: ACCEPT in words(brokers)[1])
    assert done == [2, 1]
    assert words(brokers)[1].count(RENEW) > 4
    assert words(brokers)[1][-1] == ACCEPT


@on_brokers(2)
async def test_records_that_came_late_are_released_at_the_end(brokers: Brokers) -> None:
    one_late_record(brokers)
    done: list[int] = []

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 0.9)
        done.append(record.offset)

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
        await until(lambda: RENEW in words(brokers).get(1, []))
        assert worker.running == 1
    assert done == [2]
    assert words(brokers) == {1: [RENEW, RELEASE], 2: [RENEW, ACCEPT]}


@on_brokers(2)
async def test_records_that_came_late_in_their_last_delivery_are_handled_before_the_end(
    brokers: Brokers,
) -> None:
    has_configs(brokers, share_delivery_count_limit="2")
    one_late_record(brokers, delivery=2)
    done: list[int] = []

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 0.7)
        done.append(record.offset)

    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, drain_timeout_ms=2 * LOCK_MS
    ) as worker:
        await until(lambda: RENEW in words(brokers).get(1, []))
        assert worker.running == 1
    assert done == [2, 1]
    assert words(brokers)[1][-1] == words(brokers)[2][-1] == ACCEPT


@on_brokers(2)
async def test_records_that_came_late_do_not_prolong_the_end_beyond_its_time(
    brokers: Brokers,
) -> None:
    has_configs(brokers, share_delivery_count_limit="2")
    one_late_record(brokers, delivery=2)
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        seen.append(record.offset)
        await asyncio.sleep(LOCK_MS)

    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, drain_timeout_ms=1000
    ) as worker:
        await until(lambda: RENEW in words(brokers).get(1, []))
        assert worker.running == 1
    assert seen == [2]
    assert words(brokers)[1][-1] == words(brokers)[2][-1] == RELEASE


@on_brokers(2)
async def test_a_worker_that_failed_handles_records_in_their_last_delivery(
    brokers: Brokers,
) -> None:
    has_configs(brokers, share_delivery_count_limit="2")
    one_late_record(brokers, delivery=2)
    done: list[int] = []

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 0.7)
        done.append(record.offset)

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
        await until(lambda: RENEW in words(brokers).get(1, []))
        refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        brokers.then(1, ShareGroupHeartbeatRequest, refusal)
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await worker.wait()
        await until(lambda: len(done) == 2)
    assert words(brokers)[1][-1] == words(brokers)[2][-1] == ACCEPT


@on_brokers(2)
async def test_records_that_come_while_handlers_are_cancelled_find_no_hand(
    brokers: Brokers,
) -> None:
    has_configs(brokers, share_delivery_count_limit="2")
    one_late_record(brokers, delivery=2)
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        seen.append(record.offset)
        try:
            await asyncio.sleep(LOCK_MS)
        finally:
            await asyncio.sleep(2 * LATE_SECONDS)

    async with share_worker(
        brokers.bootstrap, "group", ["orders"], handle, drain_timeout_ms=500
    ) as worker:
        await until(lambda: worker.running == 1)
    assert seen == [2]
    assert worker.running == 0


@on_brokers()
async def test_a_handler_that_is_cancelled_from_within_is_tried_again(brokers: Brokers) -> None:
    has_records(brokers, 1)
    attempts = 0

    async def handle(record: ShareRecord) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            waited_for = asyncio.create_task(asyncio.sleep(10))
            waited_for.cancel()
            await waited_for

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
        await until(lambda: len(words(brokers)) == 1)
    assert words(brokers) == {0: [ACCEPT]}
    assert attempts == 3


@on_brokers()
async def test_a_handler_that_the_end_cancels_is_logged_so(brokers: Brokers) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(1000)

    with Log() as log:
        async with share_worker(
            brokers.bootstrap, "group", ["orders"], handle, drain_timeout_ms=1000
        ) as worker:
            await until(lambda: worker.running == 1)
    assert log.has("offset 0", "cancelled", "the worker ends")
    assert log.has("offset 0", "is released")


# The end of a worker


async def dies(brokers: Brokers) -> ShareWorker:
    """Return a worker that is not yet entered and that loses its right to the topic."""
    brokers.leaders = {P0: 1}
    refusal = ShareFetchResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    brokers.then(1, ShareFetchRequest, refusal)

    async def handle(record: ShareRecord) -> None: ...

    return share_worker(brokers.bootstrap, "group", ["orders"], handle)


@on_brokers()
async def test_a_worker_that_died_is_logged_and_raised_at_the_end(brokers: Brokers) -> None:
    with Log() as log, pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        async with await dies(brokers):
            await until(lambda: bool(log.lines))
    assert log.has("group 'group'", "TOPIC_AUTHORIZATION_FAILED")


@on_brokers()
async def test_a_worker_that_died_is_raised_from_wait_and_not_again(brokers: Brokers) -> None:
    async with await dies(brokers) as worker:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await worker.wait()


@on_brokers()
async def test_what_the_user_raises_is_not_hidden_by_a_worker_that_died(brokers: Brokers) -> None:
    async def work() -> None:
        async with await dies(brokers):
            await until(lambda: bool(log.lines))
            raise ZeroDivisionError

    with Log() as log, pytest.raises(ZeroDivisionError):
        await work()


@on_brokers()
async def test_handlers_that_run_when_the_worker_dies_finish_their_records(
    brokers: Brokers,
) -> None:
    has_records(brokers, 1)
    refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    brokers.then(1, ShareGroupHeartbeatRequest, brokers.placed, brokers.placed, refusal)

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(LOCK_MS / 1000 * 0.6)

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await worker.wait()
        assert worker.running == 1
    assert words(brokers) == {0: [RENEW, ACCEPT]}


@on_brokers()
async def test_a_topic_that_does_not_exist_is_named(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}

    async def handle(record: ShareRecord) -> None: ...

    with pytest.raises(KafkaError, match="no topic 'ordres'"):
        async with share_worker(brokers.bootstrap, "group", ["orders", "ordres"], handle):
            pass
    assert asyncio.all_tasks() == {asyncio.current_task()}


@on_brokers()
async def test_a_topic_that_is_gone_later_is_warned_of(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}

    async def handle(record: ShareRecord) -> None: ...

    with Log() as log:
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
            await asyncio.sleep(60)
            assert not log.lines
            brokers.leaders = {}
            await until(lambda: bool(log.lines))
    assert log.has("group 'group'", "topic 'orders'", "UNKNOWN_TOPIC_OR_PARTITION")


@on_brokers()
async def test_a_topic_that_appears_soon_is_waited_for(brokers: Brokers) -> None:
    asyncio.get_running_loop().call_later(3, lambda: has_records(brokers, 1))

    async def handle(record: ShareRecord) -> None: ...

    async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
        await until(lambda: words(brokers) == {0: [ACCEPT]})


@on_brokers()
async def test_a_topic_that_is_not_for_us_is_named_at_once(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    nobody = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="node", port=1)],
        topics=[MetadataResponseTopic(name="orders", error_code=code)],
    )
    brokers.then(1, MetadataRequest, MetadataResponse(brokers=nobody.brokers), nobody)
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    async def handle(record: ShareRecord) -> None: ...

    with pytest.raises(KafkaError, match=r"'orders'.*authorization failed"):
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle):
            pass
    assert loop.time() < began_at + 1


@on_brokers()
async def test_a_worker_runs_once_and_inside_of_its_block(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}

    async def handle(record: ShareRecord) -> None: ...

    worker = share_worker(brokers.bootstrap, "group", ["orders"], handle)
    with pytest.raises(RuntimeError, match="enter it with `async with`"):
        await worker.wait()
    async with worker:
        pass
    with pytest.raises(RuntimeError, match="entered once"):
        async with worker:
            pass


@on_brokers()
async def test_cancelling_the_end_leaves_no_task_and_leaves_the_group(brokers: Brokers) -> None:
    has_records(brokers, 1)

    async def handle(record: ShareRecord) -> None:
        await asyncio.sleep(1000)

    async def work() -> None:
        async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
            await until(lambda: worker.running == 1)

    working = asyncio.create_task(work())
    await until(lambda: bool(brokers.asked(ShareFetchRequest)))
    await asyncio.sleep(1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert brokers.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1


@pytest.mark.parametrize("is_leaving", [False, True])
@pytest.mark.parametrize("steps", range(16))
def test_cancelling_at_any_step_leaves_no_task_and_leaves_the_group(
    steps: int, is_leaving: bool
) -> None:
    """The first request to join may be on its way, or the worker may be leaving already."""

    @on_brokers()
    async def check(brokers: Brokers) -> None:
        has_records(brokers, 2)
        leaves = asyncio.Event()
        waiting: list[asyncio.Task[None]] = []

        async def handle(record: ShareRecord) -> None:
            raise ValueError

        async def work() -> None:
            async with share_worker(brokers.bootstrap, "group", ["orders"], handle) as worker:
                waiting.append(asyncio.create_task(worker.wait()))
                await until(lambda: words(brokers) == {0: [REJECT], 1: [REJECT]})
                leaves.set()
            await asyncio.sleep(1000)  # it was faster than the cancellation

        working = asyncio.create_task(work())
        if is_leaving:
            await leaves.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await asyncio.gather(*waiting)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        beats = brokers.asked(ShareGroupHeartbeatRequest)
        assert not beats or beats[-1].member_epoch == -1
        assert brokers.connections == 0

    check()
