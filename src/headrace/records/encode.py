# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Arrow columns to the records of batches: which partition each row goes to, and its bytes there.

The counterpart of `scan`, compiled like it: Cython takes the annotations as C types, Python ignores
them, and both give the same results. The caller gives buffers of Arrow arrays as they are; nothing
is checked here but that a record fits the bytes that are left.
"""
# mypy: disable-error-code="import-untyped, untyped-decorator"

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

NO_PARTITION: int = -1


@cython.final
@cython.cclass
class BytesColumn:
    """A binary or string array: its buffers, and which of its entries is the first.

    `validity` is empty if there are no nulls.
    """

    offsets: cython.const[cython.int][::1]  # type: ignore[valid-type]
    data: cython.const[cython.uchar][::1]  # type: ignore[valid-type]
    validity: cython.const[cython.uchar][::1]  # type: ignore[valid-type]
    has_nulls: cython.bint
    first: cython.Py_ssize_t

    def __init__(
        self, offsets: memoryview, data: memoryview, validity: memoryview, first: int
    ) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.has_nulls = len(validity) > 0
        self.first = first

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def length(self, row: cython.Py_ssize_t) -> cython.longlong:
        """Return the length of an entry, -1 for null."""
        index: cython.Py_ssize_t = self.first + row
        if self.has_nulls and not self.validity[index >> 3] >> (index & 7) & 1:
            return -1
        return self.offsets[index + 1] - self.offsets[index]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def copy(
        self,
        row: cython.Py_ssize_t,
        length: cython.longlong,
        target: cython.uchar[::1],
        position: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Put an entry with its length in front into the target; give the position behind."""
        position = _put_varint(target, position, length)
        if length > 0:
            start: cython.Py_ssize_t = self.offsets[self.first + row]
            if cython.compiled:
                memcpy(cython.address(target[position]), cython.address(self.data[start]), length)
            else:
                target[position : position + length] = self.data[start : start + length]
            position += length
        return position


@cython.final
@cython.cclass
class HeadersColumn:
    """A list of structs of key and value: where the list of each row begins, and their columns."""

    ends: cython.const[cython.int][::1]  # type: ignore[valid-type]
    validity: cython.const[cython.uchar][::1]  # type: ignore[valid-type]
    has_nulls: cython.bint
    first: cython.Py_ssize_t
    key: BytesColumn
    value: BytesColumn

    def __init__(
        self,
        ends: memoryview,
        validity: memoryview,
        first: int,
        key: BytesColumn,
        value: BytesColumn,
    ) -> None:
        self.ends = ends
        self.validity = validity
        self.has_nulls = len(validity) > 0
        self.first = first
        self.key = key
        self.value = value

    @cython.cfunc
    @cython.exceptval(check=False)
    def count(self, row: cython.Py_ssize_t) -> cython.longlong:
        index: cython.Py_ssize_t = self.first + row
        if self.has_nulls and not self.validity[index >> 3] >> (index & 7) & 1:
            return 0
        return self.ends[index + 1] - self.ends[index]

    @cython.cfunc
    @cython.exceptval(check=False)
    def size(self, row: cython.Py_ssize_t, count: cython.longlong) -> cython.longlong:
        """Return the size of a row's headers, without their count."""
        total: cython.longlong = 0
        entry: cython.Py_ssize_t = self.ends[self.first + row]
        last: cython.Py_ssize_t = entry + count
        while entry < last:
            total += _field_size(self.key.length(entry)) + _field_size(self.value.length(entry))
            entry += 1
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def copy(
        self,
        row: cython.Py_ssize_t,
        count: cython.longlong,
        target: cython.uchar[::1],
        position: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        entry: cython.Py_ssize_t = self.ends[self.first + row]
        last: cython.Py_ssize_t = entry + count
        while entry < last:
            position = self.key.copy(entry, self.key.length(entry), target, position)
            position = self.value.copy(entry, self.value.length(entry), target, position)
            entry += 1
        return position


def spread(
    keys: BytesColumn | None, partition_count: int, fallback: int, partitions: memoryview
) -> None:
    """Choose a partition for every row that has none (-1): by its key, as Kafka's clients do.

    Rows without a key go to the `fallback`.
    """
    chosen: cython.int[::1] = partitions
    count: cython.uint = partition_count
    otherwise: cython.int = fallback
    rows: cython.Py_ssize_t = len(partitions)
    column: BytesColumn = keys  # type: ignore[assignment]
    has_keys: cython.bint = keys is not None
    row: cython.Py_ssize_t = 0
    length: cython.longlong
    start: cython.Py_ssize_t
    hashed: cython.uint
    while row < rows:
        if chosen[row] < 0:
            length = column.length(row) if has_keys else -1
            if length < 0:
                chosen[row] = otherwise
            else:
                start = column.offsets[column.first + row]
                hashed = _murmur2(column.data, start, length)
                chosen[row] = (hashed & 0x7FFFFFFF) % count
        row += 1


def group(partitions: memoryview, starts: memoryview, order: memoryview) -> None:
    """Sort rows by partition, keeping their order: `order` gets row numbers, `starts` where each
    partition's begin in it. `starts` has one entry more than there are partitions, all 0.
    """
    chosen: cython.const[cython.int][::1] = partitions  # type: ignore[valid-type]
    begins: cython.int[::1] = starts
    sorted_rows: cython.int[::1] = order
    rows: cython.Py_ssize_t = len(partitions)
    last: cython.Py_ssize_t = len(starts) - 1
    row: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    while row < rows:
        begins[chosen[row] + 1] += 1
        row += 1
    index = 1
    while index <= last:
        begins[index] += begins[index - 1]
        index += 1
    row = 0
    while row < rows:
        index = chosen[row]
        sorted_rows[begins[index]] = row
        begins[index] += 1
        row += 1
    index = last
    while index > 0:
        begins[index] = begins[index - 1]
        index -= 1
    begins[0] = 0


@cython.final
@cython.cclass
class Rows:
    """The columns of an Arrow batch that make records."""

    key: BytesColumn
    value: BytesColumn
    headers: HeadersColumn
    has_key: cython.bint
    has_headers: cython.bint

    def __init__(
        self, key: BytesColumn | None, value: BytesColumn, headers: HeadersColumn | None
    ) -> None:
        self.has_key = key is not None
        self.has_headers = headers is not None
        self.key = key  # type: ignore[assignment]
        self.value = value
        self.headers = headers  # type: ignore[assignment]


def encode(
    rows: Rows,
    order: memoryview,
    first: int,
    last: int,
    *,
    target: memoryview,
    position: int,
    offset_delta: int,
    timestamp_delta: int,
) -> tuple[int, int, int]:
    """Write the records of rows `order[first:last]` into the target from `position` on.

    Stops at the first that does not fit. Gives how far it got in `order`, the position behind what
    was written, and the size of the record that did not fit (0 if all did).
    """
    numbers: cython.const[cython.int][::1] = order  # type: ignore[valid-type]
    buffer: cython.uchar[::1] = target
    capacity: cython.Py_ssize_t = len(target)
    index: cython.Py_ssize_t = first
    end: cython.Py_ssize_t = last
    at: cython.Py_ssize_t = position
    delta: cython.longlong = offset_delta
    time_delta: cython.longlong = timestamp_delta
    time_bytes: cython.longlong = _varint_size(time_delta)
    row: cython.Py_ssize_t
    size: cython.longlong
    key_length: cython.longlong
    value_length: cython.longlong
    header_count: cython.longlong
    while index < end:
        row = numbers[index]
        key_length = rows.key.length(row) if rows.has_key else -1
        value_length = rows.value.length(row)
        header_count = rows.headers.count(row) if rows.has_headers else 0
        size = 1 + time_bytes + _varint_size(delta)
        size += _field_size(key_length) + _field_size(value_length) + _varint_size(header_count)
        if header_count > 0:
            size += rows.headers.size(row, header_count)
        if at + _varint_size(size) + size > capacity:
            return index, at, _varint_size(size) + size
        at = _put_varint(buffer, at, size)
        buffer[at] = 0  # attributes: no bit has a meaning yet
        at = _put_varint(buffer, at + 1, time_delta)
        at = _put_varint(buffer, at, delta)
        if key_length < 0:
            at = _put_varint(buffer, at, -1)
        else:
            at = rows.key.copy(row, key_length, buffer, at)
        at = rows.value.copy(row, value_length, buffer, at)
        at = _put_varint(buffer, at, header_count)
        if header_count > 0:
            at = rows.headers.copy(row, header_count, buffer, at)
        delta += 1
        index += 1
    return index, at, 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field_size(length: cython.longlong) -> cython.longlong:
    """Return the size of a field with its length prefix; null has the length -1."""
    return 1 if length < 0 else _varint_size(length) + length


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.longlong:
    rest: cython.ulonglong = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    size: cython.longlong = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(
    target: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Write a zigzag number; return the position after it."""
    rest: cython.ulonglong = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    while rest > 0x7F:
        target[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1


@cython.cfunc
@cython.exceptval(check=False)
def _murmur2(
    data: cython.const[cython.uchar][::1],  # type: ignore[valid-type]
    start: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.uint:
    """Return the 32-bit MurmurHash2 with Kafka's seed. The masks are for Python's numbers."""
    m: cython.uint = 0x5BD1E995
    mask: cython.uint = 0xFFFFFFFF
    hashed: cython.uint = 0x9747B28C ^ length
    word: cython.uint
    byte: cython.uint
    position: cython.Py_ssize_t = start
    whole: cython.Py_ssize_t = start + (length & ~3)
    while position < whole:
        word = data[position]
        byte = data[position + 1]
        word |= byte << 8
        byte = data[position + 2]
        word |= byte << 16
        byte = data[position + 3]
        word |= byte << 24
        word = word * m & mask
        word ^= word >> 24
        hashed = (hashed * m & mask) ^ (word * m & mask)
        position += 4
    rest: cython.int = length & 3
    if rest > 0:
        if rest > 2:
            byte = data[position + 2]
            hashed ^= byte << 16
        if rest > 1:
            byte = data[position + 1]
            hashed ^= byte << 8
        hashed ^= data[position]
        hashed = hashed * m & mask
    hashed ^= hashed >> 13
    hashed = hashed * m & mask
    return hashed ^ (hashed >> 15)
