"""What a pipeline keeps beside its steps: a lock, the owner of its checkpoints, its status.

.headrace/lock              held while it runs; the kernel releases it, however a run ends
.headrace/status.json       what the last run says, rewritten while it runs
.headrace/checkpoints/pipeline.json     whose checkpoints these are, and how steps were defined
.headrace/checkpoints/steps/NAME/       Spark's checkpoint of a step
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from headrace.errors import HeadraceError
from headrace.spark.pipelines.definition import Defined
from headrace.spark.pipelines.model import Query, queries
from headrace.surroundings import clocks

FOLDER: Final = ".headrace"
CONNECTION_PREFIX: Final = "kafka."
"""Options of connections: a pipeline may move to other addresses and keep its checkpoints."""


class PipelineBusy(HeadraceError):
    """Another process runs the pipeline."""


class ForeignCheckpoint(HeadraceError):
    """Checkpoints that were written by another pipeline, or by other steps."""


class Owner(msgspec.Struct, frozen=True):
    """Whose checkpoints a folder has."""

    name: str
    steps: dict[str, dict[str, Any]] = {}
    """What each step read and wrote when its checkpoint began."""


class Status(msgspec.Struct, frozen=True):
    """What a run says of itself."""

    pipeline: str
    state: str
    """running, done, stopped or failed."""
    pid: int
    started_ms: int
    updated_ms: int
    steps: tuple[dict[str, Any], ...] = ()
    problem: str | None = None


@contextmanager
def hold(defined: Defined) -> Iterator[None]:
    """Hold a pipeline's lock; PipelineBusy, with the holder, if another process does.

    The lock is the kernel's (flock): it ends with the process, also by kill -9. Spark's processes
    do not inherit it, as Python's descriptors are closed for them.
    """
    folder = defined.folder / FOLDER
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineBusy(
                f"pipeline {defined.pipeline.name!r} is running already: {_holder(file)}; stop it "
                "with Ctrl-C or SIGTERM first"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        yield


def is_held(defined: Defined) -> bool:
    """Return whether a process runs the pipeline now."""
    path = defined.folder / FOLDER / "lock"
    if not path.exists():
        return False
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def claim(defined: Defined, resets: tuple[str, ...] = ()) -> None:
    """Make the checkpoints this pipeline's; ForeignCheckpoint if they are not.

    `resets` are steps that are to begin anew: their checkpoints are removed. Only for folders of
    this machine; checkpoints that Spark alone can reach are not checked.
    """
    wanted = Owner(
        defined.pipeline.name,
        {each.step.name: shape(defined, each) for each in queries(defined.pipeline)},
    )
    unknown = [name for name in resets if name not in wanted.steps]
    if unknown:
        known = ", ".join(wanted.steps)
        raise HeadraceError(f"--reset {unknown[0]}: no step of that name writes; there are {known}")
    folder = local_folder(defined.checkpoints)
    if folder is None:
        if resets:
            raise HeadraceError(
                f"--reset: remove the checkpoints below {defined.checkpoints} yourself"
            )
        return
    path = folder / "pipeline.json"
    steps: dict[str, dict[str, Any]] = {}
    if path.exists():
        owner = _read(path)
        if owner.name != wanted.name:
            raise ForeignCheckpoint(
                f"the checkpoints in {folder} belong to the pipeline {owner.name!r}, not to "
                f"{wanted.name!r}: set another folder with checkpoints in pipeline.toml"
            )
        steps = dict(owner.steps)
    elif (folder / "steps").exists() or _is_spark_checkpoint(folder):
        raise ForeignCheckpoint(
            f"{folder} has checkpoints of something else: set another folder with checkpoints in "
            "pipeline.toml"
        )
    for name in resets:
        shutil.rmtree(folder / "steps" / name, ignore_errors=True)
        steps.pop(name, None)
    for name, now in wanted.steps.items():
        if _has_begun(folder / "steps" / name):
            _check_same(name, steps.get(name, now), now)
    folder.mkdir(parents=True, exist_ok=True)
    steps.update(wanted.steps)
    _write(path, Owner(wanted.name, steps))


def shape(defined: Defined, query: Query) -> dict[str, Any]:
    """Return what a step's checkpoint depends on: sources, sink and output mode.

    Without options of connections and starting points, which may change.
    """
    pipeline = defined.pipeline
    places = [
        *(pipeline.sources[name] for name in query.sources),
        *(pipeline.sinks[name] for name in query.stored),
    ]
    reads = {each.name: [each.format, _lasting(each.options)] for each in places if each.is_stream}
    assert query.step.writes is not None, "a query writes"
    sink = pipeline.sinks[query.step.writes]
    writes = [sink.name, sink.format, _lasting(sink.options), list(sink.partition_by)]
    return {"reads": reads, "writes": writes, "mode": query.step.mode}


def checkpoint_of(defined: Defined, step: str) -> str:
    """Return where Spark keeps the checkpoint of a step."""
    return f"{defined.checkpoints.rstrip('/')}/steps/{step}"


def local_folder(checkpoints: str) -> Path | None:
    """Return the folder of checkpoints if it is on this machine."""
    if checkpoints.startswith("file://"):
        return Path(checkpoints.removeprefix("file://"))
    return None if "://" in checkpoints else Path(checkpoints)


def write_status(defined: Defined, status: Status) -> None:
    """Replace the status file."""
    _write(defined.folder / FOLDER / "status.json", status)


def read_status(defined: Defined) -> Status | None:
    """Return what the last run says; None if there was none."""
    path = defined.folder / FOLDER / "status.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise HeadraceError(f"{path} is damaged: {error}; the next run replaces it") from None


def now_ms() -> int:
    return clocks().time_ns() // 1_000_000


def _check_same(name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = [
        key for key in now if msgspec.json.encode(before.get(key)) != msgspec.json.encode(now[key])
    ]
    if changed:
        key = changed[0]
        raise ForeignCheckpoint(
            f"step {name!r} has a checkpoint, and what it {'has as ' * (key == 'mode')}{key} has "
            f"changed since: {before.get(key)} became {now[key]}. Change it back, rename the "
            f"step, or begin it anew with --reset {name}, which reads its sources from the start"
        )


def _lasting(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(options.items())
        if not name.startswith(CONNECTION_PREFIX)
        and not name.lower().startswith(("startingoffsets", "startingtimestamp", "max", "min"))
    }


def _has_begun(checkpoint: Path) -> bool:
    """Return whether a checkpoint has anything of its sources.

    Spark makes the folders before it looks whether a topic exists, for example.
    """
    folders = (checkpoint / each for each in ("offsets", "sources"))
    return any(each.is_dir() and any(each.iterdir()) for each in folders)


def _is_spark_checkpoint(folder: Path) -> bool:
    return (folder / "offsets").exists() or (folder / "commits").exists()


def _read(path: Path) -> Owner:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except msgspec.MsgspecError as error:
        raise ForeignCheckpoint(f"{path} is damaged: {error}") from None


def _write(path: Path, value: Any) -> None:
    """Replace a file: a reader sees the old or the new one, whole."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(value)))
    new.replace(path)


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "by a process that does not say which"
