"""Chunks that cannot be decoded as a whole: their readable and unreadable batches."""

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from headrace.client.topics import TopicPartition
from headrace.records.compression import ReadableBuffer
from headrace.records.errors import RecordsError
from headrace.records.header import read_headers


class Unreadable(NamedTuple):
    """Offsets, both ends included, whose bytes are no records, and why."""

    partition: TopicPartition
    first: int
    last: int
    why: str

    def __str__(self) -> str:
        return f"{self.partition}, offsets {self.first} to {self.last}: {self.why}"


class Salvage(NamedTuple):
    """What a chunk has, batch by batch."""

    whole: list[pa.RecordBatch]
    lost: list[Unreadable]


def salvage(
    partition: TopicPartition,
    chunk: ReadableBuffer,
    decode: Callable[[ReadableBuffer], pa.RecordBatch],
) -> Salvage:
    """Decode the batches of a chunk one by one."""
    found = Salvage([], [])
    view = memoryview(chunk)
    headers = list(read_headers(chunk))
    # A damaged batch is not to be believed where it ends, if another one follows.
    ends = [header.base_offset for _, header in headers[1:]]
    ends += [header.next_offset for _, header in headers[-1:]]
    for (position, header), end in zip(headers, ends, strict=True):
        try:
            found.whole.append(decode(view[position : position + header.size_bytes]))
        except RecordsError as error:
            first = header.base_offset
            found.lost.append(Unreadable(partition, first, max(first, end - 1), error.message))
    return found
