"""A machine from its log: everything that the partition has, in order."""

import asyncio
import logging
from typing import Final, NamedTuple

from headrace.coordinator.machine import Machine
from headrace.coordinator.records import (
    CoordinatorRecord,
    RecordTypes,
    UnreadableRecord,
    encode_record,
    scan_record_batch,
)
from headrace.coordinator.set_aside import SetAside
from headrace.errors import HeadraceError
from headrace.log.log import Log
from headrace.records.control import ControlType, read_control
from headrace.records.header import BatchHeader, check_crc, read_headers

LOAD_BYTES: Final = 1024 * 1024
"""How much is read from the log at once."""
SLICE_RECORDS_MAX: Final = 100
SLICE_SECONDS_MAX: Final = 0.005
"""How much is replayed before others on the loop get a turn."""
UNREADABLE_LINES_MAX: Final = 10
"""How many records that cannot be read are named in the log of the node, for each load."""

logger = logging.getLogger(__name__)


class UnreadableLog(HeadraceError):
    """A log that holds something that cannot be told apart from the rest."""


class Loaded(NamedTuple):
    """What a load found."""

    record_count: int
    set_aside: SetAside


async def replay_log(log: Log, machine: Machine, types: RecordTypes) -> Loaded:
    """Replay a log into an empty machine.

    Also what is not committed yet: it is in the leader's log, so it will be, and answers wait for
    it. HeadraceError if something there cannot be read and may concern everybody.
    """
    loading = _Loading(machine, log.folder)
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = await log.read_cold(offset, LOAD_BYTES, up_to=log.end_offset)
        before = offset
        for position, header in read_headers(chunk):
            batch = chunk[position : position + header.size_bytes]
            offset = header.last_offset + 1
            if not header.is_control:
                for record in scan_record_batch(batch, header, types):
                    if (failure := loading.take(record)) is not None:
                        # It may be damaged, and then it may have been anybody's.
                        check_crc(batch, header)
                        loading.pass_over(failure)
                    if loading.is_slice_over():
                        await loading.pause()
            elif header.record_count:  # else compaction has emptied it
                replay_marker(machine, batch, header)
        if offset == before:
            break  # compaction took away what was last before the end
        await loading.pause()
    loading.tell_unnamed()
    return Loaded(loading.record_count, loading.set_aside)


class _Loading:
    """A load under way."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.record_count = 0
        self.set_aside = SetAside()
        self._machine = machine
        self._name = name
        self._unreadable_count = 0
        self._loop = asyncio.get_running_loop()
        self._slice_from = self._loop.time()
        self._slice_records = 0

    def take(self, record: CoordinatorRecord | UnreadableRecord) -> UnreadableRecord | None:
        """Replay a record; return it as one to pass over if it cannot be read or replayed.

        One that cannot be replayed has a form that can be read and says what no coordinator
        writes, such as a state that does not exist. It concerns its own id alone.
        """
        self.record_count += 1
        if isinstance(record, UnreadableRecord):
            return record
        if self.set_aside:
            self.set_aside.supersede(encode_record(record).key)
        try:
            self._machine.replay(record)
        except MemoryError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return UnreadableRecord(record.offset, encode_record(record).key, reason, record.key)
        return None

    def is_slice_over(self) -> bool:
        self._slice_records += 1
        return (
            self._slice_records >= SLICE_RECORDS_MAX
            or self._loop.time() - self._slice_from >= SLICE_SECONDS_MAX
        )

    async def pause(self) -> None:
        await asyncio.sleep(0)
        self._slice_records, self._slice_from = 0, self._loop.time()

    def pass_over(self, record: UnreadableRecord) -> None:
        offset, _, reason, key = record
        self._unreadable_count += 1
        is_named = self._unreadable_count <= UNREADABLE_LINES_MAX
        if key is None:
            if is_named:
                logger.warning(
                    "%s: the record at offset %d is passed over: %s", self._name, offset, reason
                )
            return
        id_ = self._machine.id_of(key)
        if id_ is None:
            raise UnreadableLog(f"the record at offset {offset} cannot be read: {reason}")
        self._machine.set_aside(id_)
        self.set_aside.add(id_, record)
        if is_named:
            logger.error(
                "%s: the record at offset %d, of %r, cannot be read (%s): requests for %r are "
                "refused until another record takes its place, or the group is deleted",
                *(self._name, offset, id_, reason, id_),
            )

    def tell_unnamed(self) -> None:
        """Say how many records were passed over without a line of their own."""
        if (unnamed := self._unreadable_count - UNREADABLE_LINES_MAX) > 0:
            logger.warning("%s: %d more records cannot be read", self._name, unnamed)


def replay_marker(machine: Machine, batch: memoryview, header: BatchHeader) -> None:
    """Let a machine know of a control batch, if it is the end of a transaction."""
    control = read_control(batch, header)
    if control.ends_transaction:
        machine.end_transaction(
            header.producer_id,
            header.producer_epoch,
            is_commit=control.control_type == ControlType.COMMIT,
        )
