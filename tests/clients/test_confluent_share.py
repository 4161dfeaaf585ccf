"""confluent-kafka's ShareConsumer (librdkafka): queues, on Headrace and on Apache Kafka.

It can accept, release and reject; it cannot renew, and it acquires whole batches only. What it was
given last and has not acknowledged, it releases when it is closed, in implicit mode as well.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from confluent_kafka import (
    AcknowledgeType,
    IllegalStateException,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from tests.clients.confluent_queues import (
    DEADLINE_SECONDS,
    LOCK_MS,
    QUICK,
    consumer_of,
    fill,
    gather,
    polled,
    queue,
)
from tests.headrace_process import HeadraceProcess, headrace
from tests.jvm.kafka_broker import kafka
from tools.jvm.harness import missing_tools

SILENCE_SECONDS = 1.5
"""How long a consumer that should get nothing is asked."""
ACCEPT, RELEASE, REJECT = AcknowledgeType


class Join(Protocol):
    """Makes a consumer in a group; a setting's name has `_` where librdkafka has `.`."""

    def __call__(self, group: str, *topics: str, **settings: Any) -> ShareConsumer: ...


@pytest.fixture(
    scope="module",
    params=["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.timeout(600)])],
)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Headrace, and of an Apache Kafka: the same must hold with both."""
    folder = tmp_path_factory.mktemp("share") / "data"
    if request.param == "headrace":
        with headrace(folder, QUICK) as address:
            yield address
        return
    if (missing := missing_tools()) is not None:
        pytest.skip(missing)
    with kafka(folder, extra=QUICK) as address:
        yield address


@pytest.fixture
def join(bootstrap: str) -> Iterator[Join]:
    with ExitStack() as opened:

        def make(group: str, *topics: str, **settings: Any) -> ShareConsumer:
            return opened.enter_context(consumer_of(bootstrap, group, *topics, **settings))

        yield make


def nothing_comes(consumer: ShareConsumer) -> bool:
    return polled(consumer, SILENCE_SECONDS) == []


def values(messages: Sequence[Message]) -> list[int]:
    return sorted(int(message.value() or b"-1") for message in messages)


def deliveries(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """The offset of each message, and how often it was delivered."""
    return [(message.offset() or 0, message.delivery_count() or 0) for message in messages]


EXPLICIT: Final = {"share_acknowledgement_mode": "explicit"}


def test_every_record_of_every_partition_comes_once(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap, 3)
    fill(bootstrap, name, 3000, 3)
    consumer = join(name)
    messages = gather(consumer, 3000)
    assert values(messages) == list(range(3000))
    assert {message.delivery_count() for message in messages} == {1}
    assert set(consumer.commit_sync(DEADLINE_SECONDS).values()) == {None}
    consumer.close()
    assert nothing_comes(join(name))


def test_the_next_poll_accepts_what_the_last_one_gave(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 10)
    told: list[tuple[dict[TopicPartition, set[int]], Any]] = []
    consumer = join(name)
    consumer.set_acknowledgement_commit_callback(
        lambda offsets, error: told.append((offsets, error))
    )
    gather(consumer, 10)
    assert nothing_comes(consumer)
    results = consumer.commit_sync(DEADLINE_SECONDS)
    assert set(results.values()) <= {None}
    assert {error for _, error in told} == {None}
    accepted = [offset for offsets, _ in told for found in offsets.values() for offset in found]
    assert sorted(accepted) == list(range(10))


def test_accepted_and_rejected_records_are_gone_and_released_ones_come_again(
    bootstrap: str, join: Join
) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 9)
    kinds = [ACCEPT, RELEASE, REJECT]
    consumer = join(name, **EXPLICIT)
    gather(consumer, 9, lambda message: kinds[(message.offset() or 0) % 3])
    assert consumer.commit_sync(DEADLINE_SECONDS) == {TopicPartition(name, 0): None}
    again = gather(consumer, 3, lambda message: ACCEPT)
    assert deliveries(again) == [(1, 2), (4, 2), (7, 2)]
    assert consumer.commit_sync(DEADLINE_SECONDS) == {TopicPartition(name, 0): None}
    assert consumer.commit_sync(DEADLINE_SECONDS) == {}
    assert nothing_comes(consumer)


def test_a_record_can_be_acknowledged_by_its_offset(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 3)
    consumer = join(name, **EXPLICIT)
    gather(consumer, 3)
    for offset, kind in enumerate((ACCEPT, RELEASE, ACCEPT)):
        consumer.acknowledge_offset(name, 0, offset, kind)
    with pytest.raises(IllegalStateException):
        consumer.acknowledge_offset(name, 0, 3, ACCEPT)
    assert consumer.commit_sync(DEADLINE_SECONDS) == {TopicPartition(name, 0): None}
    assert deliveries(gather(consumer, 1, lambda message: ACCEPT)) == [(1, 2)]


def test_asynchronous_commits_are_told_to_the_callback(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap, 2)
    fill(bootstrap, name, 20, 2)
    accepted: Counter[tuple[int, int]] = Counter()
    consumer = join(name, **EXPLICIT)

    def on_committed(offsets: dict[TopicPartition, set[int]], error: Any) -> None:
        assert error is None
        for row, found in offsets.items():
            accepted.update((row.partition, offset) for offset in found)

    consumer.set_acknowledgement_commit_callback(on_committed)
    for _ in gather(consumer, 20, lambda message: ACCEPT):
        consumer.commit_async()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(accepted) < 20:
        assert time.monotonic() < deadline, f"only {accepted} were told"
        assert polled(consumer) == []
    assert accepted == Counter((number % 2, number // 2) for number in range(20))


def test_the_delivery_limit_ends_a_record_that_is_always_released(
    bootstrap: str, join: Join
) -> None:
    name = queue(bootstrap, delivery_count_limit="3")
    fill(bootstrap, name, 1)
    consumer = join(name, **EXPLICIT)
    counts = [gather(consumer, 1, lambda message: RELEASE)[0].delivery_count() for _ in range(3)]
    assert counts == [1, 2, 3]
    assert nothing_comes(consumer)


def test_a_lock_that_ran_out_moves_the_record_and_fails_the_late_word(
    bootstrap: str, join: Join
) -> None:
    name = queue(bootstrap, record_lock_duration_ms=str(LOCK_MS))
    fill(bootstrap, name, 1)
    slow, quick = join(name, **EXPLICIT), join(name)
    (message,) = gather(slow, 1)
    assert deliveries(gather(quick, 1)) == [(0, 2)]
    slow.acknowledge(message, ACCEPT)
    (error,) = slow.commit_sync(DEADLINE_SECONDS).values()
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == KafkaError.INVALID_RECORD_STATE


def test_closing_gives_records_back_at_once(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 5)
    first = join(name, **EXPLICIT)
    messages = gather(first, 5)
    first.acknowledge(messages[0], ACCEPT)
    first.close()
    assert deliveries(gather(join(name), 4)) == [(offset, 2) for offset in range(1, 5)]


def test_what_a_poll_gave_last_is_released_by_closing(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 5)
    first = join(name)
    gather(first, 5)
    first.close()
    assert deliveries(gather(join(name), 5)) == [(offset, 2) for offset in range(5)]


def test_a_record_is_with_one_member_at_a_time(bootstrap: str) -> None:
    name, total = queue(bootstrap, 2), 3000
    taken: list[list[Message]] = [[], [], [], []]

    def work(messages: list[Message]) -> None:
        with consumer_of(bootstrap, name, max_poll_records=20) as consumer:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while sum(map(len, taken)) < total and time.monotonic() < deadline:
                messages += polled(consumer)
                consumer.commit_sync(DEADLINE_SECONDS)

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work, messages) for messages in taken]
        fill(bootstrap, name, total, 2)
        for each in working:
            each.result()
    messages = [message for each in taken for message in each]
    assert values(messages) == list(range(total))
    assert {message.delivery_count() for message in messages} == {1}


def test_members_come_and_go_and_no_record_is_lost_or_doubled(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap, 4)
    stays = join(name)
    found: list[Message] = []
    for turn in range(4):
        comes = join(name)
        fill(bootstrap, name, 40, 4)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found) < 40 * (turn + 1):
            assert time.monotonic() < deadline, f"only {len(found)} records came"
            found += polled(stays) + polled(comes)
        comes.commit_sync(DEADLINE_SECONDS)
        comes.close()
    assert Counter(values(found)) == Counter(dict.fromkeys(range(40), 4))
    assert {message.delivery_count() for message in found} == {1}


def test_a_subscription_can_be_changed(bootstrap: str, join: Join) -> None:
    first, second = queue(bootstrap), queue(bootstrap)
    consumer = join(first)
    fill(bootstrap, first, 3)
    assert {message.topic() for message in gather(consumer, 3)} == {first}
    fill(bootstrap, second, 3)
    consumer.subscribe([second])
    assert {message.topic() for message in gather(consumer, 3)} == {second}
    fill(bootstrap, first, 3)
    consumer.subscribe([first, second])
    assert {message.topic() for message in gather(consumer, 3)} == {first}


def test_markers_of_transactions_do_not_hold_the_queue_up(bootstrap: str, join: Join) -> None:
    name = queue(bootstrap, isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_SECONDS)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        assert producer.flush(DEADLINE_SECONDS) == 0
        if number % 2:
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            producer.commit_transaction(DEADLINE_SECONDS)
    consumer = join(name, **EXPLICIT)
    assert values(gather(consumer, 2, lambda message: ACCEPT)) == [0, 2]
    assert set(consumer.commit_sync(DEADLINE_SECONDS).values()) == {None}
    assert nothing_comes(consumer)
    consumer.close()
    fill(bootstrap, name, 1)
    assert deliveries(gather(join(name), 1)) == [(8, 1)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_consumer_outlives_its_broker(tmp_path: Path, is_killed: bool) -> None:
    node = HeadraceProcess(tmp_path / "data", QUICK)
    again: HeadraceProcess | None = None
    try:
        name = queue(node.bootstrap)
        fill(node.bootstrap, name, 2)
        with consumer_of(
            node.bootstrap, name, **EXPLICIT, reconnect_backoff_max_ms=200
        ) as consumer:
            messages = gather(consumer, 2)
            consumer.acknowledge(messages[0], ACCEPT)
            assert consumer.commit_sync(DEADLINE_SECONDS) == {TopicPartition(name, 0): None}
            if is_killed:
                node.kill()
            else:
                node.stop()
            again = HeadraceProcess(tmp_path / "data", QUICK, port=node.port)
            consumer.acknowledge(messages[1], ACCEPT)
            fill(again.bootstrap, name, 5)
            later: set[int | None] = set()
            while not later >= {2, 3, 4, 5, 6}:
                # The lock ended with the broker: the second one may come again before the others.
                later |= {message.offset() for message in gather(consumer, 1, lambda _: ACCEPT)}
            assert 0 not in later
            assert set(consumer.commit_sync(DEADLINE_SECONDS).values()) <= {None}
    finally:
        node.kill()
        if again is not None:
            again.kill()
