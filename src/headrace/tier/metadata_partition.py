"""One partition of the metadata topic as a node follows it: what is applied, and who waits.

It is ready when everything is applied that was there when it was assigned. Not ready means that
every look-up fails, because an answer that lacks the latest events may be wrong.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.remote.cache import SegmentCache
from headrace.remote.segments import TierError
from headrace.tier.ports import NotReady

_NOT_FOLLOWED: Final = "this node does not follow it"
STOPPED: Final = "the node stops"


class OutcomeUnknown(TierError):
    """A change that was published, and of which this node has not seen what became of it."""


class MetadataPartition:
    """The events of one metadata partition, up to an offset."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.cache = SegmentCache()
        self.next_offset = 0
        """The offset after the last one that was applied."""
        self.saved_offset = 0
        """The same, as of the last snapshot."""
        self.is_loaded = False
        """Whether the snapshot was looked at."""
        self.term: int | None = None
        """That of the subscription's batches; None while it is not read."""
        self.target: int | None = None
        """The high watermark when it was assigned."""
        self.trouble: str | None = None
        """Why it cannot be read, and changes are not worth waiting, if so."""
        self.last_trouble: str | None = None
        self.blocked_until = 0.0
        """When to try again to read a partition in trouble, in loop time."""
        self.delay: str | None = None
        """Why it is not read at the moment; later it is."""
        self.is_stopped = False
        self.users = 0
        """How many changes are under way, for which it is followed if nothing else needs it."""
        self.refused_count = 0
        self._refused: dict[int, TierError] = {}
        """What was refused since the first of the changes under way."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_assigned(self) -> bool:
        return self.term is not None

    @property
    def is_ready(self) -> bool:
        return (
            self.term is not None
            and self.target is not None
            and self.next_offset >= self.target
            and not self.is_stopped
        )

    @property
    def explanation(self) -> str:
        """Why it is not ready."""
        if self.is_stopped:
            why = STOPPED
        elif self.term is None:
            why = self.trouble or self.delay or _NOT_FOLLOWED
        else:
            why = f"it is read up to offset {self.next_offset} of {self.target}"
        return f"metadata partition {self.index}: {why}"

    def check_ready(self) -> None:
        """Raise NotReady unless it is ready."""
        if not self.is_ready:
            raise NotReady(self.explanation)

    def assign(self, term: int, high_watermark: int) -> None:
        """Begin to read it; it is ready when it is read up to the high watermark of now."""
        self.term, self.target = term, high_watermark
        self.trouble = self.delay = None
        self.wake()

    def unassign(self, delay: str | None = None) -> None:
        """Read it no more. What is known of it stays, to go on from there."""
        self.term = self.target = self.trouble = None
        self.delay = delay
        self.wake()

    def block(self, trouble: str, until: float) -> None:
        """Read it no more for some time, because of what is in it."""
        self.unassign()
        self.trouble = self.last_trouble = trouble
        self.blocked_until = until
        self.wake()

    def start_over(self) -> None:
        """Forget everything: the log is not the one that was read."""
        self.cache = SegmentCache()
        self.next_offset = self.saved_offset = 0

    def stop(self) -> None:
        self.is_stopped = True
        self.unassign()

    # Changes under way

    def begin_change(self) -> None:
        self.users += 1

    def end_change(self) -> None:
        self.users -= 1
        if not self.users:
            self._refused.clear()

    def refuse(self, offset: int, error: TierError) -> None:
        """Keep why the event at an offset was refused, for the one who published it."""
        self.refused_count += 1
        if self.users:
            self._refused[offset] = error

    async def wait_ready(self) -> None:
        """Wait until it is ready; raise NotReady if it cannot be read."""
        await self._until(lambda: self.is_ready or self.is_in_trouble)
        self.check_ready()

    async def wait_applied(self, offset: int) -> None:
        """Wait until the event at an offset is applied; raise OutcomeUnknown if it cannot be."""
        await self._until(lambda: self.next_offset > offset or self.is_in_trouble)
        if self.next_offset <= offset:
            raise OutcomeUnknown(
                f"what became of the event at offset {offset} is not known: {self.explanation}"
            )

    def refusal_of(self, offset: int) -> TierError | None:
        """Return why an event was refused that was published by a change under way."""
        return self._refused.pop(offset, None)

    @property
    def is_in_trouble(self) -> bool:
        return self.is_stopped or self.trouble is not None

    def wake(self) -> None:
        """Wake all waiters."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
