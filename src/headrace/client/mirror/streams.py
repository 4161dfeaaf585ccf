"""The copy itself: batches from the leaders of the source to the leaders of the target.

    streams = Streams(source, target, looks)
    streams.add(copy)
    await streams.run(until=streams.are_at_goal)

One task reads from each leader of the source, all its partitions in one request. What came is
appended while the next request is on its way, so nothing is appended out of order: whatever goes
wrong with a partition, its later batches are dropped, and it is looked at again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from headrace.client.cluster import MOVED, Cluster
from headrace.client.errors import NotReachable, refusal
from headrace.client.mirror.batches import Adopted, SplitBatch, adopt, filler
from headrace.client.mirror.looking import FINAL, Looks, begin_inside
from headrace.client.mirror.pace import Pace
from headrace.client.mirror.positions import AGAIN, explain_other_topic
from headrace.client.mirror.progress import Copy, Phase
from headrace.client.mirror.raw import (
    ALONE_WAIT_MS,
    END_WAIT_MS,
    WAIT_MS,
    Piece,
    Wanted,
    append,
    fetch,
    fetch_row,
)
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.records.errors import RecordsError
from headrace.wire.messages.fetch_response import PartitionData
from headrace.wire.mirror_records import NO_START, Front

PAUSE_SECONDS: Final = 0.2
"""How long to wait after an error, and between two looks at what there is to do."""
LOOKED_AT_ONCE: Final = 1000


class _Fetched(msgspec.Struct, frozen=True):
    """Batches on their way to the target."""

    copy: Copy
    life: int
    expected_end: int
    adopted: Adopted


class Streams:
    """Copies of partitions, as they go on."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        looks: Looks,
        *,
        bytes_per_second: int | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._looks = looks
        self._pace = Pace(bytes_per_second, asyncio.get_running_loop().time())
        self.copies: dict[TopicPartition, Copy] = {}
        self._readers: dict[int, asyncio.Task[None]] = {}

    def add(self, copy: Copy) -> None:
        self.copies[copy.partition] = copy

    def are_at_goal(self) -> bool:
        """Return whether all is copied that the source had at the first look."""
        return all(copy.is_at_goal for copy in self.copies.values())

    async def run(self, until: Callable[[], bool]) -> None:
        """Copy until a condition holds; raise what a task did not expect."""
        looking: asyncio.Task[None] | None = None
        try:
            while not until():
                if looking is None or looking.done():
                    if looking is not None:
                        looking.result()
                    looking = asyncio.create_task(self._look())
                await self._start_readers()
                tasks = [looking, *self._readers.values()]
                await asyncio.wait(
                    tasks, timeout=PAUSE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for node_id, task in tuple(self._readers.items()):
                    if task.done():
                        del self._readers[node_id]
                        task.result()
        finally:
            await self._stop(looking)

    async def _stop(self, looking: "asyncio.Task[None] | None") -> None:
        tasks = [*self._readers.values(), *([] if looking is None else [looking])]
        self._readers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        """Look at some copies whose position is not known."""
        due = [copy for copy in self.copies.values() if copy.phase is Phase.LOOKING]
        try:
            if due:
                await self._looks.look(due[:LOOKED_AT_ONCE])
        except* HeadraceError as group:
            for copy in due:
                if copy.phase is Phase.LOOKING:
                    copy.problem = str(group.exceptions[0])
        await asyncio.sleep(PAUSE_SECONDS)

    async def _start_readers(self) -> None:
        unknown = {
            copy.partition.topic
            for copy in self.copies.values()
            if copy.phase is Phase.COPYING and self._leader_of(copy) is None
        }
        if unknown:
            try:
                await self._source.refresh(unknown)
            except NotReachable:
                return
        for node_id in {self._leader_of(copy) for copy in self._copying()}:
            if node_id is not None and node_id not in self._readers:
                self._readers[node_id] = asyncio.create_task(self._read(node_id))

    def _copying(self) -> Iterable[Copy]:
        return (copy for copy in self.copies.values() if copy.phase is Phase.COPYING)

    def _leader_of(self, copy: Copy) -> int | None:
        found = self._source.known_leader(*copy.partition)
        return None if found is None else found.leader_id

    async def _read(self, node_id: int) -> None:
        """Copy from one leader until it has no partition of ours any more."""
        appending: asyncio.Task[None] | None = None
        try:
            while group := [copy for copy in self._copying() if self._leader_of(copy) == node_id]:
                fetched = await self._fetch(node_id, group)
                if appending is not None:
                    await appending
                    appending = None
                if fetched:
                    appending = asyncio.create_task(self._append(fetched))
                    byte_count = sum(len(each.adopted.records) for each in fetched)
                    now = asyncio.get_running_loop().time()
                    if (seconds := self._pace.wait_seconds(byte_count, now)) > 0:
                        await asyncio.sleep(seconds)
            if appending is not None:
                await appending
        finally:
            if appending is not None and not appending.done():
                appending.cancel()
                await asyncio.gather(appending, return_exceptions=True)

    # The source

    async def _fetch(self, node_id: int, group: list[Copy]) -> list[_Fetched]:
        """Return what a leader has for copies, which are moved on."""
        group = [copy for copy in group if not self._is_gone(copy)]
        if not group:
            return []
        wanted = {copy.partition: Wanted(copy.position, copy.last_epoch) for copy in group}
        lives = {copy.partition: copy.life for copy in group}
        ids = {copy.partition.topic: copy.topic_id for copy in group}
        try:
            rows = await fetch(self._source, node_id, wanted, wait_ms=WAIT_MS, topic_ids=ids)
        except HeadraceError as error:
            for copy in group:
                self._source.suspect(copy.partition.topic)
                copy.problem = f"source: {error}"
            await asyncio.sleep(PAUSE_SECONDS)
            return []
        fetched: list[_Fetched] = []
        may_wait = True
        for copy in group:
            row = rows.get(copy.partition)
            if row is None or copy.phase is not Phase.COPYING or lives[copy.partition] != copy.life:
                continue
            try:
                adopted = self._take(copy, row)
                if adopted is None and may_wait and self._is_behind(copy, row):
                    may_wait = copy.position >= copy.source_end  # the others are waited for, too
                    adopted = await self._read_on(copy, lives[copy.partition])
            except RecordsError as error:
                way_out = f"; {AGAIN}" if isinstance(error, SplitBatch) else ""
                copy.halt(f"source: {error.message}{way_out}")
                continue
            if adopted is not None:
                if adopted.records:
                    fetched.append(_Fetched(copy, copy.life, copy.expected_end, adopted))
                copy.position, copy.expected_end = adopted.next_offset, adopted.end_offset
                copy.last_epoch = adopted.last_epoch
                self._let_others_first(copy)
        if any(row.error_code for row in rows.values()):
            await asyncio.sleep(PAUSE_SECONDS)
        return fetched

    def _take(self, copy: Copy, row: PartitionData) -> Adopted | None:
        """Return the batches of a row, if it has any; raise RecordsError if they are damaged."""
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            copy.look_again()
        elif row.error_code in MOVED:
            self._source.suspect(copy.partition.topic)
        elif row.error_code:
            error = refusal(row.error_code, None, f"partition {copy.partition}")
            copy.problem = f"source: {error.message}"
        elif row.diverging_epoch.end_offset >= 0:
            copy.halt(
                f"the source has no record of leader epoch {copy.last_epoch} beyond offset "
                f"{row.diverging_epoch.end_offset}, and the target has: the source has lost "
                f"records by an unclean election; {AGAIN}"
            )
        else:
            copy.source_start, copy.source_end = row.log_start_offset, row.high_watermark
            if row.records or copy.position >= row.high_watermark:
                copy.problem = ""
            if row.records:
                return adopt(memoryview(row.records), copy.position, copy.expected_end)
        return None

    def _is_gone(self, copy: Copy) -> bool:
        """Return whether the source has another topic of the name now: a look says what to do."""
        is_other = copy.is_other(self._source.view.topic_id(copy.partition.topic))
        if is_other:
            copy.look_again(f"source: {explain_other_topic(copy.partition.topic)}")
        return is_other

    def _let_others_first(self, copy: Copy) -> None:
        """Put a copy behind the others: a broker fills a response in the order of the request."""
        if self.copies.get(copy.partition) is copy:
            self.copies[copy.partition] = self.copies.pop(copy.partition)

    def _is_behind(self, copy: Copy, row: PartitionData) -> bool:
        """Return whether a source sent nothing, without an error, though its log goes on."""
        is_copying = copy.phase is Phase.COPYING and row.error_code == ErrorCode.NONE
        return is_copying and copy.expected_end < copy.source_end

    async def _read_on(self, copy: Copy, life: int) -> Adopted | None:
        """Return what a source has that sent nothing; raise RecordsError if it is damaged.

        A broker sends nothing if it has no room left in a response, serves one partition of its
        tier at a time, or reads a tier that is slow. So the partition is asked for alone, with
        patience. Nothing even then means nothing yet, unless compaction may have removed the last
        records: then a batch without records ends the target's log where the source's ends.
        """
        end = copy.source_end
        if copy.position >= end:  # batches without records were read up to there
            return Adopted(memoryview(filler(end)), end, end, copy.last_epoch, 1)
        self._let_others_first(copy)
        try:
            row = await fetch_row(
                self._source,
                copy.partition,
                Wanted(copy.position, copy.last_epoch),
                wait_ms=END_WAIT_MS if copy.may_end_early else ALONE_WAIT_MS,
                topic_id=copy.topic_id,
            )
        except HeadraceError:
            return None  # the next fetch says why
        if copy.life != life or copy.phase is not Phase.COPYING:
            return None
        adopted = self._take(copy, row)
        if adopted is not None or not self._is_behind(copy, row) or copy.position >= end:
            return adopted
        if copy.may_end_early and row.high_watermark >= end:
            return Adopted(memoryview(filler(end)), end, end, -1, 1)
        copy.problem = (
            f"source: it sends nothing at offset {copy.position}, though its log goes up to {end}: "
            "still trying; is its tier slow or away?"
        )
        await asyncio.sleep(PAUSE_SECONDS)
        return None

    # The target

    async def _append(self, fetched: list[_Fetched]) -> None:
        """Append what was fetched; a copy of which that fails is looked at again, or halts."""
        groups: dict[int, list[_Fetched]] = {}
        for each in fetched:
            if each.life != each.copy.life:
                continue
            try:
                leader = await self._target.leader(*each.copy.partition)
            except HeadraceError as error:
                each.copy.look_again(f"target: {error}")
            else:
                groups.setdefault(leader.leader_id, []).append(each)
        work: list[Awaitable[None]] = [
            self._append_to(node_id, group) for node_id, group in groups.items()
        ]
        await asyncio.gather(*work)

    async def _append_to(self, node_id: int, group: list[_Fetched]) -> None:
        pieces = [
            Piece(
                each.copy.partition,
                Front(each.expected_end, NO_START, each.copy.source),
                each.adopted.records,
            )
            for each in group
        ]
        try:
            outcomes = await append(self._target, node_id, pieces)
        except HeadraceError as error:
            for each in group:
                self._target.suspect(each.copy.partition.topic)
                each.copy.look_again(f"target: {error}")
            return
        for each in group:
            copy = each.copy
            missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the target left it out")
            outcome = outcomes.get(copy.partition, missing)
            if isinstance(outcome, KafkaError):
                self._refused(copy, outcome)
            else:
                if copy.begins_at >= 0:
                    await self._begin_inside(copy, outcome)
                copy.target_end = max(copy.target_end, outcome)
                copy.copied_bytes += len(each.adopted.records)
                copy.copied_batches += each.adopted.batch_count

    async def _begin_inside(self, copy: Copy, end_offset: int) -> None:
        try:
            await begin_inside(self._target, copy, end_offset)
        except HeadraceError as error:
            copy.look_again(f"target: {error}")

    def _refused(self, copy: Copy, error: KafkaError) -> None:
        if error.code in FINAL:
            copy.halt(f"target: {error.message}")
        else:
            self._target.suspect(copy.partition.topic)
            copy.look_again(f"target: {error.message}")
