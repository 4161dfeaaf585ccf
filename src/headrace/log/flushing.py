"""The part of a flush that waits for the disk, and so runs in a thread."""

from typing import NamedTuple

from headrace.log.disk import Disk, DiskFile


class LostWrites(OSError):
    """A sync that failed: what was written since the last one must count as lost.

    More space does not bring it back, so this is for good, whatever the error's number is.
    """


class Flush(NamedTuple):
    """What one flush makes durable; meanwhile the loop only appends to these files."""

    disk: Disk
    folder: str
    files: list[DiskFile]
    snapshots: list[tuple[str, bytes]]
    """Path and content of each."""
    epochs: tuple[str, bytes] | None
    """Path and content, if the leader epochs have changed."""

    def run(self) -> None:
        """Do it; OSError if the disk fails. What retention removed meanwhile is passed over."""
        for file in self.files:
            try:
                file.sync()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise LostWrites(*error.args, error.filename) from error
        for path, data in self.snapshots if self.epochs is None else [*self.snapshots, self.epochs]:
            self.disk.replace(path, data)
        self.disk.sync_folder(self.folder)
