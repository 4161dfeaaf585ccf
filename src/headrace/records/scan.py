# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""The walk over the records of a batch: check them, read them, spread them into columns.

This is the one place that parses records, and the one module that is compiled: Cython takes the
annotations as C types, Python ignores them, and both give the same results and errors. So no
third-party module but `cython` is imported, and the only lines that just one of the two can run
are those that take a pointer or copy bytes.

The caller gives segments: payloads that are already inflated, with the header of their batch.
`measure` must have accepted a segment before `read` or `fill` see it.
"""
# mypy: disable-error-code="import-untyped, untyped-decorator"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import cython

from headrace.records.compression import ReadableBuffer
from headrace.records.errors import CorruptBatch
from headrace.records.header import LOG_APPEND_TIME_BIT, BatchHeader

if cython.compiled:
    from cython.cimports.libc.string import memcpy

T = TypeVar("T")

Segment = tuple[ReadableBuffer, int, int, BatchHeader]
"""Records of one batch: a buffer, where they start and end in it, and the batch's header."""

Fields = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""One record: offset, timestamp, key, value, headers."""

INT64_MIN: int = -(2**63)
INT64_MAX: int = 2**63 - 1
RECORD_BYTES_MIN: int = 7
"""Length, attributes, two deltas, two nulls and no headers, one byte each."""
QUICK_RECORDS_MAX: int = 100_000 if cython.compiled else 500
"""How many records `measure` walks in a few milliseconds; more are for a thread."""


@cython.final
@cython.cclass
class Tally:
    """What the records of some segments add up to: the sizes that columns need, and bounds."""

    rows = cython.declare(cython.longlong, visibility="readonly")
    null_keys = cython.declare(cython.longlong, visibility="readonly")
    key_bytes = cython.declare(cython.longlong, visibility="readonly")
    null_values = cython.declare(cython.longlong, visibility="readonly")
    value_bytes = cython.declare(cython.longlong, visibility="readonly")
    headers = cython.declare(cython.longlong, visibility="readonly")
    header_key_bytes = cython.declare(cython.longlong, visibility="readonly")
    null_header_values = cython.declare(cython.longlong, visibility="readonly")
    header_value_bytes = cython.declare(cython.longlong, visibility="readonly")
    min_timestamp = cython.declare(cython.longlong, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    # Of the segment at hand: what its header says, and what the walk over it found.
    expected = cython.declare(cython.longlong)
    offset_delta_max = cython.declare(cython.longlong)
    walked = cython.declare(cython.longlong)
    offset_delta = cython.declare(cython.longlong)
    time_delta_min = cython.declare(cython.longlong)
    time_delta_max = cython.declare(cython.longlong)

    def __init__(self) -> None:
        self.rows = 0
        self.null_keys = 0
        self.key_bytes = 0
        self.null_values = 0
        self.value_bytes = 0
        self.headers = 0
        self.header_key_bytes = 0
        self.null_header_values = 0
        self.header_value_bytes = 0
        self.min_timestamp = INT64_MAX
        self.max_timestamp = INT64_MIN

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(self, record: _Record) -> cython.void:
        self.rows += 1
        if record.key_length < 0:
            self.null_keys += 1
        else:
            self.key_bytes += record.key_length
        if record.value_length < 0:
            self.null_values += 1
        else:
            self.value_bytes += record.value_length
        if record.header_count > 0:
            self.headers += record.header_count
            self.header_key_bytes += record.header_key_bytes
            self.null_header_values += record.null_header_values
            self.header_value_bytes += record.header_value_bytes


def measure(segments: Sequence[Segment], is_dense: bool) -> Tally:
    """Check every byte of the segments and add them up; CorruptBatch names what is wrong.

    Records that a producer sends are dense: their offset deltas count 0, 1, 2. Compaction leaves
    gaps, so elsewhere deltas need only ascend up to the batch's last one.
    """
    tally: Tally = Tally()
    for data, first, last, header in segments:
        _measure_segment(tally, data, first, last, header, is_dense)
    return tally


def measure_one(data: ReadableBuffer, first: int, last: int, header: BatchHeader) -> Tally:
    """Check and add up the dense records of one batch, as `measure` does."""
    tally: Tally = Tally()
    _measure_segment(tally, data, first, last, header, True)
    return tally


@cython.cfunc
def _measure_segment(  # noqa: PLR0917  a segment, field by field
    tally: Tally,
    data: ReadableBuffer,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    header: BatchHeader,
    is_dense: cython.bint,
) -> None:
    view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    count: cython.longlong = header.record_count
    offset_delta_max: cython.longlong = header.last_offset_delta
    position: cython.Py_ssize_t
    if not 0 <= count <= (last - first) // RECORD_BYTES_MIN:
        raise _corrupt(header, f"{count} records cannot be in {last - first} bytes")
    if count == 0 and first != last:
        raise _corrupt(header, f"{last - first} bytes behind its 0 records")
    if count == 0:
        return
    record: _Record = _Record()
    tally.expected = count
    tally.offset_delta_max = offset_delta_max
    if count > _WALKED_UNLOCKED_FROM:
        with cython.nogil:
            position = _walk(tally, record, source, first, last, is_dense)
    else:
        position = _walk(tally, record, source, first, last, is_dense)
    if position < 0:
        raise _corrupt(header, f"record {tally.walked}: {_describe(tally, record, position)}")
    if position != last:
        raise _corrupt(header, f"{last - position} bytes behind its {count} records")
    base_timestamp: int = header.base_timestamp
    earliest: int = base_timestamp + tally.time_delta_min
    latest: int = base_timestamp + tally.time_delta_max
    if earliest < INT64_MIN or latest > INT64_MAX:
        raise _corrupt(header, "a timestamp is beyond 64 bits")
    tally.min_timestamp = min(tally.min_timestamp, earliest)
    tally.max_timestamp = max(tally.max_timestamp, latest)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(  # noqa: PLR0917  C has no keywords
    tally: Tally,
    record: _Record,
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_dense: cython.bint,
) -> cython.Py_ssize_t:
    """Add up the expected records; return where they end, or the fault of record `walked`."""
    offset_delta: cython.longlong = -1
    offset_delta_max: cython.longlong = tally.offset_delta_max
    time_delta_min: cython.longlong = 0
    time_delta_max: cython.longlong = 0
    count: cython.longlong = tally.expected
    index: cython.longlong = 0
    while index < count:
        position = _locate(record, source, position, end)
        if position < 0:
            break
        if is_dense and record.offset_delta != index:
            position = _NOT_DENSE
            break
        if record.offset_delta <= offset_delta or record.offset_delta > offset_delta_max:
            position = _NOT_ASCENDING
            break
        offset_delta = record.offset_delta
        if index == 0 or record.timestamp_delta < time_delta_min:
            time_delta_min = record.timestamp_delta
        if index == 0 or record.timestamp_delta > time_delta_max:
            time_delta_max = record.timestamp_delta
        tally._add(record)
        index += 1
    tally.walked = index
    tally.offset_delta = offset_delta
    tally.time_delta_min = time_delta_min
    tally.time_delta_max = time_delta_max
    return position


def find_faulty(
    segment: Segment, needs_keys: bool, earliest: int, latest: int, count_max: int
) -> list[tuple[int, int, bool]]:
    """Return index, timestamp and whether it has a key of the first records that break a rule.

    A record breaks one without a key where keys are needed, or with a timestamp that is neither
    within the bounds nor -1 for none. For a measured segment.
    """
    data, first, last, batch = segment
    view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    base: int = batch.base_timestamp
    least: int = earliest - base
    most: int = latest - base
    none: int = -1 - base
    fixed: bool = batch.attributes & LOG_APPEND_TIME_BIT != 0
    if fixed:
        is_right: bool = earliest <= batch.max_timestamp <= latest or batch.max_timestamp == -1
        least, most = (INT64_MIN, INT64_MAX) if is_right else (INT64_MAX, INT64_MIN)
        none = least
    bounds: _Bounds = _Bounds()
    bounds.needs_keys = needs_keys
    bounds.delta_min = min(max(least, INT64_MIN), INT64_MAX)
    bounds.delta_max = min(max(most, INT64_MIN), INT64_MAX)
    bounds.delta_of_none = min(max(none, INT64_MIN), INT64_MAX)
    record: _Record = _Record()
    position: cython.Py_ssize_t = first
    end: cython.Py_ssize_t = last
    count: cython.longlong = batch.record_count
    bounds.index = -1
    found: list[tuple[int, int, bool]] = []
    while len(found) < count_max:
        with cython.nogil:
            position = _next_faulty(record, bounds, source, position, end, count)
        if bounds.index == count:
            break
        timestamp = batch.max_timestamp if fixed else base + record.timestamp_delta
        found.append((bounds.index, timestamp, record.key_length >= 0))
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _next_faulty(  # noqa: PLR0917  C has no keywords
    record: _Record,
    bounds: _Bounds,
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Go on behind record `bounds.index` to the next that breaks a rule, or to `count`."""
    bounds.index += 1
    while bounds.index < count:
        position = _locate(record, source, position, end)
        if bounds.needs_keys and record.key_length < 0:
            return position
        if (
            record.timestamp_delta < bounds.delta_min or record.timestamp_delta > bounds.delta_max
        ) and record.timestamp_delta != bounds.delta_of_none:
            return position
        bounds.index += 1
    return position


def find_time(segment: Segment, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record that is as late, or None.

    Records before `from_offset` do not count. For a measured segment.
    """
    data, first, last, batch = segment
    view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    fixed: bool = batch.attributes & LOG_APPEND_TIME_BIT != 0
    if fixed and batch.max_timestamp < timestamp:
        return None
    base: int = batch.base_timestamp
    bounds: _Bounds = _Bounds()
    bounds.delta_min = INT64_MIN if fixed else min(max(timestamp - base, INT64_MIN), INT64_MAX)
    bounds.offset_min = min(max(from_offset - batch.base_offset, 0), INT64_MAX)
    record: _Record = _Record()
    position: cython.Py_ssize_t = first
    end: cython.Py_ssize_t = last
    count: cython.longlong = batch.record_count
    with cython.nogil:
        bounds.index = _first_late(record, bounds, source, position, end, count)
    if bounds.index == count:
        return None
    found = batch.max_timestamp if fixed else base + record.timestamp_delta
    return found, batch.base_offset + record.offset_delta


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _first_late(  # noqa: PLR0917  C has no keywords
    record: _Record,
    bounds: _Bounds,
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.longlong:
    """Return the index of the first record within the bounds, or `count`."""
    index: cython.longlong = 0
    while index < count:
        position = _locate(record, source, position, end)
        if record.timestamp_delta >= bounds.delta_min and record.offset_delta >= bounds.offset_min:
            break
        index += 1
    return index


def find_latest(segment: Segment, from_offset: int) -> int | None:
    """Return the largest timestamp of the records from an offset on; None if there are none.

    For a measured segment.
    """
    data, first, last, batch = segment
    view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    bounds: _Bounds = _Bounds()
    bounds.offset_min = min(max(from_offset - batch.base_offset, 0), INT64_MAX)
    record: _Record = _Record()
    position: cython.Py_ssize_t = first
    end: cython.Py_ssize_t = last
    count: cython.longlong = batch.record_count
    with cython.nogil:
        bounds.index = _count_later(record, bounds, source, position, end, count)
    if bounds.index == 0:
        return None
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return batch.max_timestamp
    latest: int = batch.base_timestamp + bounds.delta_max
    return latest


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _count_later(  # noqa: PLR0917  C has no keywords
    record: _Record,
    bounds: _Bounds,
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.longlong:
    """Count the records from the bounds' offset on, and keep the largest delta of their times."""
    counted: cython.longlong = 0
    while count > 0:
        position = _locate(record, source, position, end)
        if record.offset_delta >= bounds.offset_min:
            if counted == 0 or record.timestamp_delta > bounds.delta_max:
                bounds.delta_max = record.timestamp_delta
            counted += 1
        count -= 1
    return counted


def read(segment: Segment) -> Iterator[Fields]:
    """Yield the records of a measured segment.

    Bytes of a header's key that are not UTF-8 become U+FFFD, as they do for Kafka's own clients:
    a batch must not be unreadable for what is only a name.
    """
    data, first, end, batch = segment
    view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    record: _Record = _Record()
    position: cython.Py_ssize_t = first
    base_offset: int = batch.base_offset
    base_timestamp: int = batch.base_timestamp
    max_timestamp: int = batch.max_timestamp
    is_append_time: cython.bint = batch.attributes & LOG_APPEND_TIME_BIT != 0
    for _ in range(batch.record_count):
        position = _locate(record, source, position, end)
        yield (
            base_offset + record.offset_delta,
            max_timestamp if is_append_time else base_timestamp + record.timestamp_delta,
            _field_bytes(source, record.key_end, record.key_length),
            _field_bytes(source, record.value_end, record.value_length),
            () if record.header_count == 0 else _headers(record, source),
        )


def build(  # noqa: PLR0917  called for every batch
    segment: Segment,
    make: Callable[..., T],
    topic: str,
    partition: int,
    kind: object,
    from_offset: int,
) -> list[T]:
    """Make an object of every record of a measured segment from an offset on.

    `make` gets the topic and partition, what `read` yields of the record, and `kind`.
    """
    data, first, end, batch = segment
    view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    record: _Record = _Record()
    position: cython.Py_ssize_t = first
    base_offset: cython.longlong = batch.base_offset
    base_timestamp: cython.longlong = batch.base_timestamp
    max_timestamp: cython.longlong = batch.max_timestamp
    is_append_time: cython.bint = batch.attributes & LOG_APPEND_TIME_BIT != 0
    wanted_from: cython.longlong = from_offset
    made: list[T] = []
    for _ in range(batch.record_count):
        position = _locate(record, source, position, end)
        if base_offset + record.offset_delta < wanted_from:
            continue
        made.append(
            make(
                topic,
                partition,
                base_offset + record.offset_delta,
                max_timestamp if is_append_time else base_timestamp + record.timestamp_delta,
                _field_bytes(source, record.key_end, record.key_length),
                _field_bytes(source, record.value_end, record.value_length),
                () if record.header_count == 0 else _headers(record, source),
                kind,
            )
        )
    return made


@cython.cfunc
def _headers(record: _Record, source: cython.p_const_uchar) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    position: cython.Py_ssize_t = record.headers_at
    length: cython.longlong
    for _ in range(record.header_count):
        length, position = _field(source, position, record.end)
        name = bytes(source[position - length : position])
        length, position = _field(source, position, record.end)
        headers.append((name.decode(errors="replace"), _field_bytes(source, position, length)))
    return tuple(headers)


@cython.final
@cython.cclass
class BinaryColumn:
    """The buffers of one Arrow binary array, filled from the front.

    `offsets` has one entry more than the array. `validity` starts with all bits set, or is empty
    for an array without nulls.
    """

    offsets: cython.int[::1]
    validity: cython.uchar[::1]
    data: cython.uchar[::1]
    length: cython.Py_ssize_t
    size: cython.Py_ssize_t

    def __init__(self, offsets: memoryview, validity: memoryview, data: memoryview) -> None:
        self.offsets = offsets
        self.validity = validity
        self.data = data
        self.length = 0
        self.size = 0
        self.offsets[0] = 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def append(
        self, source: cython.p_const_uchar, end: cython.Py_ssize_t, length: cython.longlong
    ) -> cython.void:
        """Take the `length` bytes before `end` of the source, or a null if it is -1."""
        if length > 0:
            if cython.compiled:
                memcpy(
                    cython.address(self.data[self.size]),
                    cython.address(source[end - length]),
                    length,
                )
            else:
                self.data[self.size : self.size + length] = source[end - length : end]
            self.size += length
        elif length < 0:
            self.validity[self.length >> 3] ^= 1 << (self.length & 7)
        self.length += 1
        self.offsets[self.length] = self.size


@cython.final
@cython.cclass
class Columns:
    """Where `fill` puts records: buffers of exactly the sizes that `measure` found."""

    key: BinaryColumn
    value: BinaryColumn
    header_key: BinaryColumn
    header_value: BinaryColumn
    header_ends: cython.int[::1]
    offset: cython.longlong[::1]
    timestamp: cython.longlong[::1]
    timestamp_type: cython.int[::1]
    leader_epoch: cython.int[::1]

    def __init__(  # noqa: PLR0913  one buffer a column
        self,
        *,
        key: BinaryColumn,
        value: BinaryColumn,
        header_key: BinaryColumn,
        header_value: BinaryColumn,
        header_ends: memoryview,
        offset: memoryview,
        timestamp: memoryview,
        timestamp_type: memoryview,
        leader_epoch: memoryview,
    ) -> None:
        self.key = key
        self.value = value
        self.header_key = header_key
        self.header_value = header_value
        self.header_ends = header_ends
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch


def fill(segments: Sequence[Segment], columns: Columns) -> None:
    """Spread the records of measured segments, in their order, into the columns."""
    record: _Record = _Record()
    row: cython.Py_ssize_t = 0
    for data, first, last, header in segments:
        view: cython.const[cython.uchar][::1] = data  # type: ignore[valid-type]
        if cython.compiled:
            source: cython.p_const_uchar = cython.address(view[0])
        else:
            source = view
        position: cython.Py_ssize_t = first
        end: cython.Py_ssize_t = last
        stop: cython.Py_ssize_t = row + header.record_count
        base_offset: cython.longlong = header.base_offset
        base_timestamp: cython.longlong = header.base_timestamp
        max_timestamp: cython.longlong = header.max_timestamp
        is_append_time: cython.int = 1 if header.attributes & LOG_APPEND_TIME_BIT else 0
        leader_epoch: cython.int = header.leader_epoch
        while row < stop:
            position = _locate(record, source, position, end)
            columns.offset[row] = base_offset + record.offset_delta
            if is_append_time:
                columns.timestamp[row] = max_timestamp
            else:
                columns.timestamp[row] = base_timestamp + record.timestamp_delta
            columns.timestamp_type[row] = is_append_time
            columns.leader_epoch[row] = leader_epoch
            columns.key.append(source, record.key_end, record.key_length)
            columns.value.append(source, record.value_end, record.value_length)
            if record.header_count > 0:
                _fill_headers(record, source, columns)
            row += 1
            columns.header_ends[row] = columns.header_key.length


@cython.cfunc
@cython.exceptval(check=False)
def _fill_headers(record: _Record, source: cython.p_const_uchar, columns: Columns) -> cython.void:
    position: cython.Py_ssize_t = record.headers_at
    length: cython.longlong
    remaining: cython.longlong = record.header_count
    while remaining > 0:
        length, position = _field(source, position, record.end)
        columns.header_key.append(source, position, length)
        length, position = _field(source, position, record.end)
        columns.header_value.append(source, position, length)
        remaining -= 1


@cython.final
@cython.cclass
class _Record:
    """Where the fields of one record are. A field of length -1 is null."""

    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key_length: cython.longlong
    key_end: cython.Py_ssize_t
    value_length: cython.longlong
    value_end: cython.Py_ssize_t
    header_count: cython.longlong
    headers_at: cython.Py_ssize_t
    header_key_bytes: cython.longlong
    header_value_bytes: cython.longlong
    null_header_values: cython.longlong
    end: cython.Py_ssize_t


@cython.final
@cython.cclass
class _Bounds:
    """What records are held against, and how far a search is."""

    needs_keys: cython.bint
    delta_min: cython.longlong
    delta_max: cython.longlong
    delta_of_none: cython.longlong
    offset_min: cython.longlong
    index: cython.longlong


# Parsers below return a position, and pass on a negative one: it stands for what went wrong.
_FAULTS = (
    "",
    "a varint is cut off or too long",
    "a length or count does not fit the bytes that are left",
    "bytes are left between its last field and its end",
)
_BAD_VARINT = cython.declare(cython.int, -1)
_BAD_LENGTH = cython.declare(cython.int, -2)
_BAD_END = cython.declare(cython.int, -3)
_NOT_DENSE = cython.declare(cython.int, -4)
_NOT_ASCENDING = cython.declare(cython.int, -5)
_WALKED_UNLOCKED_FROM = cython.declare(cython.longlong, 1000)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _locate(
    record: _Record,
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Find the fields of the record at `position`; where the next one starts, or a fault."""
    length: cython.longlong
    length, position = _varint(source, position, end, 5)
    if position < 0:
        return position
    if length < 1 or length > end - position:
        return _BAD_LENGTH
    end = position + length
    record.end = end
    position += 1  # attributes: no bit has a meaning yet
    record.timestamp_delta, position = _varint(source, position, end, 10)
    record.offset_delta, position = _varint(source, position, end, 5)
    record.key_length, position = _field(source, position, end)
    record.key_end = position
    record.value_length, position = _field(source, position, end)
    record.value_end = position
    record.header_count, position = _varint(source, position, end, 5)
    record.headers_at = position
    if record.header_count != 0 and position >= 0:
        position = _locate_headers(record, source, position, end)
    if position < 0:
        return position
    if position != end:
        return _BAD_END
    return end  # not `position`: a processor need not wait for it to begin with the next record


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _locate_headers(
    record: _Record,
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    length: cython.longlong
    remaining: cython.longlong = record.header_count
    if remaining < 0 or remaining > (end - position) // 2:
        return _BAD_LENGTH
    record.header_key_bytes = 0
    record.header_value_bytes = 0
    record.null_header_values = 0
    while remaining > 0 and position >= 0:
        length, position = _field(source, position, end)
        if length < 0:
            return _BAD_LENGTH
        record.header_key_bytes += length
        length, position = _field(source, position, end)
        if length < 0:
            record.null_header_values += 1
        else:
            record.header_value_bytes += length
        remaining -= 1
    return position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.returns((cython.longlong, cython.Py_ssize_t))
@cython.exceptval(check=False)
def _field(
    source: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[int, int]:
    """Pass over a length and that many bytes: the length, and the position behind or a fault."""
    length: cython.longlong
    length, position = _varint(source, position, end, 5)
    if position < 0:
        return 0, position
    if length < -1 or length > end - position:
        return 0, _BAD_LENGTH
    if length > 0:
        position += length
    return length, position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.returns((cython.longlong, cython.Py_ssize_t))
@cython.exceptval(check=False)
def _varint(
    source: cython.p_const_uchar,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    bytes_max: cython.int,
) -> tuple[int, int]:
    """Decode a zigzag number: its value, and the position behind or a fault.

    A number of 32 bits takes up to 5 bytes, one of 64 bits up to 10.
    """
    if position < 0:
        return 0, position
    half: cython.longlong
    sign: cython.longlong
    byte: cython.ulonglong
    if position < end:
        byte = source[position]
        if byte < 0x80:  # most are small
            half = byte >> 1
            sign = byte & 1
            return half ^ -sign, position + 1
    value: cython.ulonglong = 0
    shift: cython.int = 0
    while position < end and shift < 7 * bytes_max:
        byte = source[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, _BAD_VARINT
            half = value >> 1
            sign = value & 1
            return half ^ -sign, position
        shift += 7
    return 0, _BAD_VARINT


@cython.cfunc
def _field_bytes(
    source: cython.p_const_uchar, end: cython.Py_ssize_t, length: cython.longlong
) -> bytes | None:
    return None if length < 0 else bytes(source[end - length : end])


@cython.cfunc
def _describe(tally: Tally, record: _Record, fault: cython.Py_ssize_t) -> str:
    """Return what is wrong with the record at which a walk ended."""
    if fault == _NOT_DENSE:
        return f"its offset delta is {record.offset_delta}"
    if fault == _NOT_ASCENDING:
        return (
            f"offset delta {record.offset_delta} must be beyond {tally.offset_delta}, the one "
            f"before, up to {tally.offset_delta_max}, the batch's last"
        )
    return _FAULTS[-fault]


def _corrupt(header: BatchHeader, what: str) -> CorruptBatch:
    return CorruptBatch(f"batch at offset {header.base_offset}: {what}")
