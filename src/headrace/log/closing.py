"""Closing logs. Many are made durable together: each alone would be synced file by file.

First everything is written, the small files under temporary names, and the disk is synced; then
they take their places, and it is synced again. A crash in between leaves what was there before.
"""

import logging
from collections.abc import Iterable
from typing import Final

from headrace.log.disk import TEMPORARY_SUFFIX, Disk
from headrace.log.log import Log

MANY_LOGS: Final = 20

logger = logging.getLogger(__name__)


def close_all(disk: Disk, logs: Iterable[Log]) -> bool:
    """Close logs; block until they are on disk. Return whether all could be."""
    # A log that has failed may have files of which a sync failed: the disk would not tell again.
    failed: list[Log] = []
    sound: list[Log] = []
    for log in logs:
        (sound if log.failure is None else failed).append(log)
    are_closed = [_close(log) for log in failed]
    if len(sound) < MANY_LOGS:
        are_closed += [_close(log) for log in sound]
    else:
        are_closed.append(_close_together(disk, sound))
    return all(are_closed)


def _close(log: Log) -> bool:
    if log.is_being_cut:
        logger.error("%s is not closed cleanly: its truncation has not ended", log.folder)
        return False
    try:
        log.close()
    except OSError as error:
        return _report(log, error)
    return True


def _close_together(disk: Disk, logs: list[Log]) -> bool:
    closings = [_Closing(log) for log in logs]
    try:
        for each in closings:
            each.stage()
        disk.sync_all()
        for each in closings:
            each.put_in_place()
        disk.sync_all()
    except OSError as error:
        logger.error("the logs were not closed cleanly: %s", error)
        return False
    sound = [each.log for each in closings if each.is_sound]
    for log in sound:
        log.end_close()
    return len(sound) == len(logs)


class _Closing:
    """A log that is being closed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_sound = True
        self._paths: list[str] = []

    def stage(self) -> None:
        """Write everything, or record the failure."""
        try:
            self._paths = self.log.begin_close().stage()
        except OSError as error:
            self.is_sound = _report(self.log, error)

    def put_in_place(self) -> None:
        """Rename the durable files to their final names."""
        try:
            for path in self._paths:
                self.log.disk.rename(path + TEMPORARY_SUFFIX, path)
        except OSError as error:
            self.is_sound = _report(self.log, error)


def _report(log: Log, error: OSError) -> bool:
    logger.error("%s was not closed cleanly: %s", log.folder, error)
    return False
