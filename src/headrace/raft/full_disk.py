"""A disk without room for the metadata log: its errors, and retries of the disk.

A write that finds no room has changed nothing, so it can be retried once there is. A failed sync is
different, whatever its reason: the kernel forgets what it could not write, so that is not handled
here and stops the node.
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.ids import BrokerId as NodeId
from headrace.raft.errors import DiskFull

SPACE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
RETRY_MS_FIRST: Final = 100
"""The first wait before the disk is retried; each further wait doubles."""
_LONG_AGO_MS: Final = -(2**53)

logger = logging.getLogger(__name__)


class OutOfSpace(OSError):
    """A write found no room, and the storage is unchanged: it can be retried."""


@contextmanager
def naming_lack_of_space() -> Iterator[None]:
    """Raise an OSError for want of room as OutOfSpace, and any other as it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in SPACE_ERRORS:
            raise
        raise OutOfSpace(error.errno, error.strerror, error.filename) from error


class FullDisk:
    """Tracks whether the disk of a node is full, with a log line when that starts and ends.

    If a disk is full again right after it had room, others write to it: the waits continue from
    where they were, so that it is neither retried nor logged at a high rate.
    """

    def __init__(self, node: NodeId, retry_ms_max: int) -> None:
        self.reason: str | None = None
        """What the disk said when it was last tried; None while it has room."""
        self._node = node
        self._retry_ms_max = retry_ms_max
        self._wait_ms = 0
        self._full_since_ms = _LONG_AGO_MS
        self._room_since_ms = _LONG_AGO_MS

    def note_full(self, error: OutOfSpace, now_ms: int) -> int:
        """Record a write that found no room, and return when to retry."""
        if self.reason is None:
            self._full_since_ms = now_ms
            if now_ms - self._room_since_ms >= self._retry_ms_max:
                self._wait_ms = 0
            logger.error(
                "node %s has no room for its metadata log and refuses changes until it has; "
                "reads continue: %s",
                self._node,
                error,
            )
        self.reason = str(error)
        longer_ms = max(2 * self._wait_ms, RETRY_MS_FIRST)
        self._wait_ms = min(longer_ms, self._retry_ms_max)
        return now_ms + self._wait_ms

    def note_room(self, now_ms: int) -> None:
        """Record that a write that had found no room is stored."""
        self.reason = None
        self._room_since_ms = now_ms
        logger.info(
            "node %s has room for its metadata log again after %.1f s, and takes changes",
            self._node,
            (now_ms - self._full_since_ms) / 1000,
        )

    def refusal(self) -> DiskFull:
        """Return the error for requests that need room; only while the disk is full."""
        assert self.reason is not None
        return DiskFull(self._node, self.reason)
