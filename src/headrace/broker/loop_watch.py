"""Notices when the event loop stands still, which holds up every client, and says in which code.

A thread asks the loop for a sign of life, and looks at the stack of the loop's thread when none has
come for headrace.loop.stall.warn.ms. The log line has the time on the clock and the CPU time of the
loop's thread: a stall without CPU time was spent waiting for a disk, or for a processor.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import PurePath
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
            arguments = asyncio.get_running_loop(), threading.get_ident()
            threading.Thread(
                target=self._watch, args=arguments, name="loop-watch", daemon=True
            ).start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._alive.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        cpu_clock = time.pthread_getcpuclockid(thread_id)
        stall_seconds = self._stall_ns / 1e9
        while not self._is_stopped.wait(stall_seconds / LOOKS_PER_LIMIT):
            self._alive.clear()
            asked_ns, cpu_ns = time.monotonic_ns(), time.clock_gettime_ns(cpu_clock)
            try:
                loop.call_soon_threadsafe(self._on_alive)
            except RuntimeError:
                return  # the loop is closed
            place = UNKNOWN_PLACE
            if not self._alive.wait(stall_seconds):
                place = explain_place(sys._current_frames().get(thread_id))
                self._alive.wait()
            took_ns = self._alive_ns - asked_ns
            if took_ns >= self._stall_ns and not self._is_stopped.is_set():
                cpu_ns = time.clock_gettime_ns(cpu_clock) - cpu_ns
                self._report(took_ns, min(cpu_ns, took_ns), place)

    def _on_alive(self) -> None:
        self._alive_ns = time.monotonic_ns()
        self._alive.set()

    def _report(self, took_ns: int, cpu_ns: int, place: str) -> None:
        self._counters.loop_stalls += 1
        self._counters.loop_stall_ns += took_ns
        logger.warning(
            "the event loop stood still for %d ms, %d ms of them on a processor, in %s",
            *(took_ns // NS_PER_MS, cpu_ns // NS_PER_MS, place),
        )


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
