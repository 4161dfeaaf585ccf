"""Notices when the event loop stands still, which holds up every client, and says in which code.

A thread asks the loop for a sign of life, and looks at the stack of the loop's thread when none has
come for headrace.loop.stall.warn.ms. The log line also says how long the loop's thread was on a
processor and, on Linux, how long it waited for one: what is left was spent waiting for a disk or
for the interpreter's lock, and a machine that is too busy is told from a loop that is.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from types import FrameType
from typing import Final

from headrace.broker.counters import Counters

LOOKS_PER_LIMIT: Final = 4
"""How often the loop is asked within the time that counts as a stall."""
NS_PER_MS: Final = 1_000_000
PACKAGE: Final = PurePath(__file__).parent.parent
UNKNOWN_PLACE: Final = "code that did not let other threads run"

logger = logging.getLogger(__name__)


class LoopWatch:
    """Watches the loop that it is started on."""

    def __init__(self, counters: Counters, stall_ms: int) -> None:
        self._counters = counters
        self._stall_ns = stall_ms * NS_PER_MS
        self._alive = threading.Event()
        self._alive_ns = 0
        self._is_stopped = threading.Event()

    def start(self) -> None:
        """Watch the running loop; a stall time of zero watches nothing."""
        if self._stall_ns:
            arguments = asyncio.get_running_loop(), threading.current_thread()
            threading.Thread(
                target=self._watch, args=arguments, name="loop-watch", daemon=True
            ).start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._alive.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        usage = _Usage(thread)
        stall_seconds = self._stall_ns / 1e9
        while not self._is_stopped.wait(stall_seconds / LOOKS_PER_LIMIT):
            self._alive.clear()
            asked_ns, used = time.monotonic_ns(), usage.read()
            try:
                loop.call_soon_threadsafe(self._on_alive)
            except RuntimeError:
                return  # the loop is closed
            place = UNKNOWN_PLACE
            if not self._alive.wait(stall_seconds):
                place = explain_place(sys._current_frames().get(usage.thread_id))
                self._alive.wait()
            took_ns = self._alive_ns - asked_ns
            if took_ns >= self._stall_ns and not self._is_stopped.is_set():
                running_ns, queued_ns = (
                    min(now - before, took_ns)
                    for now, before in zip(usage.read(), used, strict=True)
                )
                self._counters.loop_stalls += 1
                self._counters.loop_stall_ns += took_ns
                logger.warning(
                    "the event loop stood still for %d ms (on a processor %d ms, waiting for one "
                    "%d ms) in %s",
                    *(each // NS_PER_MS for each in (took_ns, running_ns, queued_ns)),
                    place,
                )

    def _on_alive(self) -> None:
        self._alive_ns = time.monotonic_ns()
        self._alive.set()


class _Usage:
    """What a thread has had of the machine's processors."""

    def __init__(self, thread: threading.Thread) -> None:
        assert thread.ident is not None
        self.thread_id = thread.ident
        self._clock = time.pthread_getcpuclockid(thread.ident)
        self._scheduler = Path(f"/proc/self/task/{thread.native_id}/schedstat")

    def read(self) -> tuple[int, int]:
        """Return the nanoseconds on a processor, and those waiting for one, zero if unknown."""
        queued_ns = 0
        with suppress(OSError, ValueError, IndexError):
            queued_ns = int(self._scheduler.read_text().split()[1])
        return time.clock_gettime_ns(self._clock), queued_ns


def explain_place(frame: FrameType | None) -> str:
    """Return the handler and the innermost function of ours that a thread is in."""
    ours = list(_frames_of_ours(frame))
    if not ours:
        return "code that is not Headrace's"
    places = [_name(ours[0])]
    handler = next((each for each in ours if each.f_code.co_name.startswith("handle_")), None)
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
