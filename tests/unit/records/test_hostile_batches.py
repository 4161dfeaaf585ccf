"""Spoiled batches with right checksums: named errors only, in bounded memory.

Checksums are made right again after every mutation, so that it reaches what is behind them.
Everything is drawn from one seed; a failure prints the case's number and bytes.
"""

import random
import tracemalloc
from collections.abc import Callable
from struct import pack

import pytest

from headrace.records.builder import BatchBuilder
from headrace.records.columns import to_arrow
from headrace.records.compression import Compression, compress, decompress
from headrace.records.control import build_end_transaction_marker
from headrace.records.errors import RecordsError
from headrace.records.header import HEADER_BYTES, TimestampType, read_header, seal
from headrace.records.reader import read_records
from headrace.records.validation import TopicRules, validate_batch
from tests.unit.records.record_values import NOW_MS, plain_batch, with_payload

SEED = 2024
CASES = {"compiled": 25_000, "uncompiled": 5_000}
INFLATED_BYTES_MAX = 1024 * 1024
MEMORY_BYTES_MAX = 8 * INFLATED_BYTES_MAX

RULES = [
    TopicRules(),
    TopicRules(is_compacted=True, inflated_bytes_max=INFLATED_BYTES_MAX),
    TopicRules(compression=Compression.ZSTD, inflated_bytes_max=INFLATED_BYTES_MAX),
    TopicRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
]
EXTREMES = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 127, 128, 2**16, 2**31 - 1, 2**63 - 1]
HEADER_FIELDS = [(0, "q"), (8, "i"), (12, "i"), (16, "b"), (21, "h"), (23, "i"), (27, "q")]
HEADER_FIELDS += [(35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i")]
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}

Mutation = Callable[[random.Random, bytearray], bytearray]


def flip_bytes(rng: random.Random, batch: bytearray) -> bytearray:
    for _ in range(rng.randint(1, 4)):
        batch[rng.randrange(17, len(batch))] = rng.getrandbits(8)
    return batch


def set_header_field(rng: random.Random, batch: bytearray) -> bytearray:
    position, kind = rng.choice(HEADER_FIELDS)
    value = (rng.choice(EXTREMES) + rng.randint(-1, 1)) % 2 ** BITS[kind]
    field = pack(">" + kind.upper(), value)
    batch[position : position + len(field)] = field
    return batch


def truncate(rng: random.Random, batch: bytearray) -> bytearray:
    return batch[: rng.randrange(len(batch))]


def truncate_payload(rng: random.Random, batch: bytearray) -> bytearray:
    return with_payload(batch, bytes(batch[HEADER_BYTES : rng.randrange(61, len(batch) + 1)]))


def inflate_length(rng: random.Random, batch: bytearray) -> bytearray:
    """Put a large varint, or one that never ends, somewhere into the records."""
    position = rng.randrange(HEADER_BYTES, len(batch) + 1)
    varint = rng.choice(
        [b"\xff" * 12, b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff\x7f"]
    )
    replaced = position + rng.choice([0, 1, len(varint)])
    return with_payload(batch, bytes(batch[61:position] + varint + batch[replaced:]))


def splice(rng: random.Random, batch: bytearray) -> bytearray:
    start, stop, target = (rng.randrange(HEADER_BYTES, len(batch) + 1) for _ in range(3))
    return with_payload(batch, bytes(batch[61:target] + batch[start:stop] + batch[target:]))


def repeat(_: random.Random, batch: bytearray) -> bytearray:
    return batch + batch


MUTATIONS: list[Mutation] = [
    flip_bytes,
    set_header_field,
    truncate,
    truncate_payload,
    inflate_length,
    splice,
    repeat,
]


def corpus() -> list[bytearray]:
    batches = [plain_batch(count, codec) for codec in Compression for count in (1, 9)]
    gaps = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME, delete_horizon_ms=NOW_MS)
    gaps.append(NOW_MS, b"k", None, (("h", None),))
    gaps.append(NOW_MS, b"k", None, offset_delta=5)
    batches.append(gaps.build(last_offset_delta=9, max_timestamp=NOW_MS))
    batches.append(
        build_end_transaction_marker(
            NOW_MS, is_commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=1
        )
    )
    return batches


def spoil(rng: random.Random, batch: bytearray) -> bytearray:
    """Mutate a batch once or twice, compressed records half the time from the inside."""
    codec = read_header(batch).compression
    is_inside = codec is not Compression.NONE and rng.random() < 0.5
    if is_inside:
        payload = decompress(codec, batch[HEADER_BYTES:], INFLATED_BYTES_MAX)
        batch = with_payload(batch, bytes(payload))
    for _ in range(rng.randint(1, 2)):
        if len(batch) > HEADER_BYTES:
            batch = rng.choice(MUTATIONS)(rng, batch)
    if is_inside and len(batch) > HEADER_BYTES:
        batch = with_payload(batch, bytes(compress(codec, batch[HEADER_BYTES:])))
    if len(batch) >= HEADER_BYTES and rng.random() < 0.95:
        seal(batch)
    return batch


def swallow(batch: bytearray, rules: TopicRules) -> int:
    """Give a batch to everything that reads one; how many of them took it."""
    taken = 0
    for use in (
        lambda: list(read_records(batch, inflated_bytes_max=INFLATED_BYTES_MAX)),
        lambda: validate_batch(memoryview(bytearray(batch)), rules, NOW_MS),
        lambda: to_arrow(
            batch, aborted=[(7, 0)], check_crcs=True, inflated_bytes_max=INFLATED_BYTES_MAX
        ),
    ):
        try:
            use()
            taken += 1
        except RecordsError:
            pass
    return taken


@pytest.mark.slow
def test_spoiled_batches_meet_named_errors_and_nothing_else(scan_mode: str) -> None:
    rng = random.Random(SEED)
    batches = corpus()
    outcomes: dict[int, int] = {}
    for case in range(CASES[scan_mode]):
        batch = spoil(rng, bytearray(rng.choice(batches)))
        try:
            taken = swallow(batch, rng.choice(RULES))
        except Exception as error:
            raise AssertionError(f"seed {SEED}, case {case}: {batch.hex()}") from error
        outcomes[taken] = outcomes.get(taken, 0) + 1
    assert all(outcomes.get(taken, 0) > CASES[scan_mode] // 100 for taken in range(4)), outcomes


@pytest.mark.usefixtures("scan_mode")
def test_spoiled_batches_take_bounded_memory() -> None:
    rng = random.Random(SEED)
    batches = corpus()
    swallow(batches[0], RULES[0])
    tracemalloc.start()
    try:
        for _ in range(500):
            batch = spoil(rng, bytearray(rng.choice(batches)))
            tracemalloc.reset_peak()
            before_bytes, _ = tracemalloc.get_traced_memory()
            swallow(batch, rng.choice(RULES))
            _, peak_bytes = tracemalloc.get_traced_memory()
            assert peak_bytes - before_bytes < MEMORY_BYTES_MAX, batch.hex()
    finally:
        tracemalloc.stop()
