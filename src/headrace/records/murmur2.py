"""MurmurHash2 as Kafka uses it to choose partitions. Pure."""

from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of some bytes with Kafka's seed, unsigned."""
    length = len(data)
    h = _SEED ^ length
    for k in unpack_from(f"<{length >> 2}I", data):
        k = k * _M & _MASK  # noqa: PLW2901
        k ^= k >> 24  # noqa: PLW2901
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if rest := length & 3:
        h ^= int.from_bytes(data[length - rest :], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)
