"""A machine from its log: everything that the partition has, in order."""

import asyncio
from typing import Final

from headrace.coordinator.machine import Machine
from headrace.coordinator.records import RecordTypes, read_record_batch
from headrace.log.log import Log
from headrace.records.control import ControlType, read_control
from headrace.records.header import BatchHeader, read_headers

LOAD_BYTES: Final = 1024 * 1024
"""How much is read and replayed before others on the loop get a turn."""


async def replay_log(log: Log, machine: Machine, types: RecordTypes) -> int:
    """Replay a log into an empty machine; give how many records there were.

    Also what is not committed yet: it is in the leader's log, so it will be, and answers wait for
    it. HeadraceError if something there cannot be read.
    """
    offset, count = log.start_offset, 0
    while offset < log.end_offset:
        chunk = await log.read_cold(offset, LOAD_BYTES, up_to=log.end_offset)
        before = offset
        for position, header in read_headers(chunk):
            batch = chunk[position : position + header.size_bytes]
            offset = header.last_offset + 1
            if not header.is_control:
                for record in read_record_batch(batch, header, types):
                    machine.replay(record)
                    count += 1
            elif header.record_count:  # else compaction has emptied it
                replay_marker(machine, batch, header)
        if offset == before:
            break  # compaction took away what was last before the end
        await asyncio.sleep(0)
    return count


def replay_marker(machine: Machine, batch: memoryview, header: BatchHeader) -> None:
    """Let a machine know of a control batch, if it is the end of a transaction."""
    control = read_control(batch, header)
    if control.ends_transaction:
        machine.end_transaction(
            header.producer_id,
            header.producer_epoch,
            is_commit=control.control_type == ControlType.COMMIT,
        )
