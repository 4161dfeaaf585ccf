"""What batches cost a broker, by how many records they hold and how large their log is."""

import pytest

from headrace.log import lookup
from headrace.log.cutting import delete_records
from headrace.log.log import Log
from headrace.log.lookup import SpecialTimestamp
from headrace.log.settings import LogSettings
from headrace.records import scan
from headrace.records.builder import BatchBuilder, build_batch
from headrace.records.compression import Compression
from headrace.records.errors import CostlyBatch, RecordsError, RefusedBatch
from headrace.records.header import read_header, seal
from headrace.records.record import Record
from headrace.records.validation import TopicRules, finish_validation, validate_batch
from headrace.share.reading import _batches
from headrace.testing.disk import SimulatedDisk
from tests.growth.steps import assert_stays_flat, steps
from tests.unit.log.logs import NOW_MS, append, open_simulated

RULES = TopicRules(max_message_bytes=2**30)
COMPACTED = TopicRules(max_message_bytes=2**30, is_compacted=True)
LATE_MS = 10**10

is_compiled = pytest.mark.skipif(
    scan.__file__.endswith(".py"), reason="what is not compiled walks over records in Python"
)


def batch_of(
    count: int,
    codec: Compression = Compression.NONE,
    timestamp: int = NOW_MS,
    last_key: bytes | None = b"k",
) -> memoryview:
    records = [Record(index, timestamp, b"k", b"value") for index in range(count - 1)]
    return memoryview(build_batch([*records, Record(count - 1, timestamp, last_key, b"v")], codec))


@is_compiled
def test_records_cost_no_python_to_validate() -> None:
    def validate(count: int) -> int:
        batch = batch_of(count)
        return steps(lambda: validate_batch(batch, RULES, NOW_MS))

    assert_stays_flat(validate, 100)


@is_compiled
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_the_one_record_that_breaks_a_rule_is_found_without_python(codec: Compression) -> None:
    def refuse(count: int) -> int:
        batch = batch_of(count, codec, last_key=None)

        def run() -> None:
            outcome = finish_validation(batch, read_header(batch), COMPACTED, NOW_MS)
            assert isinstance(outcome, RefusedBatch)

        return steps(run)

    assert_stays_flat(refuse, 1000)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_is_inflated_on_the_spot_has_a_bound(codec: Compression) -> None:
    """However much a batch inflates to, this thread does not inflate it."""

    def validate(size: int) -> int:
        record = Record(0, NOW_MS + LATE_MS, b"k", bytes(size))
        batch = memoryview(build_batch([record], codec))

        def run() -> None:
            with pytest.raises(CostlyBatch):
                validate_batch(batch, RULES, NOW_MS)

        return steps(run)

    assert_stays_flat(validate, 100_000)


def test_a_claim_of_many_records_costs_nothing_to_refuse() -> None:
    def refuse(count: int) -> int:
        batch = batch_of(1)
        batch[23:27] = (count - 1).to_bytes(4)
        batch[57:61] = count.to_bytes(4)
        seal(batch)

        def run() -> None:
            with pytest.raises(RecordsError):
                validate_batch(batch, RULES, NOW_MS)

        return steps(run)

    assert_stays_flat(refuse, 1000)


def test_a_claim_of_many_records_costs_a_share_group_nothing() -> None:
    def read(count: int) -> int:
        batch = batch_of(1)
        batch[23:27] = (count - 1).to_bytes(4)
        batch[57:61] = count.to_bytes(4)

        def run() -> None:
            (fetched,) = _batches(batch, 500)[1]
            assert not fetched.is_readable

        return steps(run)

    assert_stays_flat(read, 1000)


def log_of(batches: int) -> Log:
    """A log of one segment whose times ascend, and which begins within the segment."""
    log = open_simulated(SimulatedDisk(seed=1), LogSettings(index_interval_bytes=500))
    for index in range(batches):
        append(log, b"value", timestamp=NOW_MS + index)
    log.advance_high_watermark(log.end_offset)
    delete_records(log, batches // 2 + 1)
    return log


def test_a_time_is_looked_up_at_the_same_cost_in_a_longer_log() -> None:
    def look_up(batches: int) -> int:
        log = log_of(batches)
        return steps(lambda: lookup.find(log, NOW_MS + batches * 3 // 4))

    assert_stays_flat(look_up, 400)


def test_the_largest_timestamp_of_a_log_that_begins_within_a_segment_is_known() -> None:
    def look_up(batches: int) -> int:
        log = log_of(batches)

        def run() -> None:
            found = lookup.find(log, SpecialTimestamp.MAX_TIMESTAMP)
            assert found is not None
            assert found.offset == batches - 1

        return steps(run)

    assert_stays_flat(look_up, 400)


@is_compiled
def test_a_time_within_a_large_batch_costs_no_python() -> None:
    def look_up(count: int) -> int:
        log = open_simulated(SimulatedDisk(seed=1))
        builder = BatchBuilder(Compression.ZSTD)
        for index in range(count):
            builder.append(NOW_MS + index, None, b"value")
        log.append_replicated(memoryview(builder.build()))
        return steps(lambda: lookup.find(log, NOW_MS + count - 1))

    assert_stays_flat(look_up, 1000)
