"""Rebuild a machine from its log: every record of the partition, in order."""

import asyncio
import logging
from collections.abc import Callable
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
"""How many bytes are read from the log at once."""
SLICE_RECORDS_MAX: Final = 100
SLICE_SECONDS_MAX: Final = 0.005
"""How many records are replayed, and for how long, before other tasks get a turn."""
UNREADABLE_LINES_MAX: Final = 10
"""How many unreadable records the node logs by name per load."""

logger = logging.getLogger(__name__)


class UnreadableLog(HeadraceError):
    """A log with an unreadable record that may concern any id."""


class LeadershipLost(HeadraceError):
    """This node stopped leading the partition while it was loaded."""


class Loaded(NamedTuple):
    """The result of a load."""

    record_count: int
    set_aside: SetAside


async def replay_log(
    log: Log,
    machine: Machine,
    types: RecordTypes,
    is_leading: Callable[[], bool] = lambda: True,
) -> Loaded:
    """Replay a log into an empty machine.

    Uncommitted records are replayed too: they are in the leader's log, so they will be committed as
    long as it leads, and replies wait for that. Raise LeadershipLost as soon as it does not, as
    the log may be cut and continued by others then. Raise HeadraceError if a record cannot be read
    and may concern any id.
    """
    loading = _Loading(machine, log.folder, is_leading)
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = await log.read_cold(offset, LOAD_BYTES, up_to=log.end_offset)
        loading.check_leading()
        before = offset
        for position, header in read_headers(chunk):
            batch = chunk[position : position + header.size_bytes]
            offset = header.last_offset + 1
            if not header.is_control:
                for record in scan_record_batch(batch, header, types):
                    if (failure := loading.take(record)) is not None:
                        # It may be damaged, and then it may concern any id.
                        check_crc(batch, header)
                        loading.pass_over(failure)
                    if loading.is_slice_over():
                        await loading.pause()
            elif header.record_count:  # otherwise compaction has emptied it
                replay_marker(machine, batch, header)
        if offset == before:
            break  # compaction removed the last records before the end
        await loading.pause()
    loading.tell_unnamed()
    return Loaded(loading.record_count, loading.set_aside)


class _Loading:
    """A load in progress."""

    def __init__(self, machine: Machine, name: str, is_leading: Callable[[], bool]) -> None:
        self.record_count = 0
        self.set_aside = SetAside()
        self._machine = machine
        self._name = name
        self._is_leading = is_leading
        self._unreadable_count = 0
        self._loop = asyncio.get_running_loop()
        self._slice_from = self._loop.time()
        self._slice_records = 0

    def take(self, record: CoordinatorRecord | UnreadableRecord) -> UnreadableRecord | None:
        """Replay a record; return it as unreadable if it cannot be read or replayed.

        A record that cannot be replayed is well formed but says something that no coordinator
        writes, such as a state that does not exist. It affects its own id only.
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
        self.check_leading()
        self._slice_records, self._slice_from = 0, self._loop.time()

    def check_leading(self) -> None:
        """Raise LeadershipLost if this node no longer leads the partition."""
        if not self._is_leading():
            raise LeadershipLost(f"{self._name} is led by another node, or in another epoch")

    def pass_over(self, record: UnreadableRecord) -> None:
        offset, _, reason, key = record
        self._unreadable_count += 1
        is_named = self._unreadable_count <= UNREADABLE_LINES_MAX
        if key is None:
            if is_named:
                logger.warning(
                    "%s: skipping the record at offset %d: %s", self._name, offset, reason
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
                "refused until another record replaces it, or the group is deleted",
                *(self._name, offset, id_, reason, id_),
            )

    def tell_unnamed(self) -> None:
        """Log how many unreadable records were skipped without a line of their own."""
        if (unnamed := self._unreadable_count - UNREADABLE_LINES_MAX) > 0:
            logger.warning("%s: %d more records cannot be read", self._name, unnamed)


def replay_marker(machine: Machine, batch: memoryview, header: BatchHeader) -> None:
    """Pass a control batch to the machine if it ends a transaction."""
    control = read_control(batch, header)
    if control.ends_transaction:
        machine.end_transaction(
            header.producer_id,
            header.producer_epoch,
            is_commit=control.control_type == ControlType.COMMIT,
        )
