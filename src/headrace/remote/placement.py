"""Which partition of the metadata topic has the events of a user's partition. Pure.

Kafka's hash, so that a node of ours and one of Kafka's look in the same place. Crabka has two of
its own, neither of them Kafka's: they are here to find what it wrote, and we never write by them.
"""

from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from headrace.records.murmur2 import murmur2
from headrace.remote.segments import PartitionKey

_LONGS: Final = Struct(">qq")
_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_POSITIVE_32: Final = 0x7FFFFFFF
_POSITIVE_64: Final = 0x7FFFFFFFFFFFFFFF


class Dialect(Enum):
    """Whose hash it is."""

    KAFKA = "kafka"
    CRABKA = "crabka"
    """Crabka up to 0.3.6."""
    KRABKA = "krabka"
    """Crabka since: without the mask, and so elsewhere for half of the partitions."""


def metadata_partition(
    key: PartitionKey, partition_count: int, dialect: Dialect = Dialect.KAFKA
) -> int:
    """Return the partition of the metadata topic that has the events of a partition."""
    return _HASHES[dialect](key) % partition_count


def dialects_at(key: PartitionKey, partition: int, partition_count: int) -> set[Dialect]:
    """Return whose hash puts the events of a partition there: who wrote a topic that is imported.

    A few events tell, as hashes agree by chance only.
    """
    return {
        dialect
        for dialect in Dialect
        if metadata_partition(key, partition_count, dialect) == partition
    }


def _kafka(key: PartitionKey) -> int:
    topic_id, index = key
    most, least = _LONGS.unpack(topic_id)
    combined = 31 + _long_hash(least)
    combined = 31 * combined + _long_hash(most)
    combined = 31 * combined + index
    return murmur2((combined & _MASK_32).to_bytes(4, "big")) & _POSITIVE_32


def _long_hash(value: int) -> int:
    """Return Java's Long.hashCode, unsigned: only the lower 32 bits count in what follows."""
    value &= _MASK_64
    return (value ^ value >> 32) & _MASK_32


def _crabka(key: PartitionKey) -> int:
    return _krabka(key) & _POSITIVE_64


def _krabka(key: PartitionKey) -> int:
    topic_id, index = key
    return siphash_1_3(topic_id + (index & _MASK_32).to_bytes(4, "little"))


_HASHES: Final[dict[Dialect, Callable[[PartitionKey], int]]] = {
    Dialect.KAFKA: _kafka,
    Dialect.CRABKA: _crabka,
    Dialect.KRABKA: _krabka,
}


class _Sip(NamedTuple):
    v0: int
    v1: int
    v2: int
    v3: int


_START: Final = _Sip(0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
"""The state of a key of zeros."""


def siphash_1_3(data: bytes) -> int:
    """Return SipHash-1-3 with a key of zeros, as Rust's DefaultHasher has it."""
    state = _START
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        state = _absorb(state, int.from_bytes(data[at : at + 8], "little"))
    state = _absorb(state, int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    state = state._replace(v2=state.v2 ^ 0xFF)
    for _ in range(3):
        state = _round(state)
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3


def _absorb(state: _Sip, word: int) -> _Sip:
    state = _round(state._replace(v3=state.v3 ^ word))
    return state._replace(v0=state.v0 ^ word)


def _round(state: _Sip) -> _Sip:
    v0, v1, v2, v3 = state
    v0 = v0 + v1 & _MASK_64
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = v2 + v3 & _MASK_64
    v3 = _rotate(v3, 16) ^ v2
    v0 = v0 + v3 & _MASK_64
    v3 = _rotate(v3, 21) ^ v0
    v2 = v2 + v1 & _MASK_64
    v1 = _rotate(v1, 17) ^ v2
    return _Sip(v0, v1, _rotate(v2, 32), v3)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK_64
