"""Record batches: what a check costs beside its checksum, and what compiling the walk gains."""

import random
from collections.abc import Callable
from functools import partial
from types import ModuleType

import pyarrow as pa
from crc32c import crc32c

from bench.measure import Figure, report, seconds_side_by_side
from headrace import _mode
from headrace.records import builder, columns, scan
from headrace.records.compression import Compression
from headrace.records.header import read_header
from headrace.records.reader import read_records
from headrace.records.validation import TopicRules, validate_batch

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 16 * 1024
CHUNK_BYTES = 1024 * 1024
VALUE_BYTES = 100


def main() -> None:
    report([validate_header_only(), fill_columns()])
    print_rates()


def validate_header_only() -> Figure:
    batch = memoryview(build_batch(random.Random(1), 0))
    rules = TopicRules()
    assert validate_batch(batch, rules, NOW_MS)[1] is batch
    ours, bare = seconds_side_by_side(
        partial(validate_batch, batch, rules, NOW_MS), partial(crc32c, batch)
    )
    detail = f"{ours * 1e6:.2f} us, bare crc32c {bare * 1e6:.2f} us, {len(batch)} bytes"
    return Figure("records.validate_header_only", ours / bare, 3, True, detail)


def fill_columns() -> Figure:
    chunk = build_chunk()
    source = _mode.load_source(scan.__name__)
    compiled, uncompiled = columns_with(scan, chunk), columns_with(source, chunk)
    rows = compiled().num_rows
    assert compiled() == uncompiled()
    ours, slow = seconds_side_by_side(compiled, uncompiled)
    vars(columns)["scan"] = scan
    detail = (
        f"{rows / ours / 1e6:.1f} M rows/s, uncompiled {rows / slow / 1e6:.2f} M, "
        f"{_mode.active_mode()}"
    )
    return Figure("records.columns", slow / ours, 30, False, detail)


def columns_with(module: ModuleType, chunk: bytes) -> Callable[[], pa.RecordBatch]:
    def run() -> pa.RecordBatch:
        vars(columns)["scan"] = module
        return columns.to_arrow(chunk)

    return run


def print_rates() -> None:
    """Rates that no issue bounds, for those who plan with them."""
    plain, packed = build_chunk(), build_chunk(Compression.ZSTD)
    batch = bytes(build_batch(random.Random(1), 0))
    records = list(read_records(batch))
    rows, batch_rows = columns.to_arrow(plain).num_rows, len(records)
    checked, zstd, built, read = seconds_side_by_side(
        lambda: columns.to_arrow(plain, check_crcs=True),
        lambda: columns.to_arrow(packed),
        partial(builder.build_batch, records),
        lambda: list(read_records(batch)),
    )
    print(f"  columns, checksums checked  {rows / checked / 1e6:6.2f} M rows/s")
    print(f"  columns, zstd               {rows / zstd / 1e6:6.2f} M rows/s")
    print(f"  builder                     {batch_rows / built / 1e6:6.2f} M records/s")
    print(f"  reader                      {batch_rows / read / 1e6:6.2f} M records/s")


def build_chunk(codec: Compression = Compression.NONE) -> bytes:
    """Batches of 16 KB before compression, as many as make 1 MB."""
    rng = random.Random(2)
    batches = []
    offset = 0
    for _ in range(CHUNK_BYTES // BATCH_BYTES):
        batches.append(build_batch(rng, offset, codec))
        offset = read_header(batches[-1]).next_offset
    return b"".join(batches)


def build_batch(
    rng: random.Random, base_offset: int, codec: Compression = Compression.NONE
) -> bytearray:
    batch = builder.BatchBuilder(codec)
    while True:
        key = b"key-%06d" % rng.randrange(1_000_000)
        value = rng.randbytes(VALUE_BYTES // 2).hex().encode()
        if not batch.has_room_for(key, value, (), BATCH_BYTES):
            return batch.build(base_offset=base_offset)
        batch.append(NOW_MS + batch.record_count, key, value)


if __name__ == "__main__":
    main()
