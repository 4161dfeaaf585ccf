"""Looking where both clusters are, before records of a partition are copied.

Done at the start, and again whenever something did not go as expected: a broker is gone, a log
ends elsewhere than thought. Where it is not known which leader epoch of the source the target's
last batch has, that batch is compared with the source's: a source that lost records by an unclean
election and got others since is noticed, then or, by that epoch, later.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.mirror.batches import adopt, fingerprints
from headrace.client.mirror.positions import (
    BeginAt,
    Discard,
    Extent,
    GoOn,
    Halt,
    decide,
    explain_other,
    explain_other_topic,
)
from headrace.client.mirror.progress import Copy, Phase
from headrace.client.mirror.raw import (
    ALONE_WAIT_MS,
    END_WAIT_MS,
    Piece,
    append,
    extents,
    fetch_one,
)
from headrace.client.offsets import delete_records
from headrace.client.outcomes import values_of
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.records.errors import RecordsError
from headrace.records.header import read_header
from headrace.wire.mirror_records import Front

CHECKS_AT_ONCE: Final = 16
"""How many last batches are compared at the same time."""
RETURN_SECONDS: Final = 30.0
"""How long a source may end before the target: a new leader does not know all at once."""
FINAL: Final = frozenset(
    {
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Refusals of the target that no retry mends."""


class Looks:
    """Finds out where copies go on."""

    def __init__(self, source: Cluster, target: Cluster, *, skips_lost: bool) -> None:
        self._source = source
        self._target = target
        self._skips_lost = skips_lost
        self._behind_since: dict[Copy, float] = {}
        self._limit = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def look(self, copies: Sequence[Copy]) -> None:
        """Look once. Each copy goes on, halts, or stays to be looked at again."""
        partitions = [copy.partition for copy in copies]
        names = {partition.topic for partition in partitions}
        for name in names:
            self._source.forget(name)
            self._target.forget(name)
        source = await extents(self._source, partitions)
        await self._source.refresh(names)  # they may be those of another topic of the name
        target = await extents(self._target, partitions)
        async with asyncio.TaskGroup() as group:
            for copy in copies:
                here, there = source[copy.partition], target[copy.partition]
                if copy.is_other(self._source.view.topic_id(copy.partition.topic)):
                    self._find_other(copy)
                elif isinstance(here, KafkaError):
                    copy.problem = f"source: {here.message}"
                elif isinstance(there, KafkaError):
                    copy.problem = f"target: {there.message}"
                else:
                    group.create_task(self._settle(copy, here, there))

    async def _settle(self, copy: Copy, source: Extent, target: Extent) -> None:
        copy.source_start, copy.source_end = source
        copy.target_end = target.end
        if copy.goal < 0:
            copy.goal = source.end
        try:
            await begin_inside(self._target, copy, target.end)
            await self._go_on(copy, source, target)
        except KafkaError as error:
            if error.code in FINAL:
                copy.halt(error.message)
            else:
                copy.problem = error.message
        except HeadraceError as error:
            copy.problem = str(error)

    async def _go_on(self, copy: Copy, source: Extent, target: Extent) -> None:
        epoch = -1
        step = decide(source, target, skips_lost=self._skips_lost)
        match step:
            case Halt(reason):
                if target.end > source.end and self._may_return(copy):
                    copy.problem = "the source is behind the target: waiting for its leader"
                    return
                copy.halt(reason)
                return
            case Discard(end, offset):
                values_of(await delete_records(self._target, {copy.partition: end}))
                await self._begin_at(copy, end, offset)
                position = offset
            case BeginAt(offset):
                position = await self._first_base(copy, source, target)
                await self._begin_at(copy, target.end, position)
            case GoOn(position):
                if copy.position == position and copy.last_epoch >= 0:
                    epoch = copy.last_epoch
                elif not target.is_empty:
                    epoch = await self._compare(copy, target)
        self._behind_since.pop(copy, None)
        if copy.phase is Phase.LOOKING:
            copy.position = max(position, source.start)
            copy.expected_end = position
            copy.target_end = max(copy.target_end, position)
            copy.last_epoch = epoch
            copy.phase, copy.problem = Phase.COPYING, ""

    def _may_return(self, copy: Copy) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._behind_since.setdefault(copy, now) < RETURN_SECONDS

    async def _begin_at(self, copy: Copy, end: int, offset: int) -> None:
        """Start the target's log, which is empty, at an offset."""
        leader = await self._target.leader(*copy.partition)
        front = Front(end, offset, copy.source)
        piece = Piece(copy.partition, front, memoryview(b""))
        values_of(await append(self._target, leader.leader_id, [piece]))

    def _find_other(self, copy: Copy) -> None:
        """Halt a copy whose topic is another one at the source, unless that node lags behind."""
        reason = explain_other_topic(copy.partition.topic)
        if self._may_return(copy):
            copy.problem = f"source: {reason}"
        else:
            copy.halt(reason)

    async def _first_base(self, copy: Copy, source: Extent, target: Extent) -> int:
        """Return where the source's first batch begins: before its log, if that begins inside.

        DeleteRecords and a leader's log start may be any offset, and batches are copied whole.
        """
        copy.begins_at = -1
        chunk = memoryview(b"") if source.is_empty else await self._read_source(copy, source.start)
        try:
            base_offset = read_header(chunk).base_offset if chunk else source.start
        except RecordsError:
            return source.start  # whoever copies it says what is wrong
        if not target.end <= base_offset < source.start:
            return source.start
        copy.begins_at = source.start
        return base_offset

    async def _read_source(self, copy: Copy, offset: int) -> memoryview:
        """Return a batch; nothing only where compaction may have removed it."""
        chunk = await fetch_one(
            self._source,
            copy.partition,
            offset,
            bytes_max=1,
            wait_ms=END_WAIT_MS if copy.may_end_early else ALONE_WAIT_MS,
            topic_id=copy.topic_id,
        )
        if chunk or copy.may_end_early:
            return chunk
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"source: it sends nothing at offset {offset}, which it has: still trying; is its tier "
            "slow or away?",
        )

    async def _compare(self, copy: Copy, target: Extent) -> int:
        """Halt a copy whose last batch is another one at the source.

        Return the source's leader epoch of that batch, -1 if it is not known.
        """
        async with self._limit:
            mine = await fetch_one(
                self._target, copy.partition, target.end - 1, bytes_max=1, wait_ms=ALONE_WAIT_MS
            )
            ours = fingerprints(mine)
            # A batch without records only says where the source ended.
            has_records = bool(ours) and read_header(mine).record_count > 0
            if not has_records or ours[0][1].last_offset < copy.source_start:
                return -1
            last = ours[0][1]
            chunk = await self._read_source(copy, max(last.base_offset, copy.source_start))
            try:
                adopted = adopt(chunk, max(last.base_offset, copy.source_start), last.base_offset)
            except RecordsError as error:
                copy.halt(f"{explain_other(last.base_offset)} ({error.message})")
                return -1
        theirs = fingerprints(adopted.records) if adopted is not None else []
        first = theirs[0][1] if theirs else None
        epoch = (
            -1 if adopted is None or first is None else read_header(adopted.records).leader_epoch
        )
        if first == last or (copy.is_compacted and first is not None and first.may_be(last)):
            return epoch
        is_compacted_away = first is None or first.base_offset > last.last_offset
        if not (copy.is_compacted and is_compacted_away):
            copy.halt(explain_other(last.base_offset))
        return -1


async def begin_inside(target: Cluster, copy: Copy, end_offset: int) -> None:
    """Start the target's log inside its first batch, as the source's does, once it can."""
    offset = copy.begins_at
    if 0 <= offset <= end_offset:
        values_of(await delete_records(target, {copy.partition: offset}))
        copy.begins_at = -1
