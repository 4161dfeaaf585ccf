"""The wire forms that need more than one line: varints, runs of numbers, tagged fields.

The compiled codecs handle the usual cases in line and call these for the rest.
"""

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct as Layout
from typing import Any, Final, NoReturn

from headrace.wire.errors import Fault

STRING_BYTES_MAX: Final = 32767
VARINT_BYTES_MAX: Final = 5
NULL_REFUSED: Final = "null, which this version does not allow"
UNKNOWN_TAG_MEMORY_BYTES: Final = 200
ONE_BYTE: Final = [bytes([value]) for value in range(128)]

LAYOUT_CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of a fixed width: the codes of the struct module."""


@cache
def layout(codes: str) -> Layout:
    """Return a big-endian layout; a few hundred exist, one for each run of fixed fields."""
    return Layout(">" + codes)


class Runs(dict[int, Callable[..., Any]]):
    """By count, the function that reads or writes that many of a type at once.

    Created on first use. Only counts up to the usual length of a replica list or a name are kept,
    so that a peer that sends arrays of every length does not fill the table.
    """

    COUNT_KEPT_MAX: Final = 256

    def __init__(self, code: str, function: Callable[[Layout], Callable[..., Any]]) -> None:
        super().__init__()
        self._code = code
        self._function = function

    def __missing__(self, count: int) -> Callable[..., Any]:
        codes = f"{count}{self._code}" if len(self._code) == 1 else self._code * count
        function = self._function(Layout(">" + codes))
        if count <= self.COUNT_KEPT_MAX:
            self[count] = function
        return function


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and the position after it."""
    value = shift = 0
    for index in range(position, position + VARINT_BYTES_MAX):
        byte = buffer[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, index + 1
        shift += 7
    raise Fault(f"a varint is longer than {VARINT_BYTES_MAX} bytes")


def read_tags(
    buffer: memoryview, position: int, end: int, room: int
) -> tuple[dict[int, bytes] | None, int, int]:
    """Read a section of tagged fields of which none is known."""
    fields: dict[int, bytes] | None = None
    count, position = read_varint(buffer, position)
    for _ in range(count):
        tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if size > end - position:
            too_short(size, end - position)
        data = buffer[position : position + size]
        fields, position, room = keep_tag(fields, tag, data, position, room)
    return fields, position, room


def keep_tag(
    fields: dict[int, bytes] | None, tag: int, data: memoryview, position: int, room: int
) -> tuple[dict[int, bytes], int, int]:
    """Add an unknown tagged field to those found before it."""
    fields = {} if fields is None else fields
    fields[tag] = bytes(data)
    room -= UNKNOWN_TAG_MEMORY_BYTES + len(data)
    if room < 0:
        too_costly(len(fields))
    return fields, position + len(data), room


def write_varint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(length: int) -> bytes:
    """Write the length of a string that is not compact."""
    if length > STRING_BYTES_MAX:
        string_too_long(length)
    return length.to_bytes(2)


def compact_string_length(count: int) -> bytes:
    """Write the length of a compact string of `count - 1` bytes."""
    if count > STRING_BYTES_MAX + 1:
        string_too_long(count - 1)
    return write_varint(count)


def write_tags(
    known: Sequence[tuple[int, list[Any]]], unknown: dict[int, bytes] | None
) -> list[Any]:
    """Write a section of tagged fields in the order of their tags."""
    fields: dict[int, list[Any]] = dict(known)
    for tag, data in (unknown or {}).items():
        if tag in fields:
            raise Fault(f"unknown tag {tag} is a tag that this version knows")
        fields[tag] = [data]
    parts: list[Any] = [write_varint(len(fields))]
    for tag in sorted(fields):
        values = fields[tag]
        parts += (write_varint(tag), write_varint(sum(map(len, values))), *values)
    return parts


def string_too_long(length: int) -> NoReturn:
    raise Fault(f"a string takes {length} bytes, the most is {STRING_BYTES_MAX}")


def too_short(length: int, left: int) -> NoReturn:
    raise Fault(f"{length} bytes are announced, {left} are left")


def too_many(count: int, left: int) -> NoReturn:
    raise Fault(f"{count} elements are announced, which {left} bytes cannot hold")


def too_costly(count: int) -> NoReturn:
    raise Fault(f"{count} elements would take more memory than a frame of this size may")


def bad_length(length: int) -> NoReturn:
    raise Fault(NULL_REFUSED if length == -1 else f"a length of {length}")


def bad_tag_size(size: int, used: int) -> NoReturn:
    raise Fault(f"a tagged field of {size} bytes has a value of {used}")


def not_in_version(value: object) -> NoReturn:
    text = repr(value)
    raise Fault(f"is {text if len(text) < 80 else text[:77] + '...'}, which this version lacks")


def bad_uuid(value: object) -> NoReturn:
    raise Fault(f"is {value!r}, a uuid is 16 bytes")
