"""Records that a share group gives up, in the topic that it names for them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.partitioner import partition_for_key
from headrace.ids import TopicId
from headrace.records import reader, validation
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression, compress, decompress
from headrace.records.control import build_end_transaction_marker
from headrace.records.record import Headers
from tests.unit.harness import Harness
from tests.unit.share.dead_letter_topics import (
    LETTERS,
    Letter,
    begin,
    crash,
    letters,
    log_of,
    name_topic,
    wait_until,
    wait_until_finished,
)
from tests.unit.share.share_client import (
    ACCEPT,
    NOW_MS,
    REJECT,
    RELEASE,
    Member,
    append,
    configure,
    finished_up_to,
    initialize,
    move_clock,
)

LOCK_MS = 30_000

pytestmark = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


@pytest.fixture
def topic_id(harness: Harness) -> TopicId:
    created: TopicId = harness.create_topic("orders")
    return created


# What a letter is


def test_a_rejected_record_is_copied_and_says_where_it_comes_from(
    harness: Harness, topic_id: TopicId
) -> None:
    name_topic(harness)
    member = begin(harness, topic_id, b"a", b"b", b"c")
    assert member.acknowledge(0, (0, 2, [ACCEPT, REJECT, ACCEPT])) == "NONE"
    assert letters(harness, 1) == [
        Letter(
            b"key-1",
            b"b",
            {
                "__dlq.errors.topic": b"orders",
                "__dlq.errors.partition": b"0",
                "__dlq.errors.offset": b"1",
                "__dlq.errors.group": b"group",
                "__dlq.errors.delivery.count": b"1",
                "__dlq.errors.reason": b"rejected",
            },
        )
    ]
    wait_until_finished(harness, topic_id, 3)
    assert member.fetch() == {}


def test_a_copy_keeps_the_headers_of_its_record(harness: Harness, topic_id: TopicId) -> None:
    name_topic(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    headers: Headers = (("trace", b"1"), ("trace", b"2"), ("empty", None))
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"value", headers)
    produce(harness, builder.build())
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    member.acknowledge(0, (0, 0, REJECT))
    letters(harness, 1)
    (record,) = log_of(harness, LETTERS)
    assert record.headers[:3] == headers
    assert len(record.headers) == 9
    assert record.key is None


def test_letters_are_read_and_written_off_the_loop_where_that_takes_long(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_topic(harness)
    configs = {"compression.type": "gzip", "errors.deadletterqueue.group.enable": "true"}
    harness.create_topic(LETTERS, configs=configs)
    threads = set()

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            threads.add((function, threading.get_ident()))
            return function(*arguments, **named)

        return run

    for module, name in ((reader, "decompress"), (validation, "compress")):
        monkeypatch.setattr(module, name, note(getattr(module, name)))
    initialize(harness, topic_id, 0, start_offset=0)
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(NOW_MS, b"key", bytes(100_000))
    produce(harness, builder.build())
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    member.acknowledge(0, (0, 0, REJECT))
    (letter,) = letters(harness, 1)
    assert letter.value == bytes(100_000)
    used = {function for function, _ in threads}
    on_loop = {function for function, thread in threads if thread == threading.get_ident()}
    assert {compress, decompress} <= used
    assert compress not in on_loop
    assert on_loop <= {decompress}  # the test's own reading of the letter


def test_without_a_copy_a_letter_only_says_where_its_record_is(
    harness: Harness, topic_id: TopicId
) -> None:
    name_topic(harness, has_copy=False)
    member = begin(harness, topic_id, b"a")
    member.acknowledge(0, (0, 0, REJECT))
    (letter,) = letters(harness, 1)
    assert (letter.key, letter.value) == (None, None)
    assert letter.headers["__dlq.errors.offset"] == b"0"


def test_a_record_that_is_delivered_too_often_says_so(harness: Harness, topic_id: TopicId) -> None:
    name_topic(harness)
    configure(harness, share_delivery_count_limit="2")
    member = begin(harness, topic_id, b"a", b"b")
    member.acknowledge(0, (0, 1, RELEASE))
    assert member.fetch()[0].acquired == [(0, 1, 2)]
    member.acknowledge(0, (0, 0, RELEASE))
    (letter,) = letters(harness, 1)
    assert letter.headers["__dlq.errors.reason"] == b"delivery count exceeded"
    assert letter.headers["__dlq.errors.delivery.count"] == b"2"
    move_clock(harness, LOCK_MS + 1)
    assert letters(harness, 2)[1].headers["__dlq.errors.reason"] == b"acquisition lock timed out"


def test_letters_go_to_the_partition_of_their_key(harness: Harness, topic_id: TopicId) -> None:
    harness.create_topic(LETTERS, partitions=4)
    name_topic(harness)
    member = begin(harness, topic_id, *[b"x"] * 20)
    member.acknowledge(0, (0, 19, REJECT))
    wait_until(harness, lambda: sum(len(log_of(harness, LETTERS, i)) for i in range(4)) == 20)
    for index in range(4):
        for record in log_of(harness, LETTERS, index):
            assert record.key is not None
            assert partition_for_key(record.key, 4) == index


def test_a_record_that_is_too_large_for_the_topic_is_told_of(
    harness: Harness, topic_id: TopicId
) -> None:
    harness.create_topic(LETTERS, configs={"max.message.bytes": "2000"})
    name_topic(harness)
    member = begin(harness, topic_id, b"small", b"x" * 5000, b"small too")
    member.acknowledge(0, (0, 2, REJECT))
    found = letters(harness, 3)
    assert [each.value for each in found] == [b"small", None, b"small too"]
    assert found[1].headers["__dlq.errors.reason"] == (
        b"rejected; the record is too large for topic dlq.orders"
    )
    wait_until_finished(harness, topic_id, 3)


def test_many_large_records_all_arrive(harness: Harness, topic_id: TopicId) -> None:
    name_topic(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    for number in range(6):
        append(harness, *[b"%d" % number * 100_000] * 4)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000, max_bytes=1 << 24)
    member.acknowledge(0, (0, 23, REJECT))
    found = letters(harness, 24)
    assert sorted(int(each.headers["__dlq.errors.offset"] or b"") for each in found) == [*range(24)]
    wait_until_finished(harness, topic_id, 24)


def test_letters_go_to_the_leader_of_their_partition_over_the_network(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(LETTERS)
    name_topic(harness)
    member = begin(harness, topic_id, b"a", b"b")
    sender = harness.broker.share_partitions.dead_letters.sender
    monkeypatch.setattr(sender, "_replicas", LedElsewhere())
    member.acknowledge(0, (0, 1, REJECT))
    assert [each.value for each in letters(harness, 2)] == [b"a", b"b"]
    wait_until_finished(harness, topic_id, 2)


def test_a_leader_that_refuses_is_asked_again(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(LETTERS)
    name_topic(harness)
    member = begin(harness, topic_id, b"a")
    dead_letters = harness.broker.share_partitions.dead_letters
    monkeypatch.setattr(dead_letters.sender, "_replicas", LedElsewhere())
    real = harness.partition(LETTERS)
    real.min_insync_replicas = 2
    member.acknowledge(0, (0, 0, REJECT))
    wait_until(harness, lambda: dead_letters.failed_attempts >= 1)
    real.min_insync_replicas = 1
    assert [each.value for each in letters(harness, 1)] == [b"a"]
    wait_until_finished(harness, topic_id, 1)


class LedElsewhere:
    """A node that has no replica of anything."""

    def find(self, topic: str, index: int) -> None:
        return None


# What has none


def produce(harness: Harness, batch: bytearray) -> None:
    async def run() -> None:
        partition = harness.partition("orders", 0)
        partition.append(memoryview(batch), NOW_MS, needs_replicas=False)

    harness.run(run())


def produce_transaction(harness: Harness, *, is_commit: bool) -> None:
    """Append one record of a transaction, and how that ended."""
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"value")
    produce(
        harness,
        builder.build(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
    )

    async def end() -> None:
        marker = build_end_transaction_marker(
            NOW_MS, is_commit=is_commit, producer_id=7, producer_epoch=0, coordinator_epoch=0
        )
        harness.partition("orders", 0).append_own(memoryview(marker))

    harness.run(end())


def test_markers_of_transactions_have_no_letter(harness: Harness, topic_id: TopicId) -> None:
    name_topic(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    produce_transaction(harness, is_commit=True)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    member.acknowledge(0, (0, 1, REJECT))
    wait_until_finished(harness, topic_id, 2)
    (letter,) = letters(harness, 1)
    assert letter.headers["__dlq.errors.offset"] == b"0"


def test_what_was_aborted_has_no_letter_from_a_group_that_reads_only_what_is_committed(
    harness: Harness, topic_id: TopicId
) -> None:
    name_topic(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    produce_transaction(harness, is_commit=False)
    append(harness, b"plain")
    member = Member(harness, topic_id)
    assert member.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 2, 1)]
    configure(harness, share_isolation_level="read_committed")
    member.acknowledge(0, (0, 2, REJECT))
    wait_until_finished(harness, topic_id, 3)
    assert [each.value for each in letters(harness, 1)] == [b"plain"]


def test_what_compaction_took_away_has_no_letter(harness: Harness, topic_id: TopicId) -> None:
    name_topic(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"kept", offset_delta=2)

    async def append_compacted() -> None:
        partition = harness.partition("orders", 0)
        partition.log.append_replicated(
            memoryview(builder.build(leader_epoch=0, last_offset_delta=4))
        )
        partition.on_appended(1)

    harness.run(append_compacted())
    member = Member(harness, topic_id)
    assert member.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 4, 1)]
    member.acknowledge(0, (0, 4, REJECT))
    wait_until_finished(harness, topic_id, 5)
    (letter,) = letters(harness, 1)
    assert (letter.value, letter.headers["__dlq.errors.offset"]) == (b"kept", b"2")


def test_a_topic_is_not_its_own_dead_letter_topic(
    harness: Harness, topic_id: TopicId, caplog: pytest.LogCaptureFixture
) -> None:
    name_topic(harness, "orders")
    member = begin(harness, topic_id, b"a", b"b")
    member.acknowledge(0, (0, 1, REJECT))
    wait_until_finished(harness, topic_id, 2)
    assert len(log_of(harness, "orders")) == 2
    assert "topic orders would be its own dead-letter topic" in caplog.text


def test_a_topic_that_the_group_reads_gets_none_of_its_letters(
    harness: Harness, topic_id: TopicId, caplog: pytest.LogCaptureFixture
) -> None:
    letters_id = harness.create_topic(LETTERS)
    initialize(harness, letters_id, 0, start_offset=0)
    name_topic(harness)
    Member(harness, letters_id, "member-2").fetch(0, max_wait_ms=50)
    member = begin(harness, topic_id, b"a")
    member.acknowledge(0, (0, 0, REJECT))
    wait_until_finished(harness, topic_id, 1)
    assert log_of(harness, LETTERS) == []
    assert "reads topic dlq.orders" in caplog.text


def test_without_a_topic_records_are_archived_at_once(harness: Harness, topic_id: TopicId) -> None:
    member = begin(harness, topic_id, b"a")
    member.acknowledge(0, (0, 0, REJECT))
    assert finished_up_to(harness, topic_id) == 1
    assert harness.broker.share_partitions.dead_letters.sent_records == 0


# What they outlive


def test_a_letter_is_sent_again_if_the_node_dies_before_it_is_archived(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_topic(harness)
    member = begin(harness, topic_id, b"a")
    with monkeypatch.context() as patch:
        shares = harness.broker.share_partitions
        led = shares.find("group", (topic_id, 0))
        patch.setattr(type(led), "dead_lettered", lambda *_: None)
        member.acknowledge(0, (0, 0, REJECT))
        letters(harness, 1)
        crash(harness)
    Member(harness, topic_id).fetch(0, max_wait_ms=200)
    assert [each.value for each in letters(harness, 2)] == [b"a", b"a"]
    wait_until_finished(harness, topic_id, 1)


def test_a_leader_that_resigns_sends_no_more(harness: Harness, topic_id: TopicId) -> None:
    name_topic(harness)
    member = begin(harness, topic_id, b"a")
    shares = harness.broker.share_partitions
    partition = harness.partition("orders", 0)

    async def run() -> None:
        await member.acknowledge_async({0: [(0, 0, REJECT)]})
        shares.on_following(partition)

    harness.run(run())
    assert shares.dead_letters.waiting_records == 0
    member.fetch(max_wait_ms=200)
    assert letters(harness, 1)[0].value == b"a"
