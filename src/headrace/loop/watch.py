"""Detection of event loop stalls, which delay every client, and of the code that causes them.

A timer on the loop beats twice within headrace.loop.stall.warn.ms; a late beat shows a stall. A
thread checks for missing beats and, if one is missing, captures the stack of the loop's thread. The
log line also has how long the loop's thread was on a processor and, on Linux, how long it waited
for one: the rest was spent waiting for a disk or for the interpreter's lock. This distinguishes a
busy machine from a busy loop.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath
from types import FrameType
from typing import Final

from headrace.loop.counters import Counters

BEATS_PER_LIMIT: Final = 2
"""Beats of the loop within the duration of a stall."""
NS_PER_MS: Final = 1_000_000
PACKAGE: Final = PurePath(__file__).parent.parent
NO_DESCRIPTOR: Final = -1
HANDLER: Final = "handle"
"""The entry of every module of `api`."""
UNKNOWN_PLACE: Final = "code that did not let other threads run"

logger = logging.getLogger(__name__)


class LoopWatch:
    """Watches the loop that it is started on."""

    def __init__(self, counters: Counters, stall_ms: int) -> None:
        self._counters = counters
        self._stall_ns = stall_ms * NS_PER_MS
        self._beat_seconds = stall_ms / 1000 / BEATS_PER_LIMIT
        self._due_ns = 0
        """When the next beat is due."""
        self._place: str | None = None
        """The code that the loop ran when a beat was missing."""
        self._is_stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._usage: _Usage
        self._used: tuple[int, int]
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Watch the running loop; a stall time of zero disables the watch."""
        if not self._stall_ns:
            return
        self._loop = asyncio.get_running_loop()
        self._usage = _Usage()
        self._schedule(time.monotonic_ns())
        thread_id = threading.get_ident()
        threading.Thread(
            target=self._watch, args=(thread_id,), name="loop-watch", daemon=True
        ).start()

    def stop(self) -> None:
        self._is_stopped.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._usage.close()

    # On the loop

    def _schedule(self, now_ns: int) -> None:
        self._used = self._usage.read()
        self._due_ns = now_ns + int(self._beat_seconds * 1e9)
        self._timer = self._loop.call_later(self._beat_seconds, self._beat)

    def _beat(self) -> None:
        now_ns = time.monotonic_ns()
        late_ns = now_ns - self._due_ns
        if late_ns >= self._stall_ns:
            self._report(late_ns)
        self._place = None
        self._schedule(now_ns)

    def _report(self, late_ns: int) -> None:
        running_ns, queued_ns = (
            min(now - before, late_ns)
            for now, before in zip(self._usage.read(), self._used, strict=True)
        )
        self._counters.loop_stalls += 1
        self._counters.loop_stall_ns += late_ns
        logger.warning(
            "the event loop stood still for %d ms (on a processor %d ms, waiting for one "
            "%d ms) in %s",
            *(each // NS_PER_MS for each in (late_ns, running_ns, queued_ns)),
            self._place or UNKNOWN_PLACE,
        )

    # In a thread

    def _watch(self, thread_id: int) -> None:
        while not self._is_stopped.wait(self._stall_ns / 1e9):
            if time.monotonic_ns() - self._due_ns > self._stall_ns // 2:
                self._place = explain_place(sys._current_frames().get(thread_id))


class _Usage:
    """The processor time of the thread that creates and reads this."""

    def __init__(self) -> None:
        self._scheduler = NO_DESCRIPTOR
        with suppress(OSError):
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._scheduler = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> tuple[int, int]:
        """Return the nanoseconds on a processor, and those waiting for one, zero if unknown."""
        queued_ns = 0
        if self._scheduler != NO_DESCRIPTOR:
            with suppress(OSError, ValueError, IndexError):
                queued_ns = int(os.pread(self._scheduler, 100, 0).split()[1])
        return time.thread_time_ns(), queued_ns

    def close(self) -> None:
        if self._scheduler != NO_DESCRIPTOR:
            os.close(self._scheduler)
            self._scheduler = NO_DESCRIPTOR


def explain_place(frame: FrameType | None) -> str:
    """Return the handler and the innermost function of ours that a thread is in."""
    ours = list(_frames_of_ours(frame))
    if not ours:
        return "code that is not Headrace's"
    places = [_name(ours[0])]
    handler = next((each for each in ours if each.f_code.co_name == HANDLER), None)
    if handler is not None and handler is not ours[0]:
        places.append(_name(handler))
    return ", called by ".join(places)


def _frames_of_ours(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if PurePath(frame.f_code.co_filename).is_relative_to(PACKAGE):
            yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> str:
    path = PurePath(frame.f_code.co_filename).relative_to(PACKAGE)
    return f"{frame.f_code.co_name} ({path.as_posix()}:{frame.f_lineno})"
