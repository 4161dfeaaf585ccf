"""Queues against a broker, step by step as Spark's driver calls them; no Spark runs."""

import threading
import time
from collections.abc import Mapping

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.spark.share import progress
from headrace.spark.share.journal import ShareOffset, WrongCheckpoint
from headrace.spark.share.rejections import TOPIC
from headrace.testing.broker import TestBroker
from tests.spark.share_queues import (
    LOCK_MS,
    QUICK,
    lag,
    make_queue,
    read,
    recreate_topic,
    reject_offsets,
    share_reader,
    step,
    stored,
    values,
)

pytestmark = pytest.mark.slow
DEADLINE_SECONDS = 30


@pytest.fixture(scope="module")
def headrace_settings() -> Mapping[str, str]:
    return QUICK


def dead_letters(broker: TestBroker, topic: str, count: int) -> list[bytes]:
    """Wait until so many are written; give the values of all."""
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            found = [record.value or b"" for record in broker.consume(topic)]
        except KafkaError:
            found = []
        if len(found) >= count:
            return found
        assert time.monotonic() < until, f"no {count} dead letters are written"


def test_a_queue_is_worked_off_and_nothing_comes_twice(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module, partitions=2)
    headrace_module.produce(topic, "a", "b", partition=0)
    headrace_module.produce(topic, "c", partition=1)
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        start, rows = step(reader, start)
        assert sorted(values(rows)) == [b"a", b"b", b"c"]
        assert [row["deliveryCount"] for row in rows] == [1, 1, 1]
        assert step(reader, start) == (start, [])
        headrace_module.produce(topic, "d", partition=1)
        start, rows = step(reader, start)
        assert values(rows) == [b"d"]
        assert step(reader, start) == (start, [])
    assert lag(headrace_module, group) == 0
    with share_reader(headrace_module, topic, group) as reader:
        assert step(reader, start) == (start, [])


def test_records_are_accepted_by_the_next_question_and_not_before(
    headrace_module: TestBroker,
) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a")
    with share_reader(headrace_module, topic, group) as reader:
        end, _ = step(reader, stored(reader.initialOffset()))
        reader.commit(end)
        assert lag(headrace_module, group) != 0
        reader.latestOffset(end, ReadMaxRows(1))
        assert lag(headrace_module, group) == 0


def test_a_limit_bounds_a_batch_and_tasks_may_be_more_than_partitions(
    headrace_module: TestBroker,
) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, *map(str, range(25)))
    given = {"maxRecordsPerTrigger": 10, "minPartitions": 4}
    with share_reader(headrace_module, topic, group, **given) as reader:
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(10)
        start = stored(reader.initialOffset())
        sizes: list[int] = []
        seen: list[bytes] = []
        while True:
            end = stored(reader.latestOffset(start, limit))
            if end == start:
                break
            assert len(reader.partitions(start, end)) == min(4, 25 - len(seen))
            rows = read(reader, start, end)
            sizes.append(len(rows))
            seen += values(rows)
            start = end
    assert sizes == [10, 10, 5]
    assert seen == [str(number).encode() for number in range(25)]


def test_a_reader_that_stops_gives_back_what_it_holds(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a", "b")
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        assert values(step(reader, start)[1]) == [b"a", b"b"]
    with share_reader(headrace_module, topic, group) as reader:
        assert values(step(reader, start)[1]) == [b"a", b"b"]


def test_two_readers_share_the_work(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, *map(str, range(40)))
    given = {"maxRecordsPerTrigger": 5}
    with (
        share_reader(headrace_module, topic, group, **given) as one,
        share_reader(headrace_module, topic, group, **given) as two,
    ):
        starts = [stored(one.initialOffset()), stored(two.initialOffset())]
        seen: list[list[bytes]] = [[], []]
        while True:
            got = 0
            for at, reader in enumerate((one, two)):
                starts[at], rows = step(reader, starts[at], ReadMaxRows(5))
                seen[at] += values(rows)
                got += len(rows)
            if not got:
                break
    assert sorted(map(int, seen[0] + seen[1])) == list(range(40))
    assert len(seen[0]) == len(seen[1])


def test_a_replayed_batch_is_read_again_and_its_records_are_not_given_twice(
    headrace_module: TestBroker,
) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a", "b")
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        end, rows = step(reader, start)
    # The driver died with this batch in its offset log: it is read by range, without a lease.
    headrace_module.produce(topic, "c")
    with share_reader(headrace_module, topic, group) as again:
        assert read(again, start, end) == rows
        # It is durable now: what the group still holds of it is accepted, only the rest is read.
        last, rows = step(again, end)
        assert values(rows) == [b"c"]
        assert step(again, last) == (last, [])
    assert lag(headrace_module, group) == 0


def test_another_member_may_get_what_a_dead_driver_did_not_acknowledge(
    headrace_module: TestBroker,
) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a")
    with share_reader(headrace_module, topic, group) as reader:
        step(reader, stored(reader.initialOffset()))
    with share_reader(headrace_module, topic, group) as other:
        assert values(step(other, stored(other.initialOffset()))[1]) == [b"a"]


def test_a_batch_may_take_longer_than_its_locks(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module, share_record_lock_duration_ms=str(LOCK_MS))
    headrace_module.produce(topic, "a", "b")
    with (
        share_reader(headrace_module, topic, group) as reader,
        share_reader(headrace_module, topic, group) as other,
    ):
        end, rows = step(reader, stored(reader.initialOffset()))
        assert len(rows) == 2
        nothing = stored(other.initialOffset())
        until = time.monotonic() + 2.5 * LOCK_MS / 1000
        while time.monotonic() < until:
            assert step(other, nothing) == (nothing, [])
        assert step(reader, end) == (end, [])
    assert lag(headrace_module, group) == 0


def test_leases_that_a_broker_forgot_are_made_good_when_records_come_again(
    headrace: TestBroker,
) -> None:
    topic, group = make_queue(headrace)
    headrace.produce(topic, "a", "b")
    with share_reader(headrace, topic, group) as reader:
        end, rows = step(reader, stored(reader.initialOffset()))
        assert len(rows) == 2
        headrace.restart()
        until = time.monotonic() + DEADLINE_SECONDS
        while lag(headrace, group) != 0:
            assert time.monotonic() < until, "the records are never accepted"
            assert step(reader, end) == (end, [])
        headrace.produce(topic, "c")
        while not (rows := step(reader, end)[1]):
            assert time.monotonic() < until, "nothing comes any more"
        assert values(rows) == [b"c"]


def test_delivery_counts_come_with_records(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a")
    where = TopicPartition(topic, 0)
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        first = ShareOffset.from_json(stored(reader.latestOffset(start, ReadMaxRows(1))))
        # A start that Spark never had, so that what is held is given back.
        unknown = ShareOffset(group, 99).to_json()
        again = ShareOffset.from_json(stored(reader.latestOffset(unknown, ReadMaxRows(1))))
    counts = [
        run.delivery_count
        for offset in (first, again)
        for shared, runs in offset.runs.items()
        if shared.partition == where
        for run in runs
    ]
    assert counts == [1, 2]


def test_rejected_records_go_to_the_dead_letters(headrace_module: TestBroker) -> None:
    letters = f"dlq.{time.time_ns()}"
    topic, group = make_queue(headrace_module, errors_deadletterqueue_topic_name=letters)
    headrace_module.produce(topic, "good", "bad", "fine", "worse")
    with share_reader(headrace_module, topic, group) as reader:
        end, rows = step(reader, stored(reader.initialOffset()))
        assert len(rows) == 4
        reject_offsets(headrace_module, group, topic, (1, 1), (3, 3))
        reject_offsets(headrace_module, "others", topic, (0, 0))
        assert step(reader, end) == (end, [])
    assert sorted(dead_letters(headrace_module, letters, 2)) == [b"bad", b"worse"]
    last = {record.key or b"": record.value for record in headrace_module.consume(TOPIC)}
    of_group = [value for key, value in last.items() if key.startswith(f"{group}/".encode())]
    assert of_group == [None]
    assert [value for key, value in last.items() if key.startswith(b"others/")] == [b"[[0,0]]"]


def test_a_second_rejection_does_not_undo_the_first(headrace_module: TestBroker) -> None:
    letters = f"dlq.{time.time_ns()}"
    topic, group = make_queue(headrace_module, errors_deadletterqueue_topic_name=letters)
    headrace_module.produce(topic, "bad", "good", "worse")
    with share_reader(headrace_module, topic, group) as reader:
        end, _ = step(reader, stored(reader.initialOffset()))
        for ranges in ([(0, 0), (2, 2)], [(0, 0)]):
            reject_offsets(headrace_module, group, topic, *ranges)
        assert step(reader, end) == (end, [])
    assert sorted(dead_letters(headrace_module, letters, 2)) == [b"bad", b"worse"]


def test_rejections_of_a_topic_do_not_touch_the_next_one_of_its_name(
    headrace_module: TestBroker,
) -> None:
    letters = f"dlq.{time.time_ns()}"
    topic, group = make_queue(headrace_module, errors_deadletterqueue_topic_name=letters)
    headrace_module.produce(topic, "old")
    reject_offsets(headrace_module, group, topic, (0, 0))
    recreate_topic(headrace_module, topic)
    headrace_module.produce(topic, "good", "bad")
    reject_offsets(headrace_module, group, topic, (1, 1))
    with share_reader(headrace_module, topic, group) as reader:
        end, rows = step(reader, stored(reader.initialOffset()))
        assert values(rows) == [b"good", b"bad"]
        assert step(reader, end) == (end, [])
    assert dead_letters(headrace_module, letters, 1) == [b"bad"]


def test_rejections_of_records_that_come_later_outlive_those_that_are_done(
    headrace_module: TestBroker,
) -> None:
    letters = f"dlq.{time.time_ns()}"
    topic, group = make_queue(headrace_module, errors_deadletterqueue_topic_name=letters)
    headrace_module.produce(topic, "bad", "good", "worse")
    reject_offsets(headrace_module, group, topic, (0, 0), (2, 2))
    given = {"maxRecordsPerTrigger": 1}
    for _ in range(3):  # another process each, which knows what is written and nothing else
        with share_reader(headrace_module, topic, group, **given) as reader:
            end, rows = step(reader, stored(reader.initialOffset()), ReadMaxRows(1))
            assert len(rows) == 1
            reader.latestOffset(end, ReadMaxRows(1))
    assert sorted(dead_letters(headrace_module, letters, 2)) == [b"bad", b"worse"]


def test_of_many_records_every_second_one_is_rejected(headrace_module: TestBroker) -> None:
    letters = f"dlq.{time.time_ns()}"
    topic, group = make_queue(headrace_module, errors_deadletterqueue_topic_name=letters)
    headrace_module.produce(topic, *map(str, range(400)))
    with share_reader(headrace_module, topic, group) as reader:
        end, rows = step(reader, stored(reader.initialOffset()))
        assert len(rows) == 400
        bad = [(offset, offset) for offset in range(0, 400, 2)]
        reject_offsets(headrace_module, group, topic, *bad)
        assert step(reader, end) == (end, [])
    found = dead_letters(headrace_module, letters, 200)
    assert sorted(map(int, found)) == list(range(0, 400, 2))
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        assert step(reader, start) == (start, []), "the others are accepted"


def test_available_now_ends_with_what_was_there(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a", "b", "c")
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        reader.prepareForTriggerAvailableNow()
        headrace_module.produce(topic, "later")
        start, rows = step(reader, start, ReadMaxRows(3))
        assert values(rows)[:3] == [b"a", b"b", b"c"]
        assert step(reader, start, ReadMaxRows(3)) == (start, [])


def test_available_now_takes_what_comes_when_another_member_leaves_after_a_while(
    headrace_module: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked_ms_max = 500
    monkeypatch.setattr(progress, "LOCKED_MS_MAX", locked_ms_max)
    monkeypatch.setattr(progress, "LAST_WAIT_MS", 100)
    topic, group = make_queue(headrace_module, partitions=2)
    for partition in range(2):
        headrace_module.produce(topic, str(partition), partition=partition)
    with (
        share_reader(headrace_module, topic, group) as idle,
        share_reader(headrace_module, topic, group) as reader,
    ):
        idle.initialOffset()
        start = stored(reader.initialOffset())
        reader.prepareForTriggerAvailableNow()
        start, first = step(reader, start)
        assert len(first) == 1
        leaving = threading.Timer(3 * locked_ms_max / 1000, idle.stop)
        leaving.start()
        start, rest = step(reader, start)
        leaving.join()
    assert sorted(values(first + rest)) == [b"0", b"1"]


def test_the_lag_is_reported(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a", "b", "c")
    with share_reader(headrace_module, topic, group, maxRecordsPerTrigger=1) as reader:
        assert reader.reportLatestOffset() is None
        start = stored(reader.initialOffset())
        until = time.monotonic() + DEADLINE_SECONDS
        seen: list[bytes] = []
        while True:
            start, rows = step(reader, start, ReadMaxRows(1))
            seen += values(rows)
            where = (reader.reportLatestOffset() or {}).get(topic, {}).get("0", {})
            if where.get("lag") == 0:
                break
            assert time.monotonic() < until, where
    assert seen == [b"a", b"b", b"c"]


def test_a_question_that_is_asked_again_has_the_same_answer(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    headrace_module.produce(topic, "a")
    with share_reader(headrace_module, topic, group) as reader:
        start = stored(reader.initialOffset())
        end, rows = step(reader, start)
        assert step(reader, start) == (end, rows)


def test_a_checkpoint_of_another_group_is_refused(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    with share_reader(headrace_module, topic, group) as reader:
        reader.initialOffset()
        with pytest.raises(WrongCheckpoint, match="share group 'others'"):
            reader.latestOffset(ShareOffset("others").to_json(), ReadMaxRows(1))
        with pytest.raises(WrongCheckpoint, match="not to a queue"):
            reader.latestOffset({"orders": {"0": 1}}, ReadMaxRows(1))


def test_a_missing_topic_is_named(headrace_module: TestBroker) -> None:
    with (
        share_reader(headrace_module, "nowhere", "group") as reader,
        pytest.raises(KafkaError, match="nowhere"),
    ):
        reader.initialOffset()
