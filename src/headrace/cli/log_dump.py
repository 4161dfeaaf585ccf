"""`headrace log dump`: the contents of a partition's files, by Headrace or by Apache Kafka.

Segments are checked as they are read: magic, length, CRC, increasing offsets. Nothing is
written, so a broker may be using the files; a batch that it is appending may look truncated.
"""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.exceptions import Exit

from headrace.cli.log_files import (
    describe_batches,
    describe_checkpoint,
    describe_index,
    describe_snapshot,
    describe_time_index,
    describe_transactions,
)
from headrace.cli.options import CommandGroup, FilePath, json_option
from headrace.cli.output import print_json
from headrace.cli.printable import printable
from headrace.cli.running import EXIT_REFUSED, usage_error
from headrace.cli.streams import say
from headrace.errors import HeadraceError

Row = dict[str, Any]
_READERS: Final[dict[str, Callable[[memoryview, Path], Iterator[Row]]]] = {
    ".index": describe_index,
    ".timeindex": describe_time_index,
    ".txnindex": describe_transactions,
    ".snapshot": describe_snapshot,
}
_SUFFIXES: Final = (".log", *_READERS)
_CHECKPOINTS: Final = ("leader-epoch-checkpoint", "partition.metadata")


@click.group(cls=CommandGroup)
def log() -> None:
    """Inspect log files."""


@log.command()
@click.argument(
    "paths",
    metavar="PATH...",
    type=FilePath(),
    nargs=-1,
    required=True,
    help="Files, or folders of partitions.",
)
@click.option("--records", "-r", is_flag=True, help="Each record, not only batches.")
@json_option
def dump(paths: tuple[Path, ...], *, records: bool, as_json: bool) -> None:
    """Print segments, indexes, aborted transactions, producer snapshots and checkpoints.

    Exits with code 1 if a file is damaged.
    """
    files = [file for path in paths for file in _files(path)]
    is_damaged = False
    for file in files:
        is_damaged |= not _dump_file(file, with_records=records, as_json=as_json)
    if is_damaged:
        raise Exit(EXIT_REFUSED)


def _files(path: Path) -> list[Path]:
    """Return the files to read: one, or those of a partition's folder, by offset."""
    if path.is_file():
        if path.suffix not in _SUFFIXES and path.name not in _CHECKPOINTS:
            known = ", ".join((*_SUFFIXES, *_CHECKPOINTS))
            usage_error(f"{path}: there is no reader for it; there are some for {known}")
        return [path]
    if not path.is_dir():
        usage_error(f"{path}: there is no such file or folder")
    found = [
        file
        for file in sorted(path.iterdir())
        if file.suffix in _SUFFIXES or file.name in _CHECKPOINTS
    ]
    if not found:
        usage_error(f"{path}: no files of a log are here; give the folder of one partition")
    return found


def _dump_file(path: Path, *, with_records: bool, as_json: bool) -> bool:
    """Print one file; return False if it is damaged."""
    try:
        size_bytes = path.stat().st_size
        if not as_json:
            say(f"{printable(str(path))} ({size_bytes} bytes)")
        for row in _rows(path, with_records=with_records):
            if as_json:
                print_json({"file": str(path), **row})
            else:
                indent = "    " if row["kind"] == "record" else "  "
                words = (
                    f"{name}={printable(str(value))}"
                    for name, value in row.items()
                    if name != "kind"
                )
                say(f"{indent}{row['kind']} {' '.join(words)}")
    except HeadraceError as error:
        _print_damage(path, str(error), as_json=as_json)
        return False
    except OSError as error:
        if error.filename is None:
            raise  # the output cannot be written
        _print_damage(path, f"{path}: cannot be read: {error.strerror}", as_json=as_json)
        return False
    return True


def _print_damage(path: Path, reason: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(path), "kind": "damage", "reason": reason})
    else:
        say(f"  damaged: {printable(reason)}")


def _rows(path: Path, *, with_records: bool) -> Iterator[Row]:
    if path.name in _CHECKPOINTS:
        yield from describe_checkpoint(path)
        return
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            if path.suffix == ".log":
                yield from describe_batches(view, with_records=with_records)
            else:
                yield from _READERS[path.suffix](view, path)
        finally:
            view.release()
