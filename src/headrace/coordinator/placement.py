"""Which partition of an internal topic a group or a transactional id belongs to."""

from array import array
from functools import lru_cache
from operator import mul
from sys import byteorder
from typing import Final

KEY_UNITS_MAX: Final = 0x7FFF
"""How many characters of a key are hashed. No record can hold a longer key, so nothing is known of
one, and a client must not make us hash everything that a request can hold."""
KEYS_KNOWN_MAX: Final = 10_000
KNOWN_UNITS_MAX: Final = 100
_BLOCK: Final = 64
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_POWERS: Final = tuple(31**power & _MASK for power in range(_BLOCK, -1, -1))
"""Powers of 31, the factor of Java's hash, from the highest that a block needs down to one."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, 32 bits, signed."""
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
    """Return the partition as Kafka does: the hash without its sign, modulo the count."""
    hashed = _known_hash(key) if len(key) <= KNOWN_UNITS_MAX else java_hash(key[:KEY_UNITS_MAX])
    return (0 if hashed == -_POSITIVE - 1 else abs(hashed)) % partition_count


@lru_cache(KEYS_KNOWN_MAX)
def _known_hash(key: str) -> int:
    """Return the cached hash of a key of usual length: every heartbeat needs one."""
    return java_hash(key)
