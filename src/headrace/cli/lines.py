"""Lines of files and of standard input, read in a thread.

A thread reads because a pipe or a person may make it wait: earlier lines are sent in the meantime,
and Ctrl-C ends the command at once. It reads the file descriptor, not Python's buffer over it: a
thread that waits in the buffer would keep the interpreter from exiting.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Thread
from typing import Final

from headrace.errors import HeadraceError

STDIN: Final = Path("-")
CHUNK_BYTES: Final = 256 * 1024
CHUNKS_WAITING_MAX: Final = 4


class UnreadableInput(HeadraceError):
    """A file, or standard input, that cannot be read."""


async def read_lines(paths: list[Path]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of all files in turn, without line ends, as many at a time as arrived.

    Raise UnreadableInput if one cannot be read.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue(CHUNKS_WAITING_MAX)

    def hand_over(chunk: list[bytes] | OSError | None) -> None:
        asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

    def read() -> None:
        try:
            for path in paths:
                for lines in _chunks(path):
                    hand_over(lines)
            hand_over(None)
        except OSError as error:
            hand_over(error)
        except (RuntimeError, asyncio.CancelledError):
            return  # the command has ended before its input did

    Thread(target=read, name="lines", daemon=True).start()
    while (chunk := await chunks.get()) is not None:
        if isinstance(chunk, OSError):
            where = chunk.filename or "standard input"
            raise UnreadableInput(f"{where}: cannot be read: {chunk.strerror}")
        yield chunk


def _chunks(path: Path) -> Iterator[list[bytes]]:
    descriptor = sys.stdin.fileno() if path == STDIN else os.open(path, os.O_RDONLY)
    rest = b""
    try:
        while data := os.read(descriptor, CHUNK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                yield lines
    finally:
        if path != STDIN:
            os.close(descriptor)
    if rest:
        yield [rest]
