"""The parts of a body on their way from a caller's task to obstore's.

The caller's task reads the body itself, so that the body can be closed at once when that task is
cancelled. obstore iterates over the feed, and aborts the upload if that raises.
"""

import asyncio

from headrace.wire.schema import Buffer


class PartFeed:
    """An asynchronous iterator that holds one part."""

    def __init__(self) -> None:
        self.is_closed = False
        self._part: Buffer | None = None
        self._is_ended = False
        self._error: Exception | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._filled = asyncio.Event()

    async def put(self, part: Buffer) -> bool:
        """Hand over a part, and return whether anybody still reads."""
        await self._free.wait()
        if self.is_closed:
            return False
        self._part = part
        self._free.clear()
        self._filled.set()
        return True

    def end(self, error: Exception | None = None) -> None:
        """End the feed after what was handed over, or with an error at once."""
        self._is_ended = True
        self._error = error
        self._filled.set()

    def close(self) -> None:
        """Tell the writer that nobody reads any more."""
        self.is_closed = True
        self._free.set()

    def __aiter__(self) -> "PartFeed":
        return self

    async def __anext__(self) -> Buffer:
        await self._filled.wait()
        if self._error is not None:
            raise self._error
        part, self._part = self._part, None
        if part is None:
            raise StopAsyncIteration
        if not self._is_ended:
            self._filled.clear()
        self._free.set()
        return part
