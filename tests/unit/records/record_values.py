"""Records to test with, and ways to spoil a batch of them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from headrace.records.builder import build_batch
from headrace.records.compression import Compression
from headrace.records.header import HEADER_BYTES, assign_offset, seal
from headrace.records.record import Record

NOW_MS = 1_700_000_000_000

_HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)
_RECORDS = st.lists(
    st.tuples(
        st.just(-1) | st.integers(0, 2**62),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        _HEADERS.map(tuple),
    ),
    max_size=12,
)


def dense_records(base_offset: int = 0) -> st.SearchStrategy[list[Record]]:
    """Records at consecutive offsets, with all that a record may have and lack."""
    return _RECORDS.map(
        lambda fields: [Record(base_offset + index, *record) for index, record in enumerate(fields)]
    )


def plain_records(count: int, base_offset: int = 0, value_bytes: int = 20) -> list[Record]:
    """Records with every kind of key, value and header, the same at each call."""
    return [
        Record(
            base_offset + index,
            NOW_MS + index % 7 - 3,
            None if index % 5 == 4 else b"key %d" % index,
            None if index % 7 == 6 else (b"value %d " % index).ljust(value_bytes, b"."),
            (("trace", b"%d" % index), ("größe", None), ("", b""))[: index % 4],
        )
        for index in range(count)
    ]


def plain_batch(
    count: int, codec: Compression = Compression.NONE, base_offset: int = 0
) -> bytearray:
    return build_batch(plain_records(count, base_offset), codec, base_offset)


def with_bytes(batch: bytes | bytearray, position: int, new: bytes) -> bytearray:
    """The batch with some bytes overwritten and its checksum made right again."""
    changed = bytearray(batch)
    changed[position : position + len(new)] = new
    seal(changed)
    return changed


def with_payload(batch: bytes | bytearray, payload: bytes) -> bytearray:
    """The batch with another payload, its length and checksum to match."""
    changed = bytearray(batch[:HEADER_BYTES]) + payload
    changed[8:12] = (len(changed) - 12).to_bytes(4)
    seal(changed)
    return changed


def chunk_of(batches: Sequence[bytearray]) -> bytes:
    """Batches in the order of a log: each gets the offsets behind the one before."""
    chunk = b""
    offset = 0
    for number, batch in enumerate(batches):
        placed = bytearray(batch)
        assign_offset(memoryview(placed), offset, number)
        offset += int.from_bytes(placed[23:27]) + 1
        chunk += placed
    return chunk
