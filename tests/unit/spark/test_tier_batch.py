import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.errors import KafkaError
from headrace.ids import TopicId, topic_id_text
from headrace.remote.layout import LEASES_PREFIX, ObjectKind, object_key
from headrace.remote.leases import read_leases
from headrace.remote.object_store import open_store
from headrace.remote.segments import TopicIdPartition
from headrace.remote.store_options import StoreOptions
from headrace.spark.loss import DataLoss
from headrace.spark.options import InvalidOption
from headrace.spark.reading import UnreadableRecords
from headrace.spark.schema import topic_schema
from headrace.spark.tier.batch import TierReader
from headrace.spark.tier.options import tier_options
from headrace.spark.tier.stores import close_stores
from headrace.spark.tier.task import TierTask
from tests.unit.remote.described import PARTITION
from tests.unit.remote.tiered import TieredLog


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_stores()


def upload(folder: Path, *logs: TieredLog) -> None:
    async def work() -> None:
        store = open_store(folder.as_uri(), StoreOptions())
        for log in logs:
            await log.upload(store)
        await store.close()

    asyncio.run(work())


def reader(folder: Path, **options: object) -> TierReader:
    given = {"store": folder.as_uri(), "subscribe": "orders"}
    given |= {name.replace("_", "."): str(value) for name, value in options.items()}
    parsed = tier_options(given)
    return TierReader(parsed, topic_schema(parsed.columns))


def rows(folder: Path, **options: object) -> list[tuple[int, bytes]]:
    """Return offsets and values, as Spark's tasks would read them one after the other."""
    made = reader(folder, **options)
    found: list[tuple[int, bytes]] = []
    for task in made.partitions():
        there = pickle.loads(pickle.dumps((made, task)))
        for batch in there[0].read(there[1]):
            table = batch.to_pydict()
            found += zip(table["offset"], table["value"], strict=True)
    return found


def leases(folder: Path) -> list[str]:
    async def work() -> list[str]:
        store = open_store(folder.as_uri(), StoreOptions())
        found = [each.holder for each in (await read_leases(store, 0)).current]
        await store.close()
        return found

    return asyncio.run(work())


def some_log(
    segments: int = 3, partition: TopicIdPartition = PARTITION, start_offset: int = 0
) -> TieredLog:
    log = TieredLog(partition, start_offset)
    for number in range(segments):
        for _ in range(4):
            log.append([b"v%d" % (log.next_offset + each) for each in range(5)], timestamp=number)
        log.roll()
    return log


def test_a_topic_is_read_from_the_store_alone(tmp_path: Path) -> None:
    upload(tmp_path, some_log())
    assert rows(tmp_path) == [(offset, b"v%d" % offset) for offset in range(60)]


def test_many_small_tasks_read_the_same(tmp_path: Path) -> None:
    upload(tmp_path, some_log())
    expected = [(offset, b"v%d" % offset) for offset in range(60)]
    assert rows(tmp_path, maxRecordsPerPartition=7, partBytes=100) == expected
    assert len(reader(tmp_path, maxRecordsPerPartition=7).partitions()) > 8


def test_offsets_and_times_bound_a_read(tmp_path: Path) -> None:
    upload(tmp_path, some_log())

    def offsets(**options: object) -> list[int]:
        return [offset for offset, _ in rows(tmp_path, **options)]

    assert offsets(
        startingOffsets='{"orders": {"7": 7}}', endingOffsets='{"orders": {"7": 23}}'
    ) == list(range(7, 23))
    assert offsets(startingTimestamp=1) == list(range(20, 60))
    assert offsets(endingTimestamp=1) == list(range(20))
    with pytest.raises(InvalidOption, match="as late as"):
        offsets(startingTimestamp=3)
    assert offsets(startingTimestamp=3, startingOffsetsByTimestampStrategy="latest") == []


def test_offsets_that_the_tier_has_not_are_a_loss(tmp_path: Path) -> None:
    upload(tmp_path, some_log(start_offset=10))
    early = {"startingOffsets": '{"orders": {"7": 3}}'}
    late = {"endingOffsets": '{"orders": {"7": 71}}'}
    for options in (early, late):
        with pytest.raises(DataLoss):
            rows(tmp_path, **options)
        assert len(rows(tmp_path, **options, failOnDataLoss=False)) == 60


def test_a_missing_segment_is_a_loss_unless_it_is_not_wanted(tmp_path: Path) -> None:
    log = some_log()
    upload(tmp_path, log)
    (tmp_path / object_key(log.segments[1], ObjectKind.LEADER_EPOCHS)).unlink()
    with pytest.raises(DataLoss, match="20 to 39"):
        rows(tmp_path)
    assert len(rows(tmp_path, endingOffsets='{"orders": {"7": 20}}')) == 20
    assert len(rows(tmp_path, failOnDataLoss=False)) == 40


def test_an_object_that_is_deleted_after_planning_is_a_loss(tmp_path: Path) -> None:
    log = some_log()
    upload(tmp_path, log)
    made = reader(tmp_path)
    (task,) = made.partitions()
    (tmp_path / object_key(log.segments[2], ObjectKind.LOG)).unlink()
    with pytest.raises(DataLoss, match="40 to 59"):
        list(made.read(task))


def test_damage_names_the_segment(tmp_path: Path) -> None:
    log = some_log()
    upload(tmp_path, log)
    path = tmp_path / object_key(log.segments[1], ObjectKind.LOG)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnreadableRecords):
        rows(tmp_path)


def test_a_lease_holds_what_is_read(tmp_path: Path) -> None:
    upload(tmp_path, some_log())
    made = reader(tmp_path, endingOffsets='{"orders": {"7": 20}}')
    (task,) = made.partitions()
    assert isinstance(task, TierTask)
    assert task.lease is not None
    assert task.lease.covers(PARTITION.key, 0, 20)
    assert not task.lease.covers(PARTITION.key, 20, 40)
    assert leases(tmp_path) == ["Spark read of orders"]
    for _ in range(2):  # a query may run again
        assert list(made.read(task))
        assert leases(tmp_path) == []


def test_the_last_task_ends_the_lease(tmp_path: Path) -> None:
    upload(tmp_path, some_log())
    made = reader(tmp_path, maxRecordsPerPartition=20)
    first, second, third = made.partitions()
    for task in (third, first, first):
        list(made.read(task))
        assert leases(tmp_path) == ["Spark read of orders"]
    list(made.read(second))
    assert leases(tmp_path) == []


def test_a_read_of_nothing_leaves_no_lease(tmp_path: Path) -> None:
    upload(tmp_path, some_log())
    assert rows(tmp_path, startingTimestamp=9, startingOffsetsByTimestampStrategy="latest") == []
    assert leases(tmp_path) == []
    with pytest.raises(InvalidOption):
        rows(tmp_path, startingOffsets='{"orders": {"6": 20}}')
    assert leases(tmp_path) == []
    rows(tmp_path, lease=False)
    assert not (tmp_path / LEASES_PREFIX).exists() or leases(tmp_path) == []


def test_a_topic_that_the_tier_has_not_is_named(tmp_path: Path) -> None:
    upload(tmp_path, some_log())
    options = tier_options({"store": tmp_path.as_uri(), "subscribe": "bills"})
    made = TierReader(options, topic_schema(options.columns))
    with pytest.raises(KafkaError, match="bills"):
        made.partitions()


def test_of_two_topics_of_a_name_one_is_chosen(tmp_path: Path) -> None:
    other = replace(PARTITION, topic_id=TopicId(b"x" * 16))
    upload(tmp_path, some_log(), some_log(1, partition=other))
    with pytest.raises(InvalidOption, match="topicId"):
        rows(tmp_path)
    assert len(rows(tmp_path, topicId=topic_id_text(other.topic_id))) == 20


def test_records_of_another_lineage_are_not_read(tmp_path: Path) -> None:
    lost = TieredLog()
    lost.append([b"same"] * 5)
    lost.append([b"lost"] * 5)
    lost.roll(1)
    kept = TieredLog()
    kept.append([b"same"] * 5)
    kept.begin_epoch(2)
    kept.append([b"kept"] * 3)
    kept.roll(2)
    upload(tmp_path, lost, kept)
    assert [value for _, value in rows(tmp_path)] == [b"same"] * 5 + [b"kept"] * 3


def test_overlapping_segments_give_each_record_once(tmp_path: Path) -> None:
    one, other = TieredLog(), TieredLog()
    for log, cuts in ((one, (3, 6)), (other, (4, 6))):
        for number in range(6):
            log.append([b"%d" % number] * 2)
            if number + 1 in cuts:
                log.roll(number + (10 if log is one else 20))
    upload(tmp_path, one, other)
    assert [offset for offset, _ in rows(tmp_path)] == list(range(12))


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["write", "write", "commit", "abort", "roll"])),
    max_size=40,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(STEPS, st.integers(1, 9), st.integers(60, 2000))
def test_committed_records_are_those_of_committed_transactions(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, str]],
    records_max: int,
    part_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("tier")
    log = TieredLog()
    everything: list[tuple[int, bytes]] = []
    open_ones: dict[int, list[tuple[int, bytes]]] = {}
    committed: list[tuple[int, bytes]] = []
    count = 0
    for producer, step in steps:
        if step == "write":
            written = [(log.next_offset + each, b"%d" % (count + each)) for each in range(2)]
            count += 2
            log.append([value for _, value in written], producer_id=producer)
            everything += written
            open_ones.setdefault(producer, []).extend(written)
        elif step in ("commit", "abort") and producer in open_ones:
            log.end(producer, is_commit=step == "commit")
            written = open_ones.pop(producer)
            committed += written if step == "commit" else []
        elif step == "roll" and log.next_offset > (
            log.segments[-1].next_offset if log.segments else 0
        ):
            log.roll()
    undecided = min((log.first_of(each) for each in open_ones), default=None)
    if log.next_offset == (log.segments[-1].next_offset if log.segments else 0):
        log.append([b"last"])
        everything.append((log.next_offset - 1, b"last"))
        committed.append(everything[-1])
    log.roll()
    upload(folder, log)
    limits = {"maxRecordsPerPartition": records_max, "partBytes": part_bytes}
    # Where a transaction is open at the end, nobody knows yet what becomes of it.
    stop = log.next_offset if undecided is None else undecided
    assert rows(folder, **limits) == sorted(each for each in committed if each[0] < stop)
    assert rows(folder, **limits, kafka_isolation_level="read_uncommitted") == sorted(everything)
