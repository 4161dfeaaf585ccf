"""Arrow columns to records: the same bytes as the builder's, in both forms of the module."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._mode import load_source
from headrace.client.partitioner import partition_for_key
from headrace.records import encode as installed
from headrace.records.builder import BatchBuilder
from headrace.records.header import HEADER_BYTES

NAME = "headrace.records.encode"
MODULES = [installed, load_source(NAME)]

fields = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)))
records = st.tuples(fields, fields, headers)


def ints(count: int, fill: int = 0) -> memoryview:
    view = memoryview(bytearray(4 * count)).cast("i")
    for index in range(count):
        view[index] = fill
    return view


def bytes_column(module: ModuleType, array: Any) -> Any:
    validity, offsets, data = array.buffers()
    return module.BytesColumn(
        memoryview(offsets).cast("B").cast("i"),
        memoryview(data or b"").cast("B"),
        memoryview(validity).cast("B") if array.null_count else memoryview(b""),
        array.offset,
    )


def headers_column(module: ModuleType, array: Any) -> Any:
    keys, values = array.values.field(0), array.values.field(1)
    validity, ends = array.buffers()[:2]
    return module.HeadersColumn(
        memoryview(ends).cast("B").cast("i"),
        memoryview(validity).cast("B") if array.null_count else memoryview(b""),
        array.offset,
        bytes_column(module, keys),
        bytes_column(module, values),
    )


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("module", MODULES, ids=["installed", "source"])
@given(rows=st.lists(records, min_size=1, max_size=20), skipped=st.integers(0, 3))
def test_records_have_the_bytes_that_the_builder_gives(
    module: ModuleType, rows: list[Any], skipped: int
) -> None:
    padded = [(None, b"", None)] * skipped + rows
    keys = pa.array([row[0] for row in padded], pa.binary()).slice(skipped)
    values = pa.array([row[1] for row in padded], pa.binary()).slice(skipped)
    pairs = [
        None if row[2] is None else [{"key": key, "value": value} for key, value in row[2]]
        for row in padded
    ]
    encoded_rows = module.Rows(
        bytes_column(module, keys),
        bytes_column(module, values),
        headers_column(module, pa.array(pairs, HEADERS).slice(skipped)),
    )
    order = memoryview(bytearray(4 * len(rows))).cast("i")
    for index in range(len(rows)):
        order[index] = index
    target = bytearray(100_000)
    reached, size, needed = module.encode(
        encoded_rows,
        order,
        0,
        len(rows),
        target=memoryview(target),
        position=0,
        offset_delta=0,
        timestamp_delta=1_000,
    )
    assert (reached, needed) == (len(rows), 0)
    builder = BatchBuilder(delete_horizon_ms=5_000)  # the base of its timestamps
    for key, value, pair in rows:
        builder.append(6_000, key, value, tuple(pair or ()))
    assert bytes(target[:size]) == bytes(builder.build()[HEADER_BYTES:])


@pytest.mark.parametrize("module", MODULES, ids=["installed", "source"])
def test_a_record_that_does_not_fit_is_left_for_the_next_batch(module: ModuleType) -> None:
    values = pa.array([b"x" * 100] * 3, pa.binary())
    rows = module.Rows(None, bytes_column(module, values), None)
    order = memoryview(bytearray(12)).cast("i")
    order[0], order[1], order[2] = 0, 1, 2
    more = {"offset_delta": 0, "timestamp_delta": 0}
    target = memoryview(bytearray(250))
    reached, size, needed = module.encode(rows, order, 0, 3, target=target, position=0, **more)
    assert reached == 2
    assert size + needed > 250
    exact = memoryview(bytearray(size + needed))
    reached, size, needed = module.encode(rows, order, 0, 3, target=exact, position=0, **more)
    assert (reached, size, needed) == (3, len(exact), 0)


@pytest.mark.parametrize("module", MODULES, ids=["installed", "source"])
@given(
    keys=st.lists(st.none() | st.binary(max_size=9), min_size=1, max_size=20),
    count=st.integers(1, 9),
)
def test_rows_go_to_the_partitions_of_kafkas_clients(
    module: ModuleType, keys: list[bytes | None], count: int
) -> None:
    chosen = ints(len(keys), -1)
    chosen[0] = count - 1  # given by the user
    module.spread(bytes_column(module, pa.array(keys, pa.binary())), count, 0, chosen)
    expected = [0 if key is None else partition_for_key(key, count) for key in keys]
    assert list(chosen) == [count - 1, *expected[1:]]
    starts, order = ints(count + 1), ints(len(keys))
    module.group(chosen, starts, order)
    grouped = [list(order[starts[index] : starts[index + 1]]) for index in range(count)]
    assert grouped == [
        [row for row, partition in enumerate(chosen) if partition == index]
        for index in range(count)
    ]


@pytest.mark.parametrize("module", MODULES, ids=["installed", "source"])
def test_rows_go_to_the_fallback_without_a_column_of_keys(module: ModuleType) -> None:
    chosen = ints(3, -1)
    module.spread(None, 4, 2, chosen)
    assert list(chosen) == [2, 2, 2]
