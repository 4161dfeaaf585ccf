"""Dead letters once more: those that can be decoded now become rows.

The rows are committed first, then the letters are removed. If a replay dies in between, the next
one finds the rows by their offsets and only removes the letters. Offsets of the table do not move,
so a writer may run meanwhile. Another replay may not: it would make rows of the same letters.
"""

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.tables.administration import (
    Unfinished,
    Where,
    find_table,
    read_options_of,
    store_options,
)
from headrace.spark.tables.claims import HeldClaim, held
from headrace.spark.tables.commits import (
    COMMIT_ATTEMPTS_MAX,
    CommitConflict,
    FilesGone,
    Head,
    OutcomeUnknown,
    kept_properties,
    unfinished,
)
from headrace.spark.tables.committing import pause
from headrace.spark.tables.data_files import DataFile, FileWriter
from headrace.spark.tables.definition import LETTERS, METADATA, InvalidTable, Mode, OnViolation
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.opened import OpenTable
from headrace.spark.tables.stored_rows import read_stored
from headrace.spark.tables.table_store import CatalogFailed, Change, LiveFile, TableStore
from headrace.spark.tables.task import Job, RangeTask, data_folder, read_schema, schema_bytes
from headrace.spark.tables.writer_lease import Role

WHOLE_ATTEMPTS_MAX: Final = 5
"""How often a replay looks whether a writer has finished a batch."""


class Replayed(msgspec.Struct, kw_only=True):
    """What a replay did."""

    tried: int = 0
    rows: int = 0
    still_dead: int = 0
    known: int = 0
    """Letters whose rows are in the table already."""


class LetterTask(msgspec.Struct, frozen=True):
    """One file of dead letters, and the files that may have their rows."""

    job: Job
    letters: LiveFile
    files: list[LiveFile]


class LetterResult(msgspec.Struct, kw_only=True):
    """What a task wrote instead of a file of letters."""

    rows: list[DataFile] = []
    letters: list[DataFile] = []
    counts: Replayed
    seen: bytes = b""


def replay_table(bootstrap: Where, name: str, engine: Engine) -> Replayed:
    """Decode all dead letters of a table again; return what became of them."""
    definition = find_table(bootstrap, name)
    if definition.mode is Mode.UPSERT:
        raise InvalidTable(
            f"table {name!r} is upserted: an old record would replace a newer row of its key. "
            "Produce the corrected records again"
        )
    with held(definition, store_options(definition), Role.JOB) as claim:
        return _replay(bootstrap, name, engine, claim)


def _replay(bootstrap: Where, name: str, engine: Engine, claim: HeldClaim) -> Replayed:
    definition = find_table(bootstrap, name)  # it may have been altered before the claim
    definition = msgspec.structs.replace(
        definition,
        fails_on_bad_record=False,
        on_violation=OnViolation.COUNT
        if definition.on_violation is OnViolation.COUNT
        else OnViolation.DEAD_LETTER,
    )
    table = OpenTable(
        definition, read_options_of(bootstrap, definition.topic), store_options(definition), engine
    )
    total = Replayed()
    try:
        _wait_until_whole(table)
        for file in table.letters.files():
            result = _replay_file(table, engine, file)
            for field in Replayed.__struct_fields__:
                setattr(total, field, getattr(total, field) + getattr(result.counts, field))
            claim.check(asks=True)
            commit_kept(table.rows, Change(added=result.rows), definition.id)
            change = Change(added=result.letters, removed=[file.key])
            if result.rows or result.counts.known:
                commit_kept(table.letters, change, definition.id)
    finally:
        table.close()
    return total


def _wait_until_whole(table: OpenTable) -> None:
    """Read the heads; Unfinished if a batch stays half committed: its letters are not old ones."""
    for attempt in range(WHOLE_ATTEMPTS_MAX):
        if not unfinished(table.rows.head(), table.letters.head()):
            return
        pause(attempt)
    name = table.definition.name
    raise Unfinished(
        f"the dead letters of a batch of table {name!r} are committed and its rows are not: "
        f"`headrace table run {name} --once` finishes it first"
    )


def _replay_file(table: OpenTable, engine: Engine, file: LiveFile) -> LetterResult:
    for _ in range(3):
        table.rows.head()
        (result,) = engine.run(replay_file, [LetterTask(table.job(), file, table.rows.files())])
        if not result.seen:
            return result
        table.evolve(read_schema(result.seen))
    raise CatalogFailed(f"{file.key}: dead letters show new columns again and again")


def replay_file(task: LetterTask) -> LetterResult:
    """Decode one file of dead letters."""
    job = task.job
    work = RangeTask(job)
    letters = read_stored(work.blocking, task.letters, LETTERS)
    known = _known(work, task.files, letters)
    fresh = letters.filter(pc.invert(pa.array(known, pa.bool_())))
    rows, bad, seen = work.decode(fresh)
    counts = Replayed(
        tried=letters.num_rows, known=sum(known), rows=rows.num_rows, still_dead=len(bad)
    )
    if len(seen):
        return LetterResult(counts=counts, seen=schema_bytes(seen))
    reasons = {each.row: each.reason for each in bad}
    dead = fresh.take(pa.array(sorted(reasons), pa.int64()))
    dead = dead.set_column(
        dead.schema.get_field_index("reason"),
        "reason",
        pa.array([reasons[row] for row in sorted(reasons)], pa.string()),
    )
    schema = read_schema(job.letters_schema)
    writer = FileWriter(
        work.blocking,
        data_folder(job.definition, job.definition.dead_letters),
        schema,
        file_bytes=job.definition.file_bytes,
    )
    if rows.num_rows or any(known):
        writer.write(dead.select(schema.names).cast(schema))
    work.write(rows)
    return LetterResult(rows=work.finish().files, letters=writer.close(), counts=counts)


def _known(work: RangeTask, files: list[LiveFile], letters: pa.Table) -> list[bool]:
    """Return for each letter whether the table has its row."""
    offsets = letters.column("offset")
    there: set[tuple[int, int]] = set()
    filters = pc.field("_offset").isin(offsets.combine_chunks())
    for each in files:
        rows = read_stored(
            work.blocking, each, METADATA, columns=["_partition", "_offset"], filters=filters
        )
        there.update((row["_partition"], row["_offset"]) for row in rows.to_pylist())
    places = letters.select(["partition", "offset"]).to_pylist()
    return [(row["partition"], row["offset"]) in there for row in places]


def commit_kept(store: TableStore, change: Change, query: str) -> None:
    """Commit a change that moves no offset, on whatever head there is.

    FilesGone if others have replaced the files that it removes.
    """
    if not change.added and not change.removed:
        return
    problem: Exception | None = None
    unknown: Head | None = None
    for attempt in range(COMMIT_ATTEMPTS_MAX):
        head = store.head()
        if unknown is not None and _has(store, change):
            return
        if unknown is not None and not change.removed and head.version != unknown.version:
            # Its files may have been merged since; a commit that removes files would fail then.
            raise CatalogFailed(
                f"nobody knows whether a change was committed ({problem}), and the table has "
                "changed since: run it again, which looks for its rows"
            )
        try:
            properties = kept_properties(head, query)
            store.commit(head, msgspec.structs.replace(change, properties=properties))
            return
        except FilesGone:
            raise  # they do not come back
        except OutcomeUnknown as error:
            problem, unknown = error, head
        except CommitConflict as error:
            problem = error
        pause(attempt)
    raise CatalogFailed(f"a change could not be committed: {problem}; no file was removed")


def _has(store: TableStore, change: Change) -> bool:
    """Return whether a change of unknown outcome is in the table."""
    names = {each.key.rpartition("/")[2] for each in store.files()}
    if change.added:
        return all(each.key.rpartition("/")[2] in names for each in change.added)
    return not names.intersection(each.rpartition("/")[2] for each in change.removed)
