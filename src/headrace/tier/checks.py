"""Checking the batches of chunks in memory, once, before anybody gets them.

A chunk may begin within a batch. Where the first whole one is, is known to a reader, who comes from
an index, and to the check of the chunk before: so chunks that were fetched ahead are checked ahead.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.records.header import LENGTH_AT, LENGTH_PREFIX_BYTES
from headrace.remote.fingerprints import decode_fingerprints
from headrace.remote.indexes import DamagedSegment
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import RemoteSegment, SegmentId
from headrace.tier.batches import SoundBatches
from headrace.tier.fills import Fills

CHECKED_AT_ONCE_MAX: Final = 32 * 1024
"""How many bytes are checked on the loop; more are by a thread."""

_Key = tuple[SegmentId, int]


class Checked(NamedTuple):
    """What a check found in a chunk."""

    begin: int
    """Where it began in the segment."""
    end: int
    """Up to where batches are sound."""
    problem: DamagedSegment | None
    is_disordered: bool = False


class Checks:
    """What is known of the chunks that are held."""

    def __init__(self, held: Mapping[_Key, memoryview], chunk_bytes: int) -> None:
        self._held = held
        self._chunk_bytes = chunk_bytes
        self._sound_from: dict[_Key, int] = {}
        """The batch of each chunk from which on all that are whole are sound."""
        self._starts: dict[_Key, int] = {}
        """Where the first batch of chunks begins that are not checked yet."""
        self._crossing: dict[_Key, tuple[int, int]] = {}
        """Where the batch begins and ends that chunks end within."""
        self._sound_crossings: set[_Key] = set()
        """The chunks of which that one was checked, too."""
        self._disordered: dict[_Key, DamagedSegment] = {}
        """The chunks whose batches are out of place."""
        self._running: Fills[_Key, Checked] = Fills()

    def on_held(self, segment: RemoteSegment, number: int) -> None:
        """Check a chunk that came, if it is known where its first batch begins."""
        start = 0 if number == 0 else self._starts.get((segment.id, number))
        if start is not None:
            self._begin(segment, number, start)

    def on_dropped(self, key: _Key) -> None:
        """Forget a chunk."""
        self._sound_from.pop(key, None)
        self._starts.pop(key, None)
        self._starts.pop((key[0], key[1] + 1), None)
        self._crossing.pop(key, None)
        self._disordered.pop(key, None)
        self._sound_crossings.discard(key)

    async def sound(self, segment: RemoteSegment, begin: int, found: memoryview) -> memoryview:
        """Return bytes that begin with a batch at a position, without what is damaged.

        Raise DamagedSegment if nothing is left.
        """
        at = begin
        while (checked := await self._from(segment, at)) is not None:
            if checked.problem is not None:
                return _cut(checked, begin, found)
            key = segment.id, at // self._chunk_bytes
            if key[1] * self._chunk_bytes + len(self._held[key]) >= begin + len(found):
                return found
            crossing = self._crossing.get(key)
            if crossing is None:
                break
            first, at = crossing
            if at > begin + len(found):
                return found  # which ends within that batch
            if key not in self._sound_crossings:
                checked = await _check(segment, found[first - begin : at - begin], first)
                if checked.problem is not None:
                    return _cut(checked, begin, found)
                if key in self._crossing:
                    self._sound_crossings.add(key)
            if at == begin + len(found):
                return found
        return _cut(await _check(segment, found, begin), begin, found)

    async def _from(self, segment: RemoteSegment, begin: int) -> Checked | None:
        """Check a chunk from a batch on, unless that was done; None if it is not held."""
        number = begin // self._chunk_bytes
        key = segment.id, number
        while key in self._held:
            if key in self._disordered:
                return Checked(begin, begin, self._disordered[key])
            if begin >= self._sound_from.get(key, segment.size_bytes):
                return Checked(begin, begin, None)
            self._begin(segment, number, begin)
            checked = await self._running.wait(key)
            if begin >= checked.begin and (checked.problem is not None or key in self._held):
                return checked
        return None

    async def close(self) -> None:
        """Cancel checks that are under way."""
        await self._running.stop()

    def _begin(self, segment: RemoteSegment, number: int, begin: int) -> None:
        key = segment.id, number
        if key not in self._running:
            self._running.begin(key, self._run(segment, number, begin))

    async def _run(self, segment: RemoteSegment, number: int, begin: int) -> Checked:
        key = segment.id, number
        chunk = self._held.get(key)
        if chunk is None:
            return Checked(segment.size_bytes, segment.size_bytes, None)
        view = chunk[begin - number * self._chunk_bytes :]
        checked = await _check(segment, view, begin)
        if checked.is_disordered and checked.problem and self._held.get(key) is chunk:
            self._disordered[key] = checked.problem
        if checked.problem is None and self._held.get(key) is chunk:
            self._sound_from[key] = min(begin, self._sound_from.get(key, begin))
            self._go_on(segment, number, checked.end, view[checked.end - begin :])
        return checked

    def _go_on(self, segment: RemoteSegment, number: int, end: int, rest: memoryview) -> None:
        """Check the chunk with the first batch behind one that ends with part of a batch."""
        start = end
        if rest:
            if len(rest) < LENGTH_PREFIX_BYTES:
                return
            start += LENGTH_PREFIX_BYTES + int.from_bytes(rest[LENGTH_AT:LENGTH_PREFIX_BYTES])
        self._crossing[segment.id, number] = end, start
        following = segment.id, start // self._chunk_bytes
        if start < segment.size_bytes and following[1] > number:
            self._starts[following] = start
            if following in self._held and following not in self._sound_from:
                self._begin(segment, following[1], start)


async def _check(segment: RemoteSegment, view: memoryview, begin: int) -> Checked:
    """Check bytes that begin with a batch."""
    check = SoundBatches(segment, view, begin)
    if len(view) == segment.size_bytes:
        written = decode_fingerprints(segment.custom_metadata)
        if written is not None and ObjectKind.LOG in written:
            check.crc32c = written[ObjectKind.LOG].crc32c
    if len(view) <= CHECKED_AT_ONCE_MAX:
        check.run()
    else:
        await asyncio.get_running_loop().run_in_executor(None, check.run)
    return Checked(begin, begin + check.sound_bytes, check.problem, check.is_disordered)


def _cut(checked: Checked, begin: int, found: memoryview) -> memoryview:
    if checked.problem is None:
        return found
    if checked.end <= begin:
        raise checked.problem
    return found[: checked.end - begin]
