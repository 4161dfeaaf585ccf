"""Snapshots of the metadata partitions that a node follows, as files in its data folder.

One file per partition, so that what has not changed is not written again, and a damaged one costs
no more than reading that partition from its start. Files are read, written, encoded and decoded in
threads, and replaced atomically.
"""

import asyncio
import logging
from typing import Final

from headrace.log.disk import Disk
from headrace.remote.cache import SegmentCache
from headrace.remote.snapshot import (
    Head,
    InvalidSnapshot,
    Piece,
    decode_snapshot,
    encode_snapshot,
    pieces_of,
)

logger = logging.getLogger(__name__)

FOLDER: Final = "remote-log-metadata"
SUFFIX: Final = ".snapshot"


class MetadataSnapshots:
    """The snapshots of one node."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._is_failing = False

    async def load(self, partition: int, log_id: bytes) -> tuple[SegmentCache, int] | None:
        """Return what a snapshot has, and the offset after it; None if there is no usable one."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._load, partition, log_id)

    def _load(self, partition: int, log_id: bytes) -> tuple[SegmentCache, int] | None:
        path = path_of(partition)
        try:
            head, cache = decode_snapshot(self._disk.read(path))
            if (head.log_id, head.partition) != (log_id, partition):
                raise InvalidSnapshot("it belongs to another log")
            return cache, head.next_offset
        except FileNotFoundError:
            return None
        except (OSError, InvalidSnapshot) as error:
            logger.warning(
                "the snapshot %s is not used, all events are read instead: %s", path, error
            )
            return None

    async def save(
        self, partition: int, log_id: bytes, next_offset: int, cache: SegmentCache
    ) -> bool:
        """Write a snapshot of a cache as it is at the time of the call; False if that fails."""
        head, pieces = Head(log_id, partition, next_offset), pieces_of(cache)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._save, head, pieces)
        except OSError as error:
            if not self._is_failing:
                logger.warning("snapshots of remote segments cannot be written: %s", error)
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    def _save(self, head: Head, pieces: list[Piece]) -> None:
        self._disk.make_folder(FOLDER)
        self._disk.replace(path_of(head.partition), encode_snapshot(head, pieces))


def path_of(partition: int) -> str:
    """Return the path of a snapshot in the data folder."""
    return f"{FOLDER}/{partition}{SUFFIX}"
