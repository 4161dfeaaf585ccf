"""What compaction leaves of a log, compared with Apache Kafka's own cleaner.

Random choices come from the seed that pytest-randomly prints.
"""

import asyncio
import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.log.compaction import Compacted, compact
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import BatchHeader, TimestampType, read_headers
from headrace.records.reader import read_records
from headrace.testing.disk import SimulatedDisk
from tools.jvm.oracles import Oracle

LOGS = 60
STEPS = 60
PASSES = 4
DELETE_RETENTION_MS = 1000
NOW_MS = 1_700_000_000_000


class CompactionOracle(Oracle):
    """Kafka's cleaner, as `CompactionOracle.java` describes."""

    def clean(self, now_ms: int) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.ask("clean", str(now_ms)))
        return reply


@pytest.fixture(scope="module")
def oracle() -> Iterator[CompactionOracle]:
    with CompactionOracle() as program:
        yield program


class TwoLogs:
    """The same appends to a log of ours and one of Kafka's."""

    def __init__(self, oracle: CompactionOracle) -> None:
        self.oracle = oracle
        self.log = open_log(
            SimulatedDisk(),
            "topic-0",
            LogSettings(is_compacted=True, delete_retention_ms=DELETE_RETENTION_MS),
            is_clean=True,
        )
        oracle.ask("new", str(DELETE_RETENTION_MS))

    def append(self, batch: bytearray) -> None:
        self.oracle.ask("append", "CLIENT", batch.hex())
        self.log.append(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)

    def mark(self, batch: bytearray) -> None:
        self.oracle.ask("append", "COORDINATOR", batch.hex())
        self.log.append_own(memoryview(batch), leader_epoch=0)

    def roll(self) -> None:
        self.oracle.ask("roll")
        self.log.roll(self.log.end_offset)
        self.log.advance_high_watermark(self.log.end_offset)

    def compact(self, now_ms: int) -> tuple[Compacted, dict[str, Any]]:
        return asyncio.run(compact(self.log, now_ms)), self.oracle.clean(now_ms)

    def check(self, now_ms: int) -> None:
        """Compact both, and compare every field of what is left but for sizes and checksums."""
        ours, theirs = self.compact(now_ms)
        assert ours.first_dirty_offset == theirs["dirty"]
        segments = [base64.b64decode(segment["log"]) for segment in theirs["segments"]]
        assert describe(self.read()) == describe(b"".join(segments))
        assert [
            [entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset]
            for entry in self.log.aborted_transactions(0, self.log.end_offset)
        ] == theirs["aborted"]

    def read(self) -> bytes:
        files = (segment.file for segment in self.log.segments)
        return b"".join(file.read(0, file.size) for file in files)


def describe(log: bytes) -> list[tuple[Any, ...]]:
    """Give of each batch what its header says and its records."""
    return [
        (_facts(header), list(read_records(log[position : position + header.size_bytes], header)))
        for position, header in read_headers(log)
    ]


def _facts(header: BatchHeader) -> tuple[Any, ...]:
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        f"{header.attributes:07b}",
        header.delete_horizon_ms,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


class Producer:
    """Writes batches with sequences, in transactions or not."""

    def __init__(self, producer_id: int, *, is_transactional: bool) -> None:
        self.producer_id = producer_id
        self.is_transactional = is_transactional
        self.is_open = False
        self._epoch = 0
        self._sequence = 0

    def build(self, builder: BatchBuilder) -> bytearray:
        batch = builder.build(
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=self.is_transactional,
        )
        self._sequence += builder.record_count
        self.is_open = self.is_transactional
        return batch

    def end(self, timestamp: int, *, is_commit: bool) -> bytearray:
        """End the transaction, perhaps with a higher epoch, as from KIP-890 on."""
        self.is_open = False
        if random.random() < 0.3:
            self._epoch += 1
            self._sequence = 0
        return build_end_transaction_marker(
            timestamp,
            is_commit=is_commit,
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            coordinator_epoch=0,
        )


def fill_builder(timestamp: int) -> BatchBuilder:
    codec = random.choice([Compression.NONE, Compression.NONE, *Compression])
    builder = BatchBuilder(codec, timestamp_type=TimestampType.CREATE_TIME)
    for _ in range(random.randint(1, 5)):
        key = b"key-%d" % random.randrange(12) * random.choice((1, 4))
        value = None if random.random() < 0.2 else b"value-%d" % random.randrange(1000)
        headers = (("h", b"1"),) if random.random() < 0.2 else ()
        builder.append(timestamp + random.randint(-5, 5), key, value, headers)
    return builder


def play(logs: TwoLogs, producers: list[Producer], timestamp: int) -> None:
    """Append something, or end a transaction."""
    producer = random.choice([None, *producers])
    if producer is None:
        logs.append(fill_builder(timestamp).build())
    elif producer.is_open and random.random() < 0.5:
        logs.mark(producer.end(timestamp, is_commit=random.random() < 0.5))
    else:
        logs.append(producer.build(fill_builder(timestamp)))


def test_compaction_leaves_what_kafkas_cleaner_leaves(oracle: CompactionOracle) -> None:
    for _ in range(LOGS):
        logs = TwoLogs(oracle)
        producers = [Producer(number, is_transactional=number > 1) for number in range(4)]
        now_ms = NOW_MS
        for _ in range(PASSES):
            for step in range(random.randint(1, STEPS)):
                play(logs, producers, now_ms + step)
                if random.random() < 0.1:
                    logs.roll()
            for producer in producers:
                if producer.is_open:
                    logs.mark(producer.end(now_ms, is_commit=random.random() < 0.5))
            logs.roll()
            logs.check(now_ms)
            now_ms += random.choice((1, DELETE_RETENTION_MS - 1, DELETE_RETENTION_MS))
