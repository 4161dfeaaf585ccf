# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The latest record of each key: the memory of a compaction, and the walk that fills it.

An open-addressing table in one block of memory, 24 bytes per key: 16 that identify the key and 8
for the offset. A key of up to 15 bytes is stored itself, so such keys are never confused with each
other. A longer one is stored as 120 bits of SipHash with a random secret per map: two of a billion
keys collide with a probability below 10^-18, and collisions cannot be constructed. (Kafka uses MD5
for all, with which they can.)

Compiled as `records.scan` is, by the same rules: one source, and the only lines that just one of
the two modes can run take a pointer or copy bytes. The walks release the GIL. They trust nothing:
a payload that is not records raises CorruptBatch and is never read beyond its end.
"""
# mypy: disable-error-code="import-untyped, untyped-decorator"

from __future__ import annotations

import mmap
import secrets
from typing import NamedTuple

import cython

from headrace.records.compression import ReadableBuffer
from headrace.records.errors import CorruptBatch
from headrace.records.scan import Segment as Records

if cython.compiled:
    from cython.cimports.libc.string import memcpy

SLOT_BYTES: int = 24
_EXACT_BYTES_MAX = cython.declare(cython.Py_ssize_t, 15)
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_INT64_MIN: int = -(2**63)


class Sifted(NamedTuple):
    """What a sieve let through."""

    record_count: int
    size_bytes: int
    has_tombstones: bool
    """Whether a record without a value is among them."""
    max_timestamp_delta: int
    """The largest of their times, relative to the batch's base; 0 if none was let through."""


@cython.final
@cython.cclass
class OffsetMap:
    """The latest offset of each key, for as many keys as fit into a given memory."""

    count = cython.declare(cython.longlong, visibility="readonly")
    capacity = cython.declare(cython.longlong, visibility="readonly")
    _table: cython.ulonglong[::1]
    _slots: cython.ulonglong
    _secret_low: cython.ulonglong
    _secret_high: cython.ulonglong

    def __init__(self, memory_bytes: int, secret: bytes | None = None) -> None:
        """Take so many bytes at most; the kernel gives them as they are used.

        At least one key has room, so that a compaction always gets on. A secret of 16 bytes is
        given by tests only.
        """
        secret = secret or secrets.token_bytes(16)
        slots = max(memory_bytes // SLOT_BYTES, 2)
        self._slots = slots
        # Not a bytearray, whose bytes are all written when it is made. Looking up keys is waiting
        # for memory, and with large pages there is less to wait for.
        size_bytes = slots * SLOT_BYTES
        memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self._table = memoryview(memory).cast("Q")
        self.capacity = max(slots * 3 // 4, 1)
        self.count = 0
        self._secret_low = int.from_bytes(secret[:8], "little")
        self._secret_high = int.from_bytes(secret[8:], "little")

    def get(self, key: bytes) -> int:
        """Return the latest offset of a key, -1 if it is not known."""
        walk: _Walk = _Walk()
        view: cython.const[cython.uchar][::1] = key or b"\0"  # type: ignore[valid-type]
        if cython.compiled:
            source: cython.p_const_uchar = cython.address(view[0])
        else:
            source = view
        self._identify(walk, source, 0, len(key))
        slot: cython.ulonglong = self._find(walk)
        return int(self._table[slot + 2]) if self._table[slot] else -1

    def add(self, records: Records, from_offset: int) -> int:
        """Add the keys of a batch's records, except those below `from_offset`.

        Returns -1, or the offset of the first record for which there was no room. Batches come in
        the order of the log. Records without a key are of no interest.
        """
        walk: _Walk = _Walk()
        payload, position, end, header = records
        view: cython.const[cython.uchar][::1] = payload  # type: ignore[valid-type]
        if position >= end:
            return -1
        if cython.compiled:
            source: cython.p_const_uchar = cython.address(view[0])
        else:
            source = view
        walk.position = position
        walk.end = end
        base: cython.longlong = header.base_offset
        first: cython.longlong = from_offset - base
        count: cython.longlong = header.record_count
        index: cython.longlong = 0
        slot: cython.ulonglong
        with cython.nogil:
            while index < count and _next(walk, source):
                if walk.key_length >= 0 and walk.offset_delta >= first:
                    self._identify(walk, source, walk.key_at, walk.key_length)
                    slot = self._find(walk)
                    if self._table[slot] == 0:
                        if self.count == self.capacity:
                            break
                        self.count += 1
                        self._table[slot] = walk.identity_low
                        self._table[slot + 1] = walk.identity_high
                    self._table[slot + 2] = base + walk.offset_delta
                index += 1
        if walk.is_corrupt:
            raise _corrupt(base, index)
        return -1 if index == count else base + walk.offset_delta

    def sift(
        self, records: Records, end_offset: int, keeps_tombstones: bool, output: bytearray
    ) -> Sifted:
        """Copy the records that are to stay into `output`, which is at least as large.

        A record stays if no later one of its key is known, or if it is at `end_offset` or beyond;
        one without a value only with `keeps_tombstones`, and below `end_offset` none without a
        key.
        """
        walk: _Walk = _Walk()
        payload, position, end, header = records
        view: cython.const[cython.uchar][::1] = payload  # type: ignore[valid-type]
        target: cython.uchar[::1] = output
        if position >= end:
            return Sifted(0, 0, False, 0)
        if cython.compiled:
            source: cython.p_const_uchar = cython.address(view[0])
        else:
            source = view
        walk.position = position
        walk.end = end
        base: cython.longlong = header.base_offset
        unknown: cython.longlong = end_offset - base
        count: cython.longlong = header.record_count
        are_tombstones_kept: cython.bint = keeps_tombstones
        index: cython.longlong = 0
        kept: cython.longlong = 0
        size: cython.Py_ssize_t = 0
        length: cython.Py_ssize_t
        has_tombstones: cython.bint = False
        latest: cython.longlong = _INT64_MIN
        with cython.nogil:
            while index < count and _next(walk, source):
                if walk.offset_delta >= unknown or self._stays(
                    walk, source, base, are_tombstones_kept
                ):
                    length = walk.position - walk.begin
                    if cython.compiled:
                        memcpy(
                            cython.address(target[size]),
                            cython.address(source[walk.begin]),
                            length,
                        )
                    else:
                        target[size : size + length] = source[walk.begin : walk.position]
                    size += length
                    kept += 1
                    if walk.value_length < 0:
                        has_tombstones = True
                    latest = max(latest, walk.timestamp_delta)
                index += 1
        if walk.is_corrupt or walk.position != walk.end:
            raise _corrupt(base, index)
        return Sifted(kept, size, bool(has_tombstones), latest if kept else 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _stays(
        self,
        walk: _Walk,
        source: cython.p_const_uchar,
        base_offset: cython.longlong,
        keeps_tombstones: cython.bint,
    ) -> cython.bint:
        if walk.key_length < 0 or (walk.value_length < 0 and not keeps_tombstones):
            return False
        self._identify(walk, source, walk.key_at, walk.key_length)
        slot: cython.ulonglong = self._find(walk)
        if self._table[slot] == 0:
            return True
        known: cython.longlong = self._table[slot + 2]
        return base_offset + walk.offset_delta >= known

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, walk: _Walk) -> cython.ulonglong:
        """Return where in the table the identified key is, or would be."""
        slot: cython.ulonglong = (walk.hash_low >> 32) * self._slots >> 32
        at: cython.ulonglong = slot * 3
        while self._table[at] != 0 and not (
            self._table[at] == walk.identity_low and self._table[at + 1] == walk.identity_high
        ):
            slot += 1
            if slot == self._slots:
                slot = 0
            at = slot * 3
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _identify(
        self,
        walk: _Walk,
        source: cython.p_const_uchar,
        position: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
    ) -> cython.void:
        """Set the hash of a key, and the 16 bytes that stand for it: never 0 in the first."""
        self._hash(walk, source, position, length)
        if length <= _EXACT_BYTES_MAX:
            word: cython.ulonglong = _word(source, position, min(length, 7))
            walk.identity_low = (word << 8) | (length + 1)
            walk.identity_high = 0
            if length > 7:
                walk.identity_high = _word(source, position + 7, length - 7)
        else:
            walk.identity_low = walk.hash_low | 0xFF
            walk.identity_high = walk.hash_high

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hash(
        self,
        walk: _Walk,
        source: cython.p_const_uchar,
        position: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
    ) -> cython.void:
        """Set SipHash-2-4 of a key: 64 bits if those are enough to look for it, else 128."""
        v0: cython.ulonglong = self._secret_low ^ _START_0
        v1: cython.ulonglong = self._secret_high ^ _START_1 ^ 0xEE
        v2: cython.ulonglong = self._secret_low ^ _START_2
        v3: cython.ulonglong = self._secret_high ^ _START_3
        word: cython.ulonglong
        length_byte: cython.ulonglong = length & 0xFF
        end: cython.Py_ssize_t = position + length
        is_last: cython.bint = False
        while not is_last:
            is_last = end - position < 8
            word = _word(source, position, end - position if is_last else 8)
            if is_last:
                word |= length_byte << 56
            v3 ^= word
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= word
            position += 8
        v2 ^= 0xEE
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        walk.hash_low = v0 ^ v1 ^ v2 ^ v3
        if length > _EXACT_BYTES_MAX:
            v1 ^= 0xDD
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            walk.hash_high = v0 ^ v1 ^ v2 ^ v3


def shift_times(
    payload: ReadableBuffer, size_bytes: int, record_count: int, shift: int
) -> bytearray:
    """Return records with times relative to a base that is `shift` earlier than before."""
    walk: _Walk = _Walk()
    output = bytearray(size_bytes + record_count * _SHIFT_GROWTH_BYTES_MAX)
    view: cython.const[cython.uchar][::1] = payload  # type: ignore[valid-type]
    target: cython.uchar[::1] = output
    if cython.compiled:
        source: cython.p_const_uchar = cython.address(view[0])
    else:
        source = view
    walk.position = 0
    walk.end = size_bytes
    by: cython.longlong = shift
    delta: cython.longlong
    length: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    while walk.position < walk.end and _next(walk, source):
        delta = walk.timestamp_delta + by
        length = walk.position - walk.offset_delta_at
        size = _put_varint(target, size, 1 + _varint_bytes(delta) + length)
        target[size] = source[walk.attributes_at]
        size = _put_varint(target, size + 1, delta)
        if cython.compiled:
            memcpy(
                cython.address(target[size]),
                cython.address(source[walk.offset_delta_at]),
                length,
            )
        else:
            target[size : size + length] = source[walk.offset_delta_at : walk.position]
        size += length
    del view, target
    return output[:size]


_SHIFT_GROWTH_BYTES_MAX: int = 10
"""A time that took one byte may take ten, and the length of the record one more byte than it did
only if it grew by that much: nine and one."""


@cython.final
@cython.cclass
class _Walk:
    """Where a walk over records is: what it found in the last one, and its key in the map."""

    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    is_corrupt: cython.bint
    begin: cython.Py_ssize_t
    attributes_at: cython.Py_ssize_t
    timestamp_delta: cython.longlong
    offset_delta_at: cython.Py_ssize_t
    offset_delta: cython.longlong
    key_at: cython.Py_ssize_t
    key_length: cython.longlong
    value_length: cython.longlong
    hash_low: cython.ulonglong
    hash_high: cython.ulonglong
    identity_low: cython.ulonglong
    identity_high: cython.ulonglong

    def __init__(self) -> None:
        self.is_corrupt = False


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _next(walk: _Walk, source: cython.p_const_uchar) -> cython.bint:
    """Go over one record; False, and `is_corrupt`, if there is none. Headers are not looked at."""
    end: cython.Py_ssize_t = walk.end
    position: cython.Py_ssize_t = walk.position
    length: cython.longlong
    walk.begin = position
    length, position = _varint(source, position, end)
    if position < 0 or length < 1 or length > end - position:
        walk.is_corrupt = True
        return False
    end = position + length
    walk.position = end
    walk.attributes_at = position
    walk.timestamp_delta, position = _varint(source, position + 1, end)
    walk.offset_delta_at = position
    walk.offset_delta, position = _varint(source, position, end)
    walk.key_length, position = _varint(source, position, end)
    walk.key_at = position
    if position < 0 or walk.key_length < -1 or walk.key_length > end - position:
        walk.is_corrupt = True
        return False
    if walk.key_length > 0:
        position += walk.key_length
    walk.value_length, position = _varint(source, position, end)
    if position < 0 or walk.value_length < -1 or walk.value_length > end - position:
        walk.is_corrupt = True
        return False
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.returns((cython.longlong, cython.Py_ssize_t))
@cython.exceptval(check=False)
def _varint(
    source: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[int, int]:
    """Decode a zigzag number: its value, and the position behind it, -1 if it is none."""
    if position < 0:
        return 0, position
    byte: cython.ulonglong
    value: cython.ulonglong = 0
    half: cython.longlong
    sign: cython.longlong
    shift: cython.int = 0
    while position < end and shift < 70:
        byte = source[position]
        position += 1
        if shift == 63:
            byte &= 0x81
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            half = value >> 1
            sign = value & 1
            return half ^ -sign, position
        shift += 7
    return 0, -1


@cython.cfunc
@cython.exceptval(check=False)
def _varint_bytes(value: cython.longlong) -> cython.int:
    rest: cython.ulonglong = ((value << 1) ^ (value >> 63)) & _MASK
    count: cython.int = 1
    while rest >= 0x80:
        rest >>= 7
        count += 1
    return count


@cython.cfunc
@cython.exceptval(check=False)
def _put_varint(
    target: cython.uchar[::1],
    position: cython.Py_ssize_t,
    value: cython.longlong,
) -> cython.Py_ssize_t:
    rest: cython.ulonglong = ((value << 1) ^ (value >> 63)) & _MASK
    while rest >= 0x80:
        target[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1


# SipHash: https://www.aumasson.jp/siphash/siphash.pdf

_START_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
_START_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
_START_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
_START_3 = cython.declare(cython.ulonglong, 0x7465646279746573)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.returns((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))
@cython.exceptval(check=False)
def _round(
    v0: cython.ulonglong, v1: cython.ulonglong, v2: cython.ulonglong, v3: cython.ulonglong
) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotated(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _word(
    source: cython.p_const_uchar, position: cython.Py_ssize_t, count: cython.Py_ssize_t
) -> cython.ulonglong:
    """Return up to eight bytes as a number, the first one lowest."""
    word: cython.ulonglong = 0
    byte: cython.ulonglong
    at: cython.Py_ssize_t = count - 1
    while at >= 0:
        byte = source[position + at]
        word = (word << 8) | byte
        at -= 1
    return word


def _corrupt(base_offset: int, index: int) -> CorruptBatch:
    return CorruptBatch(f"batch at offset {base_offset}: record {index} is not a record")
