"""The pool of names under which a driver writes batches.

Every name has its own transactional ids, which brokers remember for a week, so a job that writes
every few seconds must not create new ones each time. A name belongs to one write at a time: a write
takes it out of the pool, and returns it only on success. A name that is not returned, because its
process died, is never used again.

Names are empty files in the folder that Spark gives one driver, and removes with it. So no two
drivers share a name, and processes of one driver coordinate through the file system: the one that
removes a file owns the name.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from headrace.spark.sink.driver import driver_folder
from headrace.spark.sink.journal_partition import BATCH_WRITE_PREFIX

FOLDER: Final = "headrace-writes"
REUSED_WITHIN_SECONDS: Final = 3 * 60 * 60
"""A name that was idle for longer is left alone: its journal may be dropped at any time."""
_CLUSTER_LENGTH: Final = 16


class WriteName(NamedTuple):
    """A name, and the number that the next batch under it has."""

    name: str
    batch: int = 0


def take_name(cluster: str, environment: Mapping[str, str] = os.environ) -> WriteName:
    """Return a name for a write to a cluster that no other write has."""
    folder = _folder(cluster, environment)
    with contextlib.suppress(OSError):
        for file in sorted(folder.iterdir()) if folder is not None else ():
            with contextlib.suppress(FileNotFoundError):  # somebody else has it
                age_seconds = time.time() - file.stat().st_mtime
                file.unlink()
                name, _, batch = file.name.rpartition(".")
                if age_seconds < REUSED_WITHIN_SECONDS and batch.isdecimal():
                    return WriteName(name, int(batch))
    return WriteName(f"{BATCH_WRITE_PREFIX}{uuid4()}")


def give_name_back(
    cluster: str, name: WriteName, environment: Mapping[str, str] = os.environ
) -> None:
    """Return a name to the pool: nothing of its write is left."""
    folder = _folder(cluster, environment)
    if folder is not None:
        with contextlib.suppress(OSError):  # it is only not used again
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / f"{name.name}.{name.batch}").touch(exist_ok=False)


def _folder(cluster: str, environment: Mapping[str, str]) -> Path | None:
    driver = driver_folder(environment)
    if driver is None:
        return None
    return driver / FOLDER / sha256(cluster.encode()).hexdigest()[:_CLUSTER_LENGTH]
