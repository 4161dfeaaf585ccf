"""The folders of a driver, through which its processes exchange messages.

Spark gives every driver its own folder, tells the driver's Python processes where it is, and
removes it at the end: its contents belong to this driver alone. The user's process cannot get its
path, so it creates another one and has Spark tell the others.
"""

import contextlib
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from headrace.sasl.secret import Secret
from headrace.spark.options import Connecting

FOLDERS: Final = "SPARK_LOCAL_DIRS"
"""The variable in which Spark names the driver's folders."""
CLUSTERS_FOLDER: Final = "HEADRACE_SPARK_CLUSTERS"
"""The variable that names the folder of the user's process."""
_NAME_LENGTH: Final = 16


def driver_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the driver's first folder; None in a process that is none of Spark's."""
    folders = environment.get(FOLDERS)
    return Path(folders.split(",")[0]) if folders else None


def note_cluster(connecting: Connecting, environment: Mapping[str, str] = os.environ) -> None:
    """Leave word that a query of this driver writes to a cluster.

    With what it takes to connect, passwords included: only this user can read the folder and the
    note, and the folder goes with the user's process.
    """
    folder = environment.get(CLUSTERS_FOLDER)
    if not folder:
        return
    text = msgspec.json.encode(connecting, enc_hook=_revealed)
    note = Path(folder, sha256(text).hexdigest()[:_NAME_LENGTH])
    with contextlib.suppress(OSError):  # then nobody looks after what Spark keeps from the sink
        if not note.exists():
            scratch = note.with_name(f".{note.name}.{os.getpid()}")
            scratch.touch(mode=0o600)
            scratch.write_bytes(text)
            scratch.replace(note)


def noted_clusters(folder: Path) -> list[Connecting]:
    """Return the clusters that queries of a driver write to."""
    found = []
    with contextlib.suppress(OSError):
        for note in sorted(folder.glob("[!.]*")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                text = note.read_bytes()
                found.append(msgspec.json.decode(text, type=Connecting, dec_hook=_hidden))
    return found


def _revealed(value: object) -> str:
    if not isinstance(value, Secret):
        raise NotImplementedError(f"{type(value).__name__} cannot be noted")
    return value.reveal()


def _hidden(kind: type, value: object) -> object:
    if kind is not Secret:
        raise NotImplementedError(f"{kind.__name__} is never noted")
    return Secret(str(value))
