"""Logs with a past, and what may become of them: made once, cloned for each way to break them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import FOLDER, NOW_MS


class Truth(NamedTuple):
    """Every batch of a log, in order, and the offset behind each."""

    batches: tuple[bytes, ...]
    ends: tuple[int, ...]

    def up_to(self, offset: int) -> tuple[bytes, ...]:
        return tuple(b for b, end in zip(self.batches, self.ends, strict=True) if end <= offset)


def write_history(log: Log, *, sizes: list[int]) -> None:
    """Append batches of about these sizes: plain, idempotent and in transactions that abort."""
    sequences = {1: 0, 2: 0}
    for number, size in enumerate(sizes):
        builder = BatchBuilder()
        count = 1 + number % 3
        for record in range(count):
            value = bytes((number * 7 + record + at) % 251 for at in range(16)) * (size // 16 // 3)
            builder.append(NOW_MS + number * 10 + record, b"key %d" % record, value)
        producer_id = (-1, 1, 2)[number % 3]
        batch = builder.build(
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequences.get(producer_id, -1),
            is_transactional=producer_id == 2,
        )
        if producer_id >= 0:
            sequences[producer_id] += count
        log.append(memoryview(batch), leader_epoch=number // 5, now_ms=NOW_MS)
        if producer_id == 2:
            marker = build_end_transaction_marker(
                NOW_MS + number * 10,
                is_commit=number % 2 == 0,
                producer_id=2,
                producer_epoch=0,
                coordinator_epoch=0,
            )
            log.append_own(memoryview(marker), leader_epoch=number // 5)


def flush(log: Log) -> None:
    """Do at once what `Log.flush` does through a thread."""
    target = log.end_offset
    log.flusher.prepare().run()
    log.recovery_point = target


def truth_of(log: Log) -> Truth:
    found = [
        (segment.file.read(position, header.size_bytes), header.next_offset)
        for segment in log.segments
        for position, header in segment.batches()
    ]
    return Truth(tuple(data for data, _ in found), tuple(end for _, end in found))


def content_of(log: Log) -> bytes:
    """Every byte that the log serves, read as a consumer does."""
    parts = []
    offset = log.start_offset
    for segment in log.segments:
        offset = max(offset, segment.base_offset)
        chunk = log.read(offset, segment.size_bytes, up_to=log.end_offset, may_block=True)
        assert chunk is not None
        parts.append(bytes(chunk))
    return b"".join(parts)


def open_torn(
    disk: SimulatedDisk,
    settings: LogSettings,
    *,
    recovery_point: int = 0,
    start_offset: int = 0,
    is_clean: bool = False,
) -> Log:
    return open_log(
        disk,
        FOLDER,
        settings,
        is_clean=is_clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the log lines of thousands of recoveries to themselves."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
