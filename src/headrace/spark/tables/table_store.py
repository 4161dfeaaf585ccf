"""A table in one of the formats, as the rest sees it.

`head` is read anew with every call. `commit` succeeds only on the head that it is given: it raises
CommitConflict if the head is another one by now, and OutcomeUnknown if nobody can say. It never
removes a file.
"""

from typing import Protocol

import msgspec
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.remote.store_options import StoreOptions
from headrace.spark.tables.commits import Head
from headrace.spark.tables.data_files import DataFile
from headrace.spark.tables.definition import Definition, Target
from headrace.spark.tables.extras import import_extra


class TableExists(HeadraceError):
    """A table of that name is there, and it is not this one."""


class NoSuchTable(HeadraceError):
    """The definition is there, and the table is not."""


class CatalogFailed(HeadraceError):
    """The catalog, or the log of the table, cannot be reached or read."""


class LiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the table consists of."""

    key: str
    size_bytes: int
    rows: int
    partition: str = ""
    """The partition that it is in, as text: only files of one partition can be merged."""
    bounds: dict[str, tuple[int, int]] = {}
    values: dict[str, str | None] = {}
    """The columns that the file lacks, as its partition says what they are; see `path_text`."""
    deletes: tuple[str, ...] = ()
    """Files of others that say which rows of this one are deleted, by their positions."""
    path: str = ""
    """What those call it."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit does."""

    added: list[DataFile] = []
    removed: list[str] = []
    properties: dict[str, str] = {}
    """What the commit says: see `commits`."""
    is_rearrangement: bool = False
    """Whether rows are the same before and after, as with a compaction."""


class TableStore(Protocol):
    """One table."""

    def create(self, schema: pa.Schema) -> None:
        """Create the table; TableExists if there is one."""

    def head(self) -> Head:
        """Return what the table says of itself now."""

    def schema(self) -> pa.Schema:
        """Return the columns of data files, as of the last `head`."""

    def evolve(self, schema: pa.Schema) -> None:
        """Add and widen columns; CommitConflict if somebody else changed the table."""

    def commit(self, head: Head, change: Change) -> None:
        """Apply a change to this head."""

    def files(self) -> list[LiveFile]:
        """Return the files of the last `head`."""

    def drop(self) -> None:
        """Remove the table from its catalog; its files are the caller's."""

    def close(self) -> None:
        """Release what is open."""


def open_table(definition: Definition, name: str, options: StoreOptions) -> TableStore:
    """Return a table of a definition: its own, or that of its dead letters."""
    if definition.to is Target.ICEBERG:
        import_extra("pyiceberg")
        import_extra("sqlalchemy")
        from headrace.spark.tables.iceberg_table import IcebergTable  # noqa: PLC0415  an extra

        return IcebergTable(definition, name, options)
    if definition.to is Target.DELTA:
        import_extra("deltalake")
        from headrace.spark.tables.delta_table import DeltaLakeTable  # noqa: PLC0415  an extra

        return DeltaLakeTable(definition, name, options)
    from headrace.spark.tables.parquet_table import ParquetTable  # noqa: PLC0415  one of three

    return ParquetTable(definition, name, options)
