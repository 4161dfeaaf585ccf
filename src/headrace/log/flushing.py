"""The part of a flush that waits for the disk, and so runs in a thread."""

from contextlib import suppress
from typing import NamedTuple

from headrace.log.disk import Disk, DiskFile


class Flush(NamedTuple):
    """What one flush makes durable; meanwhile the loop only appends to these files."""

    disk: Disk
    folder: str
    files: list[DiskFile]
    small_files: list[tuple[str, bytes]]
    """Path and content of what is written whole: snapshots and the epochs."""

    def run(self) -> None:
        """Do it; OSError if the disk fails. What retention removed meanwhile is passed over."""
        for file in self.files:
            with suppress(FileNotFoundError):
                file.sync()
        for path, data in self.small_files:
            self.disk.replace(path, data)
        self.disk.sync_folder(self.folder)
