"""Which partition of an internal topic a group or a transactional id belongs to."""

from typing import Final

_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def java_hash(text: str) -> int:
    """Give what Java's `String.hashCode` gives: over UTF-16 code units, in 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for position in range(0, len(units), 2):
        unit = units[position] << 8 | units[position + 1]
        result = (31 * result + unit) & _MASK
    return result - (_MASK + 1) if result > _POSITIVE else result


def partition_for(key: str, partition_count: int) -> int:
    """Give the partition that Kafka gives: the hash without its sign, modulo the count."""
    hashed = java_hash(key)
    return (0 if hashed == -_POSITIVE - 1 else abs(hashed)) % partition_count
