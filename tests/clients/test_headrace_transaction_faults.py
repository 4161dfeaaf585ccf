"""Transactions of our own producer when the broker is late, gone or says no; in both protocols."""

# ruff: noqa: PT012  the end of a block is what raises

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import (
    Admin,
    ClientError,
    ClientSettings,
    Consumer,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerFenced,
    ProducerSettings,
    Start,
    TopicPartition,
    TransactionAborted,
)
from headrace.server.request import Request
from headrace.testing.broker import TestBroker
from headrace.testing.faults import GoOn
from tests.clients.awaiting import run

QUICK = ClientSettings(retry_backoff_ms=10, retry_backoff_max_ms=50)
TOPIC = "t"


@pytest.fixture(params=[2, 1], ids=["implicit", "explicit"])
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    async def downgrade() -> None:
        async with Admin(served.bootstrap) as admin:
            await admin.update_features({"transaction.version": 1}, may_downgrade=True)

    with TestBroker() as served:
        served.create_topic(TOPIC, 2)
        if request.param == 1:
            run(downgrade())
        yield served


async def committed(broker: TestBroker) -> list[bytes | None]:
    async with Consumer(broker.bootstrap, read_committed=True) as consumer:
        await consumer.assign(TOPIC, Start.BEGINNING, until_end=True)
        return [record.value async for record in consumer]


async def end_of_committed(broker: TestBroker, wanted: list[bytes]) -> None:
    """Wait until readers of committed records see this and nothing is open."""
    while await committed(broker) != wanted:
        await asyncio.sleep(0.02)  # polls, up to the deadline of `run`


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_broker_that_comes_back_in_the_middle_is_the_same_transaction(
    broker: TestBroker, is_crash: bool
) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            for number in range(2):
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"%d before" % number, partition=0)
                    await asyncio.to_thread(broker.crash if is_crash else broker.stop)
                    sending = asyncio.create_task(
                        producer.deliver(TOPIC, b"%d after" % number, partition=0)
                    )
                    await asyncio.to_thread(broker.start)
                    await sending
        wanted = [b"0 before", b"0 after", b"1 before", b"1 after"]
        await end_of_committed(broker, wanted)

    run(work())


def test_a_commit_that_finds_no_broker_is_brought_to_its_end(broker: TestBroker) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:

            async def leave() -> None:
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)
                    await asyncio.to_thread(broker.crash)

            leaving = asyncio.create_task(leave())
            while producer._transactions is None or producer._transactions._ending is None:
                await asyncio.sleep(0.01)  # polls, up to the deadline of `run`
            await asyncio.to_thread(broker.start)
            await leaving
            async with producer.transaction():
                await producer.send(TOPIC, b"y", partition=0)
        await end_of_committed(broker, [b"x", b"y"])

    run(work())


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_whose_response_is_lost_is_asked_for_again(
    broker: TestBroker, is_commit: bool
) -> None:
    """The broker has carried it out; the connection ends before it can say so."""

    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            try:
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)
                    lose_next_response(broker, "EndTxn")
                    if not is_commit:
                        raise LookupError
            except LookupError:
                assert not is_commit
            async with producer.transaction():
                await producer.send(TOPIC, b"y", partition=0)
        await end_of_committed(broker, [b"x", b"y"] if is_commit else [b"y"])

    run(work())


@pytest.mark.parametrize(
    "api", ["Produce", "EndTxn", "AddPartitionsToTxn", "TxnOffsetCommit", "AddOffsetsToTxn"]
)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        None,
    ],
)
def test_what_passes_is_tried_again(broker: TestBroker, api: str, code: ErrorCode | None) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            if code is None:
                broker.faults.close_connection(api, times=2)
            else:
                broker.faults.fail(api, code, times=2)
            async with producer.transaction() as transaction:
                await producer.send(TOPIC, b"x", partition=0)
                await transaction.send_offsets({TopicPartition(TOPIC, 0): 1}, "group")
            async with Admin(broker.bootstrap) as admin:
                found = await admin.list_group_offsets("group", require_stable=True)
                assert found[TopicPartition(TOPIC, 0)].offset == 1
        broker.faults.clear()
        await end_of_committed(broker, [b"x"])

    run(work())


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("Produce", ErrorCode.TRANSACTION_ABORTABLE),
        ("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("Produce", ErrorCode.UNKNOWN_PRODUCER_ID),
        ("EndTxn", ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_an_error_that_asks_for_an_abort_is_one(
    broker: TestBroker, api: str, code: ErrorCode
) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            with pytest.raises(TransactionAborted) as aborted:
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)
                    broker.faults.fail(api, code, times=1)
                    await producer.send(TOPIC, b"y", partition=1)
            assert isinstance(aborted.value.__cause__, KafkaError)
            assert aborted.value.__cause__.code == code
            for value in (b"one", b"two"):
                async with producer.transaction():
                    await producer.send(TOPIC, value, partition=0)
        await end_of_committed(broker, [b"one", b"two"])

    run(work())


@pytest.mark.parametrize("api", ["Produce", "AddPartitionsToTxn", "TxnOffsetCommit"])
def test_an_abort_of_what_the_coordinator_never_heard_of_is_fine(
    broker: TestBroker, api: str
) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            for value in (b"one", b"two"):
                broker.faults.fail(api, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
                try:
                    async with producer.transaction() as transaction:
                        if api == "TxnOffsetCommit":
                            await transaction.send_offsets({TopicPartition(TOPIC, 0): 1}, "g")
                        await producer.send(TOPIC, b"refused", partition=0)
                except (TransactionAborted, KafkaError):
                    broker.faults.clear()
                else:  # with implicit adds nobody asks for this one
                    assert api == "AddPartitionsToTxn"
                    broker.faults.clear()
                    return
                async with producer.transaction():
                    await producer.send(TOPIC, value, partition=0)
        await end_of_committed(broker, [b"one", b"two"])

    run(work())


def test_two_who_close_at_once_wait_for_the_same_end(broker: TestBroker) -> None:
    async def work() -> None:
        producer = Producer(broker.bootstrap, QUICK, transactional_id="id")
        await producer.transaction().__aenter__()
        await producer.deliver(TOPIC, b"x", partition=0)
        broker.faults.delay("EndTxn", 200, times=1)
        await asyncio.gather(producer.close(), producer.close())
        async with Admin(broker.bootstrap) as admin:
            assert (await admin.describe_transaction("id")).state != "Ongoing"

    run(work())


def test_a_commit_that_is_cancelled_with_its_producer_comes_to_its_end(broker: TestBroker) -> None:
    async def work() -> None:
        async def leave() -> None:
            async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
                producers.append(producer)
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)
                    broker.faults.close_connection("EndTxn", times=3)

        producers: list[Producer] = []
        leaving = asyncio.create_task(leave())
        while not producers or producers[0]._transactions is None:
            await asyncio.sleep(0)
        while producers[0]._transactions._ending is None:
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await end_of_committed(broker, [b"x"])

    run(work())


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("api", ["Produce", "EndTxn", "TxnOffsetCommit"])
def test_a_fenced_producer_says_so_and_refuses(
    broker: TestBroker, api: str, code: ErrorCode
) -> None:
    async def work() -> None:
        producer = Producer(broker.bootstrap, QUICK, transactional_id="id")
        broker.faults.fail(api, code)
        with pytest.raises(ProducerFenced):
            async with producer.transaction() as transaction:
                await producer.send(TOPIC, b"x", partition=0)
                await transaction.send_offsets({TopicPartition(TOPIC, 0): 1}, "group")
        broker.faults.clear()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                pass
        with pytest.raises(ProducerFenced):
            await producer.send(TOPIC, b"x")
        await producer.abandon()

    run(work())


def test_an_exception_is_seen_even_if_batches_and_the_abort_fail(broker: TestBroker) -> None:
    async def work() -> None:
        producer = Producer(broker.bootstrap, QUICK, transactional_id="id")
        broker.faults.fail("EndTxn", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.deliver(TOPIC, b"x", partition=0)
                broker.faults.fail("Produce", ErrorCode.INVALID_RECORD)
                await producer.send(TOPIC, b"y", partition=1)
                raise LookupError
        broker.faults.clear()
        with pytest.raises(ClientError, match=r"is unusable.*AUTHORIZATION"):
            async with producer.transaction():
                pass
        await producer.close()

    run(work())


def test_a_commit_that_is_cancelled_while_records_are_on_their_way_is_an_abort(
    broker: TestBroker,
) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:

            async def leave() -> None:
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)
                    broker.faults.delay("Produce", 500, times=1)
                    await producer.send(TOPIC, b"y", partition=0)

            leaving = asyncio.create_task(leave())
            while producer._transactions is None or not producer._transactions.may_abort:
                await asyncio.sleep(0)
            while producer._transactions.is_open:
                await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            async with producer.transaction():
                await producer.send(TOPIC, b"z", partition=0)
        await end_of_committed(broker, [b"z"])

    run(work())


def test_a_commit_that_is_cancelled_on_its_way_goes_on_and_the_next_one_waits(
    broker: TestBroker,
) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            broker.faults.delay("EndTxn", 300, times=1)

            async def leave() -> None:
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)

            leaving = asyncio.create_task(leave())
            while producer._transactions is None or producer._transactions._ending is None:
                await asyncio.sleep(0.005)  # polls, up to the deadline of `run`
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            async with producer.transaction():
                await producer.send(TOPIC, b"y", partition=0)
        await end_of_committed(broker, [b"x", b"y"])

    run(work())


def test_a_commit_waits_for_sends_that_have_begun(broker: TestBroker) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            async with producer.transaction():
                broker.faults.delay("Metadata", 200, times=1)
                sending = asyncio.create_task(producer.send(TOPIC, b"x", partition=0))
                while not producer._sender._entering:
                    await asyncio.sleep(0)
            assert sending.done()
            await sending
        await end_of_committed(broker, [b"x"])

    run(work())


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_that_are_on_their_way_when_a_block_ends(
    broker: TestBroker, is_commit: bool
) -> None:
    async def work() -> None:
        partition = TopicPartition(TOPIC, 0)
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            broker.faults.delay("TxnOffsetCommit", 300, times=1)
            try:
                async with producer.transaction() as transaction:
                    await producer.deliver(TOPIC, b"x", partition=0)
                    committing = asyncio.create_task(transaction.send_offsets({partition: 7}, "g"))
                    while not producer._sender._entering:
                        await asyncio.sleep(0)
                    if not is_commit:
                        raise LookupError
            except LookupError:
                assert not is_commit
            outcome = (await asyncio.gather(committing, return_exceptions=True))[0]
            assert (outcome is None) or not is_commit
            async with producer.transaction():
                await producer.send(TOPIC, b"y", partition=0)
            async with Admin(broker.bootstrap) as admin:
                found = await admin.list_group_offsets("g", [partition], require_stable=True)
                assert (partition in found) == is_commit
        await end_of_committed(broker, [b"x", b"y"] if is_commit else [b"y"])

    run(work())


def test_a_cancelled_send_within_a_transaction_is_an_abort(broker: TestBroker) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            broker.faults.delay("Metadata", 1000, times=1)
            with pytest.raises(TransactionAborted, match="send was cancelled"):
                async with producer.transaction():
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(producer.send(TOPIC, b"x", partition=0), 0.05)
            async with producer.transaction():
                await producer.send(TOPIC, b"y", partition=0)
        await end_of_committed(broker, [b"y"])

    run(work())


def test_a_send_of_an_aborted_transaction_does_not_get_into_the_next(broker: TestBroker) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, QUICK, transactional_id="id") as producer:
            with pytest.raises(LookupError):
                async with producer.transaction():
                    broker.faults.delay("Metadata", 300, times=1)
                    sending = asyncio.create_task(producer.send(TOPIC, b"x", partition=0))
                    while not producer._sender._entering:
                        await asyncio.sleep(0)
                    raise LookupError
            async with producer.transaction():
                await producer.send(TOPIC, b"y", partition=0)
                with pytest.raises(TransactionAborted):
                    await sending
        await end_of_committed(broker, [b"y"])

    run(work())


def test_a_block_that_is_cancelled_while_memory_is_full_ends(broker: TestBroker) -> None:
    async def work() -> None:
        limits = ProducerSettings(memory_bytes=2000)
        async with Producer(
            broker.bootstrap, QUICK, transactional_id="id", limits=limits
        ) as producer:

            async def block() -> None:
                async with producer.transaction():
                    await producer.deliver(TOPIC, b"x", partition=0)
                    broker.faults.delay("Produce", 300, times=1)
                    while True:
                        await producer.send(TOPIC, bytes(500), partition=0)

            blocking = asyncio.create_task(block())
            while not producer._sender._entering:
                await asyncio.sleep(0.005)  # polls, up to the deadline of `run`
            blocking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await blocking
            broker.faults.clear()
            async with producer.transaction():
                await producer.send(TOPIC, b"z", partition=0)
        await end_of_committed(broker, [b"z"])

    run(work())


def test_abandon_within_a_transaction_leaves_it_to_the_cluster(broker: TestBroker) -> None:
    async def work() -> None:
        producer = Producer(broker.bootstrap, QUICK, transactional_id="id")
        with pytest.raises(ClientError, match="closed"):
            async with producer.transaction():
                await producer.deliver(TOPIC, b"x", partition=0)
                await producer.abandon()
        async with Admin(broker.bootstrap) as admin:
            assert (await admin.describe_transaction("id")).state == "Ongoing"
        async with (
            Producer(broker.bootstrap, QUICK, transactional_id="id") as heir,
            heir.transaction(),
        ):
            await heir.send(TOPIC, b"y", partition=0)
        await end_of_committed(broker, [b"y"])

    run(work())


def test_a_timeout_that_the_cluster_does_not_allow_is_named(broker: TestBroker) -> None:
    async def work() -> None:
        with pytest.raises(KafkaError, match="transaction_timeout_ms=2000000000"):
            async with Producer(
                broker.bootstrap, transactional_id="id", transaction_timeout_ms=2_000_000_000
            ):
                pass

    run(work())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"transactional_id": ""}, "transactional_id"),
        ({"transactional_id": "id", "acks": 1}, "acks"),
        ({"transactional_id": "id", "idempotent": False}, "idempotent"),
        ({"transactional_id": "id", "transaction_timeout_ms": 0}, "transaction_timeout_ms"),
        ({"transaction_timeout_ms": 10}, "transactional_id"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Producer("127.0.0.1:1", **options)


def lose_next_response(broker: TestBroker, api: str) -> None:
    """Carry the next request out, and end its connection instead of an answer."""

    def lose(request: Request, go_on: GoOn) -> None:
        go_on()
        request.peer.close("a fault that the test asked for")

    broker.faults._plan(api, lose, times=1)
