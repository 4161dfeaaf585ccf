"""Plain Parquet: a folder of files, and a journal of what belongs to it.

    headrace/<table>/data/*.parquet                 the rows, for any reader of a folder
    .headrace/tables/<table>/log/<number>.json      what a commit added and removed, and the offsets

Tasks write below `.headrace/tables/<table>/staged/`, which no reader of the folder sees. A commit
creates the next journal entry, which only one writer can, and then puts the files in their place.
If that is interrupted, whoever reads the head next does the rest. Readers of the folder see the
files of a batch one after the other, but each only once; a reader that wants batches whole follows
the journal.
"""

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from headrace.remote.layout import OWN_PREFIX
from headrace.remote.store import NoSuchObject, StoreError
from headrace.remote.store_options import StoreOptions
from headrace.spark.tables import commits
from headrace.spark.tables.commits import CommitConflict, FilesGone, Head, OutcomeUnknown
from headrace.spark.tables.data_files import DataFile
from headrace.spark.tables.definition import NAMESPACE, Definition
from headrace.spark.tables.partitioning import partition_fields, texts_of
from headrace.spark.tables.table_store import (
    CatalogFailed,
    Change,
    LiveFile,
    NoSuchTable,
    TableExists,
)
from headrace.spark.tables.task import read_schema, schema_bytes
from headrace.spark.tier.stores import BlockingStore

T = TypeVar("T")

ENTRIES_MAX: Final = 100
"""After so many journal entries one holds everything; `compact` removes those before."""
STAGED: Final = "staged"


class StagedFile(msgspec.Struct, frozen=True):
    """A file of a commit: where a task left it, and where it belongs."""

    staged: str
    file: LiveFile


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, or everything up to it."""

    number: int
    table_id: str
    schema: bytes
    properties: dict[str, str] = {}
    added: list[StagedFile] = []
    removed: list[str] = []
    is_whole: bool = False
    """Whether `added` is all that the table has, so that nothing before is needed."""


class ParquetTable:
    """One folder."""

    def __init__(self, definition: Definition, name: str, options: StoreOptions) -> None:
        self._definition = definition
        self._folder = f"{NAMESPACE}/{name}"
        self._prefix = f"{OWN_PREFIX}tables/{name}/"
        self._blocking = BlockingStore(definition.location, options)
        self._store = self._blocking.store
        self._fields = partition_fields(definition) if name == definition.name else []
        self._entries: list[Entry] = []

    def create(self, schema: pa.Schema) -> None:
        self._run(self._read())
        if self._entries:
            raise TableExists(f"there is a table in {self._store.url}/{self._folder} already")
        if self._run(self._is_used()):
            raise TableExists(
                f"there are files in {self._store.url}/{self._folder}, as after a drop without "
                "--purge: readers of the folder would see them. Remove them, or choose another "
                "name or location"
            )
        entry = Entry(
            number=0, table_id=self._definition.id, schema=schema_bytes(schema), is_whole=True
        )
        self._run(self._append(entry))

    def head(self) -> Head:
        self._run(self._read())
        if not self._entries:
            raise NoSuchTable(f"there is no table in {self._store.url}/{self._folder} any more")
        last = self._entries[-1]
        if last.table_id != self._definition.id:
            raise TableExists(f"{self._store.url}/{self._folder} belongs to another definition")
        self._run(self._place(last))
        return commits.from_properties(last.properties, str(last.number))

    def schema(self) -> pa.Schema:
        return read_schema(self._entries[-1].schema)

    def evolve(self, schema: pa.Schema) -> None:
        last = self._entries[-1]
        entry = Entry(
            number=last.number + 1,
            table_id=last.table_id,
            schema=schema_bytes(schema),
            properties=last.properties,
        )
        self._run(self._append(entry))

    def commit(self, head: Head, change: Change) -> None:
        last = self._entries[-1]
        assert head.version == str(last.number)
        live = {each.key for each in self.files()}
        if not live.issuperset(change.removed):
            raise FilesGone("files that were to be replaced are not in the table any more")
        entry = Entry(
            number=last.number + 1,
            table_id=last.table_id,
            schema=last.schema,
            properties=change.properties,
            added=[StagedFile(each.key, self._live(each)) for each in change.added],
            removed=list(change.removed),
        )
        if last.number and not (last.number + 1) % ENTRIES_MAX:
            entry = self._whole(entry)
        self._run(self._append(entry))
        self._entries.append(entry)
        try:
            self._run(self._place(entry))
        except CatalogFailed as error:
            raise OutcomeUnknown(str(error)) from error

    def files(self) -> list[LiveFile]:
        found: dict[str, LiveFile] = {}
        for entry in self._entries:
            if entry.is_whole:
                found.clear()
            for key in entry.removed:
                found.pop(key, None)
            found |= {each.file.key: each.file for each in entry.added}
        return list(found.values())

    def first_entry(self) -> str:
        """Return the key of the oldest journal entry that is needed: those before it are not."""
        return self._key(self._entries[0].number)

    def drop(self) -> None:
        self._run(self._read())
        keys = [self._key(each.number) for each in self._entries]
        self._run(self._store.delete(keys))

    def close(self) -> None:
        self._blocking.close()

    def _live(self, file: DataFile) -> LiveFile:
        place = file.key.removeprefix(f"{self._prefix}{STAGED}/")
        return LiveFile(
            key=f"{self._folder}/data/{place.removeprefix('data/')}",
            size_bytes=file.size_bytes,
            rows=file.rows,
            partition=place.rpartition("/")[0],
            bounds=file.bounds,
            values=texts_of(file.partition, self._fields),
        )

    def _whole(self, entry: Entry) -> Entry:
        """Return an entry that stands for all before it, too."""
        gone = set(entry.removed)
        kept = [StagedFile("", each) for each in self.files() if each.key not in gone]
        return msgspec.structs.replace(entry, added=[*kept, *entry.added], is_whole=True)

    async def _append(self, entry: Entry) -> None:
        data = msgspec.json.encode(entry)
        try:
            is_mine = await self._store.create(self._key(entry.number), data)
        except StoreError as error:
            raise OutcomeUnknown(str(error)) from error
        if not is_mine and bytes(await self._store.get(self._key(entry.number))) != data:
            raise CommitConflict(f"another commit has the number {entry.number}")

    async def _place(self, entry: Entry) -> None:
        """Put the files of a commit where readers look, and remove those that it replaced."""
        for each in entry.added:
            if not each.staged:
                continue
            try:
                data = await self._store.get(each.staged)
            except NoSuchObject:
                continue  # it was placed before
            await self._store.put(each.file.key, data, len(data))
        await self._store.delete(entry.removed)
        await self._remove_late(entry)
        await self._store.delete([each.staged for each in entry.added if each.staged])

    async def _remove_late(self, entry: Entry) -> None:
        """Remove what later commits replaced: it may have been put back just now."""
        placed = {each.file.key for each in entry.added if each.staged}
        number = entry.number
        while placed:
            number += 1
            try:
                data = await self._store.get(self._key(number))
            except NoSuchObject:
                return
            later = msgspec.json.decode(bytes(data), type=Entry)
            await self._store.delete(placed.intersection(later.removed))

    async def _is_used(self) -> bool:
        async for page in self._store.list_objects(f"{self._folder}/data/"):
            if page:
                return True
        return False

    async def _read(self) -> None:
        """Read the journal from its last whole entry on."""
        numbers = []
        async for page in self._store.list_objects(f"{self._prefix}log/"):
            names = [each.key.rpartition("/")[2].removesuffix(".json") for each in page]
            numbers += [int(each) for each in names if each.isdigit()]
        known = {each.number: each for each in self._entries}
        entries = []
        for number in sorted(numbers, reverse=True):
            entry = known.get(number)
            if entry is None:
                data = await self._store.get(self._key(number))
                entry = msgspec.json.decode(bytes(data), type=Entry)
            entries.append(entry)
            if entry.is_whole:
                break
        self._entries = entries[::-1]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._blocking.run(work)
        except (StoreError, msgspec.DecodeError) as error:
            raise CatalogFailed(
                f"the journal of {self._store.url}/{self._folder} failed: {error}"
            ) from error

    def _key(self, number: int) -> str:
        return f"{self._prefix}log/{number:012}.json"
