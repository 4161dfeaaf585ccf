"""Small files merged, old snapshots forgotten, files that nobody needs removed.

A compaction is done in pieces, each a few files of one partition and a commit of its own. It keeps
the offsets and takes no claim of the writer's: if a writer commits in between, the piece is
committed on the new head, and a writer never waits for it. Of compactions there is one. Files of
dead letters are merged, too, unless a replay has them now.
"""

from contextlib import suppress
from typing import Any, Final

import msgspec

from headrace.remote.layout import OWN_PREFIX
from headrace.spark.tables.administration import Where, find_table, read_options_of, store_options
from headrace.spark.tables.claims import held
from headrace.spark.tables.commits import CommitConflict, FilesGone
from headrace.spark.tables.committing import pause
from headrace.spark.tables.data_files import DataFile
from headrace.spark.tables.definition import LETTERS, NAMESPACE, Definition, Target
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.opened import OpenTable
from headrace.spark.tables.parquet_table import ParquetTable
from headrace.spark.tables.replaying import commit_kept
from headrace.spark.tables.stored_rows import read_stored
from headrace.spark.tables.table_store import Change, LiveFile, TableStore
from headrace.spark.tables.task import Job, RangeTask
from headrace.spark.tables.writer_lease import HeldByAnother, Role
from headrace.spark.tier.stores import BlockingStore
from headrace.surroundings import clocks

PIECES_MAX: Final = 20
FILES_PER_PIECE_MAX: Final = 100
SNAPSHOTS_KEPT: Final = 100
ORPHAN_AGE_MS: Final = 3 * 86_400_000
JOURNAL_AGE_MS: Final = 3_600_000
"""How long entries of the journal stay at least: a writer that still has them would use the number
of one again."""
DELETIONS_MAX: Final = 10_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a maintenance run does at most."""

    pieces_max: int = PIECES_MAX
    snapshots_kept: int = SNAPSHOTS_KEPT
    orphan_age_ms: int = ORPHAN_AGE_MS
    deletions_max: int = DELETIONS_MAX
    is_dry: bool = False


class Maintained(msgspec.Struct, kw_only=True):
    """What a maintenance run did, or would do."""

    pieces: int = 0
    files_before: int = 0
    files_after: int = 0
    skipped: int = 0
    """Pieces whose files were replaced meanwhile."""
    snapshots_expired: int = 0
    orphans: list[str] = []


class MergeTask(msgspec.Struct, frozen=True):
    """Files that become one."""

    job: Job
    files: list[LiveFile]
    is_letters: bool = False


def maintain_table(bootstrap: Where, name: str, engine: Engine, limits: Limits) -> Maintained:
    """Compact a table, expire its snapshots and remove its orphans.

    HeldByAnother while another compaction runs, unless this one only looks.
    """
    definition = find_table(bootstrap, name)
    if limits.is_dry:
        return _maintain(bootstrap, name, engine, limits)
    with held(definition, store_options(definition), Role.COMPACTION):
        return _maintain(bootstrap, name, engine, limits)


def _maintain(bootstrap: Where, name: str, engine: Engine, limits: Limits) -> Maintained:
    definition = find_table(bootstrap, name)  # it may have been dropped before the claim
    table = OpenTable(
        definition, read_options_of(bootstrap, definition.topic), store_options(definition), engine
    )
    done = Maintained()
    try:
        _compact(table, engine, limits, done)
        for store, each in (
            (table.rows, definition.name),
            (table.letters, definition.dead_letters),
        ):
            store.head()
            if definition.to is Target.ICEBERG:
                done.snapshots_expired += _expire(store, limits)
                store.head()
            done.orphans += _orphans(definition, store, each, limits, len(done.orphans))
    finally:
        table.close()
    return done


def pieces_of(files: list[LiveFile], file_bytes: int) -> list[list[LiveFile]]:
    """Return which small files to merge: of one partition, in the order of their offsets. Pure."""
    groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    for each in files:
        if each.size_bytes < file_bytes // 2:
            # Rows of one partition of the topic stay together, for upserts and for pruning.
            key = each.partition, each.bounds.get("_partition")
            groups.setdefault(key, []).append(each)
    pieces = []
    for group in groups.values():
        piece: list[LiveFile] = []
        size = 0
        for each in sorted(group, key=_place):
            if piece and (size + each.size_bytes > file_bytes or len(piece) >= FILES_PER_PIECE_MAX):
                pieces.append(piece)
                piece, size = [], 0
            piece.append(each)
            size += each.size_bytes
        pieces.append(piece)
    return [piece for piece in pieces if len(piece) > 1]


def _place(file: LiveFile) -> tuple[tuple[int, int], ...]:
    names = ("_offset", "partition", "offset")
    return tuple(file.bounds.get(each, (0, 0)) for each in names)


def merge_files(task: MergeTask) -> list[DataFile] | None:
    """Write the rows of several files as one; None if they are gone."""
    work = RangeTask(task.job)
    schema = LETTERS if task.is_letters else task.job.table_schema()
    write = work.write_letters if task.is_letters else work.write
    try:
        for each in task.files:
            write(read_stored(work.blocking, each, schema))
    except FilesGone:
        return None
    written = work.finish()
    return written.letters if task.is_letters else written.files


def _compact(table: OpenTable, engine: Engine, limits: Limits, done: Maintained) -> None:
    table.rows.head()
    table.letters.head()
    _merge(table, engine, limits, done, is_letters=False)
    if limits.is_dry or not pieces_of(table.letters.files(), table.definition.file_bytes):
        _merge(table, engine, limits, done, is_letters=True)
        return
    with suppress(HeldByAnother), held(table.definition, table.store_options, Role.JOB):
        table.letters.head()
        _merge(table, engine, limits, done, is_letters=True)


def _merge(
    table: OpenTable, engine: Engine, limits: Limits, done: Maintained, *, is_letters: bool
) -> None:
    definition, store = table.definition, table.letters if is_letters else table.rows
    files = store.files()
    pieces = pieces_of(files, definition.file_bytes)[: max(0, limits.pieces_max - done.pieces)]
    done.files_before += len(files)
    done.files_after += len(files)
    done.pieces += len(pieces)
    if limits.is_dry:
        done.files_after -= sum(len(each) - 1 for each in pieces)
        return
    if not pieces:
        return
    tasks = [MergeTask(table.job(), piece, is_letters) for piece in pieces]
    for piece, merged in zip(pieces, engine.run(merge_files, tasks), strict=True):
        if merged is None:
            done.skipped += 1
            continue
        change = Change(added=merged, removed=[each.key for each in piece], is_rearrangement=True)
        try:
            commit_kept(store, change, definition.id)
            done.files_after -= len(piece) - len(merged)
        except FilesGone:
            done.skipped += 1


def _expire(store: Any, limits: Limits) -> int:
    """Forget all but the newest snapshots of an Iceberg table."""
    for attempt in range(10):
        store.head()
        table = store.table
        snapshots = sorted(table.snapshots(), key=lambda each: each.sequence_number)
        protected = {each.snapshot_id for each in table.metadata.refs.values()}
        old = [
            each.snapshot_id
            for each in snapshots[: -limits.snapshots_kept or None]
            if each.snapshot_id not in protected
        ]
        if not old or limits.is_dry:
            return len(old)
        try:
            table.maintenance.expire_snapshots().by_ids(old).commit()
            return len(old)
        except Exception as error:
            if type(error).__name__ != "CommitFailedException":
                raise
            pause(attempt)
    raise CommitConflict("snapshots could not be expired: others commit all the time")


def _orphans(
    definition: Definition, store: TableStore, table: str, limits: Limits, before: int
) -> list[str]:
    """Remove files that no snapshot needs, once they are old enough to belong to no batch."""
    if definition.to is Target.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415  an extra

        from headrace.spark.tables.delta_table import storage_options  # noqa: PLC0415  with it

        hours = max(1, limits.orphan_age_ms // 3_600_000)
        opened = DeltaTable(
            f"{definition.location}/{NAMESPACE}/{table}",
            storage_options=storage_options(definition),
        )
        removed = opened.vacuum(
            hours, dry_run=limits.is_dry, enforce_retention_duration=False, full=True
        )
        if not limits.is_dry:
            opened.cleanup_metadata()  # commits do not, as writers never wait for maintenance
        return list(removed)
    needed = _needed(definition, store)
    prefixes = [f"{NAMESPACE}/{table}/"]
    if definition.to is Target.PARQUET:
        prefixes = [f"{OWN_PREFIX}tables/{table}/staged/", f"{NAMESPACE}/{table}/"]
    blocking = BlockingStore(definition.location, store_options(definition))
    now_ms = clocks().time_ns() // 1_000_000
    oldest_ms = now_ms - limits.orphan_age_ms
    log = f"{OWN_PREFIX}tables/{table}/log/"
    first_entry = store.first_entry() if isinstance(store, ParquetTable) else ""

    async def find() -> list[str]:
        found = []
        for prefix in prefixes:
            async for page in blocking.store.list_objects(prefix):
                found += [
                    each.key
                    for each in page
                    if each.key not in needed and each.modified_ms < oldest_ms
                ]
        if first_entry:
            async for page in blocking.store.list_objects(log):
                found += [
                    each.key
                    for each in page
                    if each.key < first_entry
                    and each.modified_ms < min(oldest_ms, now_ms - JOURNAL_AGE_MS)
                ]
        found = sorted(found)[: max(0, limits.deletions_max - before)]
        if not limits.is_dry:
            await blocking.store.delete(found)
        return found

    try:
        return blocking.run(find())
    finally:
        blocking.close()


def _needed(definition: Definition, store: Any) -> set[str]:
    """Return the files that some state of the table still names."""
    if definition.to is Target.PARQUET:
        return {each.key for each in store.files()}
    table, key_of = store.table, store.key_of
    needed = {key_of(table.metadata_location)}
    needed |= {key_of(each.metadata_file) for each in table.metadata.metadata_log}
    for named in (table.metadata.statistics, table.metadata.partition_statistics):
        needed |= {key_of(each.statistics_path) for each in named}
    for snapshot in table.snapshots():
        needed.add(key_of(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if key_of(manifest.manifest_path) in needed:
                continue
            needed.add(key_of(manifest.manifest_path))
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                needed.add(key_of(entry.data_file.file_path))
    return needed
