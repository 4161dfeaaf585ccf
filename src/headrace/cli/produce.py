"""`headrace produce`: lines to records."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, cast

import click

from headrace.cli.client_config import client_settings
from headrace.cli.lines import STDIN, read_lines
from headrace.cli.options import FilePath, bootstrap_option, json_option, parse_pairs
from headrace.cli.output import print_json
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import tell
from headrace.client.producer import Producer, parse_compression

SHOWN_AFTER_SECONDS: Final = 1.0


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.argument(
    "files",
    metavar="[FILE...]",
    type=FilePath(),
    nargs=-1,
    help="One record per line; standard input if none.",
)
@click.option("--key-separator", "-K", help="Separates key and value.")
@click.option(
    "--header",
    "-H",
    "headers",
    metavar="KEY=VALUE",
    multiple=True,
    help="Added to every record; repeatable.",
)
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), help="Send all records to this partition."
)
@click.option("--compression", "-z", default="none", help="none, gzip, snappy, lz4 or zstd.")
@click.option("--acks", default="all", help="all, 1 or 0.")
@json_option
@bootstrap_option
def produce(  # noqa: PLR0913  an option each
    topic: str,
    files: tuple[Path, ...],
    *,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    r"""Send one record per line.

    With a key separator the part before it is the key, and a line without it is an error; `\t`
    is a tab.
    """
    if acks not in ("all", "-1", "0", "1"):
        usage_error(f"--acks {acks}: must be all, 1 or 0")
    try:
        codec = parse_compression(compression)
    except ValueError as error:
        usage_error(f"--{error}")
    separator = _separator(key_separator)
    pairs = [pair for word in headers for pair in parse_pairs([word], "--header").items()]
    paths = list(files) or [STDIN]
    for path in paths:
        if path != STDIN and (path.is_dir() or not path.exists()):
            usage_error(f"{path}: there is no such file")

    async def work() -> int:
        count = 0
        level = cast(Literal["all", 0, 1], "all" if acks in ("all", "-1") else int(acks))
        async with Producer(
            bootstrap, client_settings(), acks=level, compression=codec
        ) as producer:
            with _progress(paths) as advance:
                async for lines in read_lines(paths):
                    for line in lines:
                        count += 1
                        key, value = (
                            (None, line) if separator is None else _split(line, separator, count)
                        )
                        await producer.send(topic, value, key, partition, headers=pairs)
                    advance(sum(map(len, lines)) + len(lines))
                await producer.flush()
        return count

    count = complete(work(), is_busy=True)
    if as_json:
        print_json({"topic": topic, "records": count})
    elif sys.stderr.isatty():
        tell(f"{count} records to {topic}")


def _separator(text: str | None) -> bytes | None:
    if text is None:
        return None
    separator = os.fsencode(text.replace(r"\t", "\t"))  # the bytes of the command line
    if not separator:
        usage_error("--key-separator: must not be empty")
    return separator


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        usage_error(f"line {number} has no {os.fsdecode(separator)!r} between key and value")
    return key, value


@contextmanager
def _progress(paths: list[Path]) -> Iterator[Callable[[int], None]]:
    """Return a callback for the bytes that were sent; on a terminal a bar shows them.

    There is no bar for input that takes less than a second or that a person types.
    """
    if not sys.stderr.isatty() or (STDIN in paths and sys.stdin.isatty()):
        yield lambda size_bytes: None
        return
    from rich.console import Console  # noqa: PLC0415  only a person at a terminal needs it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=_total_bytes(paths))
    began = time.monotonic()

    def advance(size_bytes: int) -> None:
        if time.monotonic() - began > SHOWN_AFTER_SECONDS:
            bar.start()
        bar.update(task, advance=size_bytes)

    try:
        yield advance
    finally:
        bar.stop()


def _total_bytes(paths: list[Path]) -> int | None:
    """Return how much there is to send; None if a pipe is among the files."""
    if STDIN in paths or not all(path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)
