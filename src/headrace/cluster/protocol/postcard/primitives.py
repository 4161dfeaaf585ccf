"""The wire forms that need more than one line: varints of several bytes, and what is refused.

The compiled codecs handle the usual cases in line and call these for the rest.

A varint has one form here: the shortest. Postcard's own decoder also takes one that ends in
zeros (`80 00`), which its encoder never writes; what decodes here encodes to the same bytes.
"""

from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

from headrace.cluster.protocol.postcard.schema import Integer
from headrace.wire.errors import Fault
from headrace.wire.schema import Buffer

ONE_BYTE: Final = [bytes([value]) for value in range(256)]
SHOWN_CHARACTERS_MAX: Final = 80

Reader: TypeAlias = Callable[[memoryview, int, int], tuple[int, int]]
Writer: TypeAlias = Callable[[int], bytes]


def varint_reader(bits: int) -> Reader:
    """Return a function that reads the rest of an unsigned varint after its first byte."""
    last_shift = (bits - 1) // 7 * 7
    last_byte_max = (1 << bits - last_shift) - 1

    def read(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
        value, shift = first & 127, 7
        while True:
            byte = buffer[position]
            position += 1
            if shift == last_shift and byte > last_byte_max:
                raise Fault(f"a varint is above {(1 << bits) - 1}, the most of u{bits}")
            value |= (byte & 127) << shift
            if byte < 128:
                if not byte:
                    raise Fault("a varint is longer than it has to be")
                return value, position
            shift += 7

    return read


def integer_writer(width: Integer) -> Writer:
    """Return a function that writes an integer as a varint, or refuses it by its range."""
    low, high, is_signed = width.low, width.high, width.is_signed

    def write(value: int) -> bytes:
        if not low <= value <= high:
            raise Fault(f"is {_shown(value)}, which is not from {low} to {high}")
        return varint(value << 1 ^ -(value < 0) if is_signed else value)

    return write


def byte_writer(width: Integer) -> Writer:
    """Return a function that writes an integer of one byte as it is."""
    low, high = width.low, width.high

    def write(value: int) -> bytes:
        if not low <= value <= high:
            raise Fault(f"is {_shown(value)}, which is not from {low} to {high}")
        return ONE_BYTE[value & 255]

    return write


def varint(value: int) -> bytes:
    """Write an unsigned integer of any size."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def checked_data(value: Buffer) -> Buffer:
    """Return a buffer that is bytes one after the other."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Fault(f"is {_shown(value)}, not bytes")
    if isinstance(value, memoryview) and not (
        value.ndim == value.itemsize == 1 and value.contiguous
    ):
        raise Fault("is a view of something that is not bytes one after the other")
    return value


def checked_octets(value: Buffer, count: int) -> Buffer:
    """Return a buffer of exactly `count` bytes."""
    if len(checked_data(value)) != count:
        raise Fault(f"has {len(value)} bytes, not {count}")
    return value


def write_boolean(value: object) -> bytes:
    if value is True:
        return ONE_BYTE[1]
    if value is False:
        return ONE_BYTE[0]
    raise Fault(f"is {_shown(value)}, neither true nor false")


def too_costly(count: int) -> NoReturn:
    raise Fault(f"with these {count}, a message has more elements than it may")


def bad_boolean(byte: int) -> NoReturn:
    raise Fault(f"is {byte}, neither 0 (false) nor 1 (true)")


def bad_option(byte: int) -> NoReturn:
    raise Fault(f"is {byte}, neither 0 (none) nor 1 (some)")


def bad_index(index: int) -> NoReturn:
    raise Fault(f"there is no variant {index}")


def bad_variant(value: object) -> NoReturn:
    raise Fault(f"is {_shown(value)}, which is none of the variants")


def repeated_key(key: object) -> NoReturn:
    raise Fault(f"the key {_shown(key)} is there twice")


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."
