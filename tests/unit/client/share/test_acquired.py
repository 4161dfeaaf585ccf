"""Which records of an answer are ours, and what is said of acquired offsets without one."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.acquired import AcquiredChunk, AcquiredRange, holes, runs_of
from headrace.client.topics import TopicPartition
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import seal
from tests.unit.client.share.brokers import batch

P0 = TopicPartition("orders", 0)
ALL = 1_000_000


def chunk(records: bytes, *ranges: tuple[int, int, int]) -> AcquiredChunk:
    acquired = [AcquiredRange(*each) for each in ranges]
    return AcquiredChunk(P0, memoryview(records), acquired, 1024 * 1024)


def offsets(taken: AcquiredChunk) -> list[int]:
    found: list[int] = []
    while records := taken.take(ALL):
        found.extend(record.offset for record in records)
    return found


def sparse(base_offset: int, deltas: list[int], last_delta: int) -> bytes:
    """A batch as compaction leaves it."""
    builder = BatchBuilder(Compression.NONE)
    for _ in range(last_delta + 1):
        builder.append(1000, None, b"x")
    whole = memoryview(bytearray(builder.build(base_offset=base_offset)))
    return _without(whole, deltas, last_delta)


def _without(whole: memoryview, deltas: list[int], last_delta: int) -> bytes:
    size = (len(whole) - 61) // (last_delta + 1)
    kept = b"".join(bytes(whole[61 + d * size : 61 + (d + 1) * size]) for d in deltas)
    rest = bytearray(bytes(whole[:61]) + kept)
    rest[8:12] = (len(rest) - 12).to_bytes(4, "big")
    rest[57:61] = len(deltas).to_bytes(4, "big")
    seal(rest)
    return bytes(rest)


def test_records_outside_of_the_acquired_ranges_are_not_given() -> None:
    taken = chunk(batch(10, *[b"x"] * 10), (12, 13, 1), (17, 17, 3))
    records = taken.take(ALL)
    assert [(r.offset, r.delivery_count) for r in records] == [(12, 1), (13, 1), (17, 3)]
    assert taken.take(ALL) == []
    assert taken.leftovers == ([], [], [])


def test_a_range_may_span_batches_and_a_batch_ranges() -> None:
    records = batch(0, *[b"x"] * 4) + batch(4, *[b"x"] * 4)
    assert offsets(chunk(records, (1, 5, 1), (7, 7, 2))) == [1, 2, 3, 4, 5, 7]


def test_fields_of_a_record_arrive() -> None:
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(1234, b"key", b"value", (("name", b"header"),))
    (record,) = chunk(bytes(builder.build(base_offset=3)), (3, 3, 2)).take(ALL)
    assert (record.topic, record.partition, record.offset, record.delivery_count) == (*P0, 3, 2)
    assert (record.timestamp, record.key, record.value) == (1234, b"key", b"value")
    assert record.headers == (("name", b"header"),)


def test_no_more_records_than_wanted_are_taken_and_the_rest_later() -> None:
    taken = chunk(batch(0, *[b"x"] * 5), (0, 4, 1))
    assert [len(taken.take(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_offsets_that_compaction_took_are_gaps() -> None:
    taken = chunk(sparse(0, [0, 1, 4], 5) + batch(8, b"x"), (0, 8, 1))
    assert offsets(taken) == [0, 1, 4, 8]
    assert taken.leftovers.gaps == [(2, 3), (5, 5), (6, 7)]


def test_markers_of_transactions_are_gaps() -> None:
    marker = build_end_transaction_marker(
        1000, is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, base_offset=1
    )
    taken = chunk(batch(0, b"x") + bytes(marker), (0, 1, 1))
    assert offsets(taken) == [0]
    assert taken.leftovers.gaps == [(1, 1)]


def test_acquired_offsets_without_any_bytes_are_gaps() -> None:
    taken = chunk(b"", (5, 9, 1))
    assert offsets(taken) == []
    assert taken.leftovers.gaps == [(5, 9)]


def test_a_batch_that_fails_its_checksum_is_rejected_and_its_neighbours_given() -> None:
    damaged = bytearray(batch(2, b"x", b"x"))
    damaged[-1] ^= 1
    records = batch(0, b"x", b"x") + bytes(damaged) + batch(4, b"x")
    taken = chunk(records, (0, 2, 1), (3, 4, 2))
    assert offsets(taken) == [0, 1, 4]
    assert taken.leftovers.rejected == [(2, 2), (3, 3)]


def test_what_follows_a_broken_header_is_rejected_as_a_whole() -> None:
    broken = bytearray(batch(1, b"x"))
    broken[16] = 9  # no such magic
    taken = chunk(batch(0, b"x") + bytes(broken) + batch(2, b"x"), (0, 2, 1))
    assert offsets(taken) == [0]
    assert taken.leftovers.rejected == [(1, 2)]


def test_a_batch_that_came_in_part_is_released_not_taken_for_a_gap() -> None:
    taken = chunk(batch(0, b"x") + batch(1, b"x")[:-1], (0, 1, 1))
    assert offsets(taken) == [0]
    assert taken.leftovers == ([], [], [(1, 1)])


@given(st.data())
def test_every_acquired_offset_is_given_or_a_gap_and_no_other_is(data: st.DataObject) -> None:
    records, there, position = b"", set(), 0
    for _ in range(data.draw(st.integers(0, 4))):
        position += data.draw(st.integers(0, 3))
        last_delta = data.draw(st.integers(0, 5))
        deltas = sorted(data.draw(st.sets(st.integers(0, last_delta), min_size=1)))
        records += sparse(position, deltas, last_delta)
        there |= {position + delta for delta in deltas}
        position += last_delta + 1
    cuts = sorted(data.draw(st.sets(st.integers(0, position + 3), max_size=8)))
    ranges = [(cuts[i], cuts[i + 1], i + 1) for i in range(0, len(cuts) - 1, 2)]
    acquired = {offset for first, last, _ in ranges for offset in range(first, last + 1)}
    taken = chunk(records, *ranges)
    given_out = offsets(taken)
    assert given_out == sorted(acquired & there)
    gaps = [o for first, last in taken.leftovers.gaps for o in range(first, last + 1)]
    assert sorted(gaps) == sorted(acquired - there)


def test_offsets_become_runs_and_what_is_between_them_holes() -> None:
    records = chunk(batch(0, *[b"x"] * 9), (0, 2, 1), (5, 5, 1), (7, 8, 1)).take(ALL)
    assert runs_of(records) == [(0, 2), (5, 5), (7, 8)]
    assert runs_of([]) == []
    assert holes([0, 1, 2, 5, 7], 0, 9) == [(3, 4), (6, 6), (8, 9)]
