"""Sending replies once their records are committed: by the watermark of the own leader epoch.

In another epoch the log may have other records at the same offsets, and the high watermark says
nothing of those that were written here (KAFKA-20634). One timer per shard ends the waiting of
clients, however many there are.
"""

import asyncio
from collections.abc import Callable

from headrace.coordinator.journal import Journal, Leadership
from headrace.coordinator.machine import OnError, Told
from headrace.coordinator.replies import REPLIES_AT_ONCE, fail_all, tell
from headrace.coordinator.uncommitted import Uncommitted
from headrace.errors import ErrorCode, KafkaError


class Answering:
    """The replies of one shard, told by its partition when the high watermark moves."""

    def __init__(
        self,
        journal: Journal,
        is_leading: Leadership,
        *,
        timeout_ms: int,
        on_leadership_lost: Callable[[], None],
        on_sync_lost: Callable[[], None],
    ) -> None:
        """Clients wait for `timeout_ms` at most.

        `on_sync_lost` is called if the watermark waits for a disk that failed. Either callback
        takes the replies that wait (`clear`).
        """
        self._journal = journal
        self._is_leading = is_leading
        self._timeout_ms = timeout_ms
        self._on_leadership_lost = on_leadership_lost
        self._on_sync_lost = on_sync_lost
        self._uncommitted = Uncommitted(timeout_ms / 1000)
        self._is_continuing = False
        """Whether committed replies continue in the next turn: there were too many for one."""
        self._expiry: asyncio.TimerHandle | None = None
        """Due when the first client has waited long enough."""

    def add(self, replies: tuple[Told, ...]) -> None:
        """Send replies once everything that is in the log now is committed."""
        if replies:
            now = asyncio.get_running_loop().time()
            self._uncommitted.add(self._journal.log.end_offset, replies, now)
            self.on_progress()

    def clear(self) -> list[OnError]:
        """Send nothing of what waits; return the replies."""
        self._journal.produce_waiters.pop(self, None)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        return self._uncommitted.clear()

    def on_progress(self) -> None:
        """Send some of the replies that are committed by now; the rest follow in a later turn."""
        if not self._is_leading():
            self._on_leadership_lost()
            return
        journal, uncommitted = self._journal, self._uncommitted
        for each in uncommitted.take(journal.log.high_watermark, REPLIES_AT_ONCE):
            tell(each)
        if not uncommitted:
            journal.produce_waiters.pop(self, None)
        elif uncommitted.is_due(journal.log.high_watermark):
            journal.produce_waiters[self] = None
            self._continue_soon()
        elif self._is_sync_lost:
            self._on_sync_lost()
        else:
            journal.produce_waiters[self] = None
            self._watch_expiry()

    @property
    def _is_sync_lost(self) -> bool:
        """Whether the high watermark waits, by flush.messages, for a sync that has failed."""
        log = self._journal.log
        unsynced_count = log.end_offset - log.recovery_point
        return log.failure is not None and unsynced_count >= log.settings.flush_messages

    def _continue_soon(self) -> None:
        if not self._is_continuing:
            self._is_continuing = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._is_continuing = False
        if self._uncommitted:
            self.on_progress()

    # A watermark that stands

    def _watch_expiry(self) -> None:
        until = self._uncommitted.next_expiry
        if self._expiry is None and until is not None:
            self._expiry = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        """Fail the clients that waited too long for replicas; their records may stay."""
        self._expiry = None
        if not self._is_leading() or self._uncommitted.is_due(self._journal.log.high_watermark):
            self._continue()  # nobody has to wait any more
            return
        waiting = self._uncommitted.expire(asyncio.get_running_loop().time())
        if not self._uncommitted:
            self._journal.produce_waiters.pop(self, None)
        self._watch_expiry()
        name = self._journal.name
        message = f"the replicas of {name} did not follow within {self._timeout_ms} ms"
        fail_all(waiting, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
