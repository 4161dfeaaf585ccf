"""Removal of deleted files, once no reader can use them any more.

Segments dropped by retention or compaction, and folders of deleted partitions, were renamed and are
out of use; file.delete.delay.ms later they are removed. The delay counts from when they are first
seen here, so a restart begins it again.
"""

import asyncio

from headrace import config
from headrace.log.cutting import find_deleted, remove_files
from headrace.log.log import Log
from headrace.server.broker import Broker


class Removal:
    """Remembers when deleted folders were first seen, and removes due ones in threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._seen_ms: dict[str, int] = {}

    async def remove_files(self, log: Log) -> int:
        """Remove the deleted files of a log that are due; return how many."""
        return await asyncio.get_running_loop().run_in_executor(
            None, _remove_files, log, self._broker.clock.now_ms()
        )

    async def remove_folders(self) -> int:
        """Remove the folders of deleted partitions that are due; return how many."""
        folder, now_ms = self._broker.folder, self._broker.clock.now_ms()
        loop = asyncio.get_running_loop()
        names = await loop.run_in_executor(None, folder.deleted_folders)
        self._seen_ms = {name: self._seen_ms.get(name, now_ms) for name in names}
        delay_ms = self._broker.settings[config.LOG_SEGMENT_DELETE_DELAY_MS]
        due = [name for name, since_ms in self._seen_ms.items() if now_ms - since_ms >= delay_ms]
        for name in due:
            await loop.run_in_executor(None, folder.disk.remove_folder, name)
            del self._seen_ms[name]
        return len(due)


def _remove_files(log: Log, now_ms: int) -> int:
    try:
        due = find_deleted(log, now_ms)
        if due:
            remove_files(log.disk, due)
    except FileNotFoundError:
        return 0  # the whole folder was renamed in the meantime and is removed as one
    return len(due)
