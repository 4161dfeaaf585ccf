"""A node that passes by every step of the tier's work aloud, and dies at the one it is told.

python -m tests.crash.doomed_node FOLDER up --data ...

Steps are appended to FOLDER/passed. The node ends itself with SIGKILL at the step that
FOLDER/doom names, which may be written at any time.
"""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from headrace.cli.program import headrace
from headrace.log import cutting
from headrace.remote import folder_store
from headrace.remote.events import decode_event
from headrace.remote.folder_store import FolderStore
from headrace.remote.layout import LEASES_PREFIX, TOPICS_PREFIX
from headrace.remote.segments import PartitionDelete
from headrace.tier import expiring
from headrace.tier.expiring import Expirer
from headrace.tier.snapshots import MetadataSnapshots
from headrace.tier.topic_event_log import TopicEventLog

BEGUN: Final = "begun"
DONE: Final = "done"


class Steps:
    """Where the steps are written down, and the doom is read."""

    def __init__(self, folder: Path) -> None:
        self._doom = folder / "doom"
        self._passed = os.open(folder / "passed", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def pass_by(self, step: str) -> None:
        os.write(self._passed, f"{step}\n".encode())
        try:
            doom = self._doom.read_text()
        except FileNotFoundError:
            return
        if doom == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, name_of: Callable[..., str]) -> None:
        """Pass by before and after each call of a function or method."""
        setattr(owner, name, self.wrap(getattr(owner, name), name_of))

    def wrap(self, function: Callable[..., Any], name_of: Callable[..., str]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*arguments: Any, **options: Any) -> Any:
            step = name_of(*arguments, **options)
            self.pass_by(f"{step} {BEGUN}")
            result = await function(*arguments, **options)
            self.pass_by(f"{step} {DONE}")
            return result

        @functools.wraps(function)
        def call_at_once(*arguments: Any, **options: Any) -> Any:
            step = name_of(*arguments, **options)
            self.pass_by(f"{step} {BEGUN}")
            result = function(*arguments, **options)
            self.pass_by(f"{step} {DONE}")
            return result

        return call if inspect.iscoroutinefunction(function) else call_at_once


def prepare(steps: Steps) -> None:
    """Let every step of a copy, an expiry and a deletion be passed by."""
    steps.around(TopicEventLog, "publish", lambda log, partition, event: event_name(event))
    steps.around(FolderStore, "put", lambda store, key, *rest: f"put {kind_of(key)}")
    steps.around(
        folder_store._Staged,
        "publish",
        lambda staged: f"put {kind_of(staged._path.name)} staged,",
    )
    delete_one_by_one(steps)
    steps.around(expiring, "delete_records", lambda *arguments: "start")
    wrap_checkpoints(steps)
    steps.around(cutting, "delete_segment", lambda *arguments: "local deletion")
    steps.around(MetadataSnapshots, "_save", lambda *arguments: "snapshot")


def wrap_checkpoints(steps: Steps) -> None:
    """Pass by the checkpoint that makes a log's start durable before segments go."""
    construct = Expirer.__init__

    def construct_wrapped(self: Expirer, *arguments: Any, **options: Any) -> None:
        options["checkpoint"] = steps.wrap(options["checkpoint"], lambda: "checkpoint")
        construct(self, *arguments, **options)

    Expirer.__init__ = construct_wrapped  # type: ignore[method-assign]


def delete_one_by_one(steps: Steps) -> None:
    """Pass by each object that a deletion removes."""
    delete: Callable[[FolderStore, list[Path]], None] = FolderStore._delete

    def delete_each(store: FolderStore, paths: Iterable[Path]) -> None:
        all_paths = list(paths)
        for path in all_paths:
            steps.pass_by(f"delete {kind_of(path.name)} {BEGUN}")
            path.unlink(missing_ok=True)
        delete(store, all_paths)
        steps.pass_by(f"delete {kind_of(all_paths[-1].name)} {DONE}")

    FolderStore._delete = delete_each  # type: ignore[method-assign, assignment]


def kind_of(name: str) -> str:
    """Return what an object is, by its key or the end of it."""
    if name.startswith((TOPICS_PREFIX, LEASES_PREFIX)) or name.endswith(".json"):
        return "manifest"
    return name[name.rindex(".") :]


def event_name(data: bytes) -> str:
    event = decode_event(data)
    prefix = "partition " if isinstance(event, PartitionDelete) else ""
    return f"event {prefix}{event.state.name}"


if __name__ == "__main__":
    prepare(Steps(Path(sys.argv[1])))
    headrace(sys.argv[2:], prog_name="headrace")
