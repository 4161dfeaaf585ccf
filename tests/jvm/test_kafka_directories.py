"""Folders that Apache Kafka wrote open here, and hold what its consumers got from them.

A broker writes, is stopped cleanly, started again on the same folder, and killed. Each time its
consumers say what is in it, for both isolation levels; then our logs are opened on copies.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    RECOVERY_POINTS,
    load,
    parse_epochs,
    parse_offsets,
)
from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.reader import read_records
from headrace.records.record import Record
from tests.jvm.kafka_broker import kafka
from tests.unit.log.logs import records_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = (("codecs", 0), ("codecs", 1), ("transactions", 0))
SETTINGS = LogSettings(segment_bytes=2000, index_interval_bytes=300)
ROUNDS = 12
ANSWER_SECONDS_MAX = 30
NOW_MS = 1_700_000_000_000
HEADERS: tuple[tuple[str, str | bytes | None], ...] = (("trace", b"1"), ("none", None))


class Written(NamedTuple):
    """A folder of a broker, and what its consumers got: all records, and those not aborted."""

    folder: Path
    records: dict[tuple[str, int], list[Record]]
    committed: dict[tuple[str, int], list[int]]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """After a clean stop."""
    folder = tmp_path_factory.mktemp("stopped") / "data"
    with kafka(folder) as address:
        _create_topics(address)
        _produce(address, 0)
        written = _consume(address, folder)
    assert (folder / CLEAN_SHUTDOWN).exists()
    return written


@pytest.fixture(scope="module")
def killed(stopped: Written, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """After a clean stop, another start, more records and a SIGKILL."""
    folder = tmp_path_factory.mktemp("killed") / "data"
    shutil.copytree(stopped.folder, folder)
    with kafka(folder, is_killed=True) as address:
        _produce(address, 1)
        written = _consume(address, folder)
    assert not (folder / CLEAN_SHUTDOWN).exists()
    return written


@pytest.fixture(params=["stopped", "killed"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    """A copy of either, as opening a log may change its files."""
    origin: Written = request.getfixturevalue(request.param)
    folder = tmp_path / "data"
    shutil.copytree(origin.folder, folder)
    return origin._replace(folder=folder)


def _create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    small = {
        "internal.segment.bytes": str(SETTINGS.segment_bytes),
        "index.interval.bytes": str(SETTINGS.index_interval_bytes),
    }
    topics = [NewTopic("codecs", 2, 1, config=small), NewTopic("transactions", 1, 1, config=small)]
    for created in admin.create_topics(topics).values():
        created.result(ANSWER_SECONDS_MAX)


def _produce(address: str, life: int) -> None:
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "enable.idempotence": codec != "gzip",
            }
        )
        for number in range(ROUNDS):
            for partition in (0, 1):
                producer.produce(
                    "codecs",
                    key=f"{codec}-{number}",
                    value=None if number % 5 == 4 else f"{life} {number} ".encode() * 30,
                    partition=partition,
                    timestamp=NOW_MS + number * 7 % 50,
                    headers=list(HEADERS[: number % 3]),
                )
            assert producer.flush(ANSWER_SECONDS_MAX) == 0
    producer = Producer({"bootstrap.servers": address, "transactional.id": "orders"})
    producer.init_transactions(ANSWER_SECONDS_MAX)
    for number in range(ROUNDS):
        producer.begin_transaction()
        for record in range(3):
            producer.produce("transactions", value=f"{life} {number} {record} ".encode() * 20)
        assert producer.flush(ANSWER_SECONDS_MAX) == 0
        if number % 3 == 1:
            producer.abort_transaction(ANSWER_SECONDS_MAX)
        else:
            producer.commit_transaction(ANSWER_SECONDS_MAX)


def _consume(address: str, folder: Path) -> Written:
    everything = {key: _consume_partition(address, key, "read_uncommitted") for key in PARTITIONS}
    committed = {
        key: [record.offset for record in _consume_partition(address, key, "read_committed")]
        for key in PARTITIONS
    }
    return Written(folder, everything, committed)


def _consume_partition(address: str, key: tuple[str, int], isolation: str) -> list[Record]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(*key, 0)])
    records = []
    while True:
        message: Any = consumer.poll(ANSWER_SECONDS_MAX)
        assert message is not None, f"no answer about {key}"
        if message.error() is not None:
            break  # the end of the partition
        records.append(
            Record(
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
            )
        )
    consumer.close()
    return records


def open_written(written: Written, key: tuple[str, int], *, is_clean: bool) -> Log:
    disk = RealDisk(written.folder)
    return open_log(
        disk,
        f"{key[0]}-{key[1]}",
        SETTINGS,
        is_clean=is_clean,
        recovery_point=load(disk, RECOVERY_POINTS, parse_offsets).get(key, 0),
    )


@pytest.mark.parametrize("key", PARTITIONS)
def test_a_folder_of_kafkas_holds_here_what_its_consumers_got(
    written: Written, key: tuple[str, int]
) -> None:
    log = open_written(written, key, is_clean=False)
    assert len(log.segments) > 2
    assert records_of(log) == written.records[key]


@pytest.mark.parametrize("key", PARTITIONS)
def test_a_folder_that_kafka_closed_opens_without_being_read(
    stopped: Written, key: tuple[str, int]
) -> None:
    log = open_written(stopped, key, is_clean=True)
    assert records_of(log) == stopped.records[key]
    for segment in log.segments:
        times = [header.max_timestamp for _, header in segment.batches()]
        assert segment.largest_timestamp == max(times)


def test_readers_of_committed_records_skip_what_kafkas_consumers_skip(written: Written) -> None:
    key = ("transactions", 0)
    log = open_written(written, key, is_clean=False)
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset
    aborted = log.aborted_transactions(0, log.end_offset)
    assert len(aborted) >= ROUNDS // 3
    committed = []
    for segment in log.segments:
        for position, header in segment.batches():
            is_aborted = any(
                t.producer_id == header.producer_id
                and t.first_offset <= header.base_offset <= t.last_offset
                for t in aborted
            )
            if not header.is_control and not is_aborted:
                batch = segment.file.read(position, header.size_bytes)
                committed += [record.offset for record in read_records(batch, header)]
    assert committed == written.committed[key]
    assert len(committed) < len(written.records[key])


@pytest.mark.parametrize("key", PARTITIONS)
def test_what_kafka_noted_at_its_end_follows_from_its_batches(
    stopped: Written, key: tuple[str, int], tmp_path: Path
) -> None:
    """Its snapshot, epochs and indexes against those that a recovery makes of the same log."""
    noted = open_written(stopped, key, is_clean=True)
    copy = tmp_path / "data"
    shutil.copytree(stopped.folder, copy)
    (copy / RECOVERY_POINTS).write_text("0\n0\n")
    for path in (copy / noted.folder).iterdir():
        if path.suffix == ".snapshot" or path.name == LEADER_EPOCHS:
            path.unlink()
    rebuilt = open_written(stopped._replace(folder=copy), key, is_clean=False)
    assert rebuilt.epochs.entries() == noted.epochs.entries()
    assert noted.epochs.entries() == load(
        noted.disk, f"{noted.folder}/{LEADER_EPOCHS}", parse_epochs
    )
    assert _producers(rebuilt) == _producers(noted)
    assert len(noted.producers) > 0
    assert sum(len(segment.offset_index) for segment in noted.segments) > 5
    for ours, theirs in zip(rebuilt.segments, noted.segments, strict=True):
        assert ours.transaction_index.entries() == theirs.transaction_index.entries()
        for suffix in (".index", ".timeindex"):
            name = ours.path(suffix)
            assert (copy / name).read_bytes() == (stopped.folder / name).read_bytes()


def _producers(log: Log) -> dict[int, tuple[int, int, int | None, int, int]]:
    return {
        state.producer_id: (
            state.epoch,
            state.last_sequence,
            state.transaction_first_offset,
            state.coordinator_epoch,
            state.last_timestamp,
        )
        for state in log.producers
    }


def test_indexes_that_kafka_had_no_time_to_trim_are_made_anew(
    killed: Written, tmp_path: Path
) -> None:
    """A running broker's index has 10 MB, zeros at its end."""
    copy = killed._replace(folder=tmp_path / "data")
    shutil.copytree(killed.folder, copy.folder)
    folder = copy.folder / "transactions-0"
    sizes = [path.stat().st_size for path in folder.glob("*.index")]
    assert max(sizes) == 10 * 1024 * 1024
    log = open_written(copy, ("transactions", 0), is_clean=False)
    assert records_of(log) == killed.records["transactions", 0]
    assert max(path.stat().st_size for path in folder.glob("*.index")) < 1000
