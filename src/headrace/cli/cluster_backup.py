"""`headrace cluster backup` and `headrace cluster restore`: the metadata of a cluster as a file."""

import contextlib
import os
from pathlib import Path
from typing import Final

import click
import msgspec

from headrace.cli.node_calls import (
    CannotRead,
    NodeCalls,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import FilePath, dry_run_option, json_option, yes_option
from headrace.cli.output import print_json
from headrace.cli.printable import printable
from headrace.cli.running import complete, make_sure, usage_error
from headrace.cli.streams import say
from headrace.cluster import operator_words as words
from headrace.metadata.backup import Backup, decode_backup
from headrace.records.compression import Compression, compress, decompress

TIMEOUT_MS: Final = 300_000
FILE_BYTES_MAX: Final = 512 * 1024 * 1024


@click.command()
@click.argument("file", type=FilePath())
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@json_option
@node_option
@secret_option
def backup(
    file: Path, *, overwrite: bool, as_json: bool, node: str, secret_file: Path | None
) -> None:
    """Write the cluster's metadata to a file, as JSON with a checksum.

    Topics with their ids, placement and configs, configs of brokers and groups, quotas, ACLs and
    features; no records, and nothing secret.
    """
    if file.exists() and not overwrite:
        usage_error(f"{file} exists: --overwrite replaces it")

    async def work() -> words.Response:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            return await calls.ask_any(parse_nodes(node), words.TakeBackup(), timeout_ms=TIMEOUT_MS)

    taken = complete(work())
    assert isinstance(taken, words.BackupTaken)
    data = bytes(decompress(Compression.GZIP, taken.data, FILE_BYTES_MAX))
    document = decode_backup(data)
    _write(file, data)
    if as_json:
        print_json({"file": str(file), **_summary(document)})
    else:
        summary = _summary(document)
        say(
            f"{file}: cluster {document.cluster_id} at index {document.index}, "
            f"{summary['topics']} topics, {summary['partitions']} partitions"
        )


@click.command()
@click.argument("file", type=FilePath())
@click.option("--without-config", "without", multiple=True, help="Of topics; repeatable.")
@dry_run_option
@yes_option
@json_option
@node_option
@secret_option
def restore(
    file: Path,
    *,
    without: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    node: str,
    secret_file: Path | None,
) -> None:
    """Restore the metadata of a backup into a cluster that has no topics.

    Topics keep their ids, and their nodes where those exist. Says what is not restored; records
    are not.
    """
    data = _read(file)
    document = decode_backup(data)
    if not dry_run:
        make_sure(f"Restore cluster {document.cluster_id} from {file}?", is_sure=yes)

    async def work() -> words.Response:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            payload = bytes(compress(Compression.GZIP, data))
            request = words.RestoreBackup(payload, dry_run, without)
            return await calls.ask_any(parse_nodes(node), request, timeout_ms=TIMEOUT_MS)

    done = complete(work())
    assert isinstance(done, words.BackupRestored)
    if as_json:
        fields = msgspec.structs.asdict(done)
        print_json({**fields, "is_dry_run": dry_run})
        return
    verb = "would restore" if dry_run else "restored"
    say(
        f"{verb} {done.topics} topics with {done.partitions} partitions, configs of "
        f"{done.configs} resources, {done.quotas} quotas, {done.acls} ACLs"
    )
    for note in done.notes:
        say(printable(note))


def _summary(document: Backup) -> dict[str, object]:
    return {
        "cluster_id": document.cluster_id,
        "index": document.index,
        "topics": len(document.topics),
        "partitions": sum(len(topic.replicas) for topic in document.topics),
        "crc32c": document.crc32c,
    }


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise CannotRead(f"{file}: larger than {FILE_BYTES_MAX} bytes, so not a backup")
        return file.read_bytes()
    except OSError as error:
        raise CannotRead(f"{file}: {error.strerror}") from None


def _write(file: Path, data: bytes) -> None:
    """Write a file whole or not at all; on return it is on the disk."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        with partial.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(file)
        folder = os.open(file.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise CannotRead(f"{file}: {error.strerror}") from None
