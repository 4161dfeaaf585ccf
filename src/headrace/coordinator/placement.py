"""Which partition of an internal topic a group or a transactional id belongs to."""

from array import array
from functools import lru_cache
from operator import mul
from sys import byteorder
from typing import Final

KEY_UNITS_MAX: Final = 0x7FFF
"""How much of a key is looked at: no record can hold a longer one, so that nothing is known of it,
and a client must not have us walk through all that a request can hold."""
KEYS_KNOWN_MAX: Final = 10_000
KNOWN_UNITS_MAX: Final = 100
_BLOCK: Final = 64
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_POWERS: Final = tuple(31**power & _MASK for power in range(_BLOCK, -1, -1))
"""Of 31, the factor of Java's hash, from the highest that a block needs down to one."""


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` gives: over UTF-16 code units, in 32 bits, signed."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if byteorder == "big":
        units.byteswap()
    result = 0
    for start in range(0, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        powers = _POWERS[-len(block) :]
        result = result * _POWERS[-len(block) - 1] + sum(map(mul, block, powers)) & _MASK
    return result - (_MASK + 1) if result > _POSITIVE else result


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition that Kafka gives: the hash without its sign, modulo the count."""
    hashed = _known_hash(key) if len(key) <= KNOWN_UNITS_MAX else java_hash(key[:KEY_UNITS_MAX])
    return (0 if hashed == -_POSITIVE - 1 else abs(hashed)) % partition_count


@lru_cache(KEYS_KNOWN_MAX)
def _known_hash(key: str) -> int:
    """Remember the hashes of keys as people name them: every heartbeat asks for one."""
    return java_hash(key)
