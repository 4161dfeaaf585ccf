"""Iceberg through pyiceberg: a snapshot per batch, with the offsets in its summary.

Without a catalog of the user's there is one in the location, `catalog.db` (`sqlite_catalog`).

A commit goes to the catalog as updates and requirements, not through pyiceberg's transaction: that
one repeats a commit without reading the offsets again, and deletes manifests after a conflict which
may not have been one. Files that no snapshot names are left for `compact`.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType

from headrace.errors import HeadraceError
from headrace.remote.store_options import StoreOptions, parse_store_url
from headrace.spark.tables import commits
from headrace.spark.tables.commits import CommitConflict, FilesGone, Head, OutcomeUnknown
from headrace.spark.tables.data_files import DataFile, read_footer
from headrace.spark.tables.decoding import short_reason
from headrace.spark.tables.definition import NAMESPACE, Definition
from headrace.spark.tables.iceberg_types import arrow_schema
from headrace.spark.tables.partitioning import PartitionField, partition_fields, plain_value
from headrace.spark.tables.sqlite_catalog import CATALOG, catalog_properties, share_names
from headrace.spark.tables.table_store import (
    CatalogFailed,
    Change,
    LiveFile,
    NoSuchTable,
    TableExists,
)

_TRANSFORMS: Final[dict[str, Transform[Any, Any]]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
DEFINED_BY: Final = "headrace.table-id"
PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "format-version": "2",
}


class IcebergTable:
    """One table of a catalog."""

    def __init__(self, definition: Definition, name: str, options: StoreOptions) -> None:
        self._definition = definition
        self._identifier = (NAMESPACE, name)
        self._url = parse_store_url(definition.location, options).text
        self._options = options
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._deletes: dict[str, tuple[str, ...]] = {}
        """What others have deleted of rows by their positions, as of the last `files`."""

    @property
    def is_main(self) -> bool:
        return self._identifier[1] == self._definition.name

    def create(self, schema: pa.Schema) -> None:
        catalog = self._open()
        with _catalog_errors(self._definition):
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(NAMESPACE)
            try:
                self._table = catalog.create_table(
                    self._identifier,
                    schema,
                    location=f"{self._url}/{NAMESPACE}/{self._identifier[1]}",
                    properties={**PROPERTIES, DEFINED_BY: self._definition.id},
                )
            except TableAlreadyExistsError:
                raise TableExists(self._exists(catalog)) from None
            if self.is_main:
                self._arrange()
            if not self._definition.catalog:
                share_names(self._definition.location)

    def head(self) -> Head:
        with _catalog_errors(self._definition):
            try:
                table = self._table = self._open().load_table(self._identifier)
            except NoSuchTableError:
                raise NoSuchTable(
                    f"there is no table {'.'.join(self._identifier)} in the catalog of "
                    f"{self._url}: was it dropped? `headrace table drop {self._definition.name}` "
                    "removes the definition, too"
                ) from None
        owner = table.metadata.properties.get(DEFINED_BY)
        if owner != self._definition.id:
            raise TableExists(
                f"table {'.'.join(self._identifier)} in {self._url} belongs to another definition "
                f"({owner or 'it was not made by headrace'}); choose another name or location"
            )
        return self._head_of(table)

    def schema(self) -> pa.Schema:
        return arrow_schema(self._known().schema())

    def evolve(self, schema: pa.Schema) -> None:
        table = self._known()
        with _catalog_errors(self._definition):
            try:
                with table.update_schema() as update:
                    update.union_by_name(pa.schema([_bare(each) for each in schema]))
            except CommitFailedException as error:
                raise CommitConflict(f"the table's schema was changed by others: {error}") from None

    def commit(self, head: Head, change: Change) -> None:
        table = self._known()
        assert head.version == _version(table)
        requirements, updates = self._prepare(table, change)
        try:
            self._open().commit_table(table, requirements, updates)
        except (CommitFailedException, ValidationException) as error:
            raise CommitConflict(str(error)) from None
        except Exception as error:
            raise OutcomeUnknown(f"{type(error).__name__}: {short_reason(error)}") from error

    def _prepare(self, table: Table, change: Change) -> tuple[Any, Any]:
        """Write the manifests; return what the catalog is asked for. Nothing is committed here."""
        try:
            return self._updates(table, change)
        except ValidationException as error:
            raise CommitConflict(str(error)) from None
        except OSError as error:
            raise CommitConflict(f"{type(error).__name__}: {short_reason(error)}") from error
        except HeadraceError:
            raise
        except Exception as error:
            name = ".".join(self._identifier)
            raise CatalogFailed(
                f"table {name}: pyiceberg cannot describe the files of a commit "
                f"({type(error).__name__}: {short_reason(error)}): nothing was committed"
            ) from error

    def _check_partitions(self, table: Table) -> None:
        """Raise CatalogFailed if others have changed what the table is partitioned by.

        Files would be in partitions that they are not in, and filtered reads would miss rows.
        """
        fields = partition_fields(self._definition) if self.is_main else []
        wanted = [(each.column, str(_transform(each))) for each in fields]
        found = [
            (table.schema().find_column_name(each.source_id), str(each.transform))
            for each in table.spec().fields
        ]
        if found != wanted:
            then, now = (
                " and ".join(f"{how} of {name}" for name, how in each) or "nothing"
                for each in (wanted, found)
            )
            raise CatalogFailed(
                f"table {'.'.join(self._identifier)} was created to be partitioned by {then}, and "
                f"is by {now} now: change that back, or create the table again"
            )

    def _updates(self, table: Table, change: Change) -> tuple[Any, Any]:
        if change.added:
            self._check_partitions(table)
        transaction = table.transaction()
        # For the day when the last snapshot that says so is expired.
        transaction.set_properties(
            {
                name: change.properties[name]
                for name in (
                    *(commits.OFFSETS, commits.BEGINS, commits.LEADERS),
                    *(commits.EPOCH, commits.BATCH, commits.TOPIC_ID),
                )
                if name in change.properties
            }
        )
        update = transaction.update_snapshot(snapshot_properties=change.properties)
        producer: Any = update.overwrite() if change.removed else update.fast_append()
        for each in change.added:
            producer.append_data_file(self._data_file(table, each))
        if change.removed:
            for old in self._find(table, change.removed):
                producer.delete_data_file(old)
        producer.commit()
        requirements = (
            *transaction._requirements,
            AssertTableUUID(uuid=table.metadata.table_uuid),
        )
        return requirements, transaction._updates

    def files(self) -> list[LiveFile]:
        table = self._known()
        ids: dict[int, str] = {
            table.schema().find_field(name).field_id: name
            for name in ("_partition", "_offset", "partition", "offset")
            if name in table.schema().column_names
        }
        with _catalog_errors(self._definition):
            tasks = list(table.scan().plan_files())
        self._deletes = {self.key_of(each.file.file_path): self._deletes_of(each) for each in tasks}
        return [self._live(each, ids) for each in tasks]

    def drop(self) -> None:
        with _catalog_errors(self._definition):
            try:
                self._open().drop_table(self._identifier)
            except NoSuchTableError:
                return

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    @property
    def table(self) -> Table:
        """pyiceberg's own table, as of the last `head`; for maintenance."""
        return self._known()

    def key_of(self, path: str) -> str:
        """Return a file's place below the location, whoever has written it."""
        return _as_ours(path).removeprefix(self._url).lstrip("/")

    def _head_of(self, table: Table) -> Head:
        """Return what the newest snapshot of ours says; others may have written since."""
        snapshot = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            if summary is not None and commits.OFFSETS in summary.additional_properties:
                return commits.from_properties(summary.additional_properties, _version(table))
            if snapshot.parent_snapshot_id is None:
                break
            parent = table.snapshot_by_id(snapshot.parent_snapshot_id)
            if parent is None:  # expired
                return commits.from_properties(table.metadata.properties, _version(table))
            snapshot = parent
        return Head(offsets={}, version=_version(table))

    def _arrange(self) -> None:
        """Set what the table is partitioned and sorted by."""
        table = self._known()
        fields = partition_fields(self._definition)
        if fields:
            with table.update_spec() as spec:
                for each in fields:
                    name = each.name if each.transform != "identity" else f"{each.column}_identity"
                    spec.add_field(each.column, _transform(each), name)
        if self._definition.sort_by:
            with table.update_sort_order() as order:
                for name in self._definition.sort_by:
                    order.asc(name, IdentityTransform())

    def _data_file(self, table: Table, written: DataFile) -> IcebergFile:
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._url}/{written.key}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(plain_value(each) for each in written.partition)),
            file_size_in_bytes=written.size_bytes,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **_statistics(table, written),
        )

    def _find(self, table: Table, keys: list[str]) -> list[IcebergFile]:
        wanted = set(keys)
        tasks = [
            each for each in table.scan().plan_files() if self.key_of(each.file.file_path) in wanted
        ]
        if len(tasks) != len(wanted):
            raise FilesGone("files that were to be replaced are not in the table any more")
        for each in tasks:
            key = self.key_of(each.file.file_path)
            if self._deletes_of(each) != self._deletes.get(key, ()):
                raise FilesGone(f"others have just deleted rows of {key}")
        return [each.file for each in tasks]

    def _deletes_of(self, task: FileScanTask) -> tuple[str, ...]:
        """Return the files that say which rows of a file are deleted."""
        for each in task.delete_files:
            if each.file_format != FileFormat.PARQUET:
                raise CatalogFailed(
                    f"rows of {task.file.file_path} are deleted by a file of the kind "
                    f"{each.file_format}, which is not understood: rewrite the table's files with "
                    "the program that deleted them"
                )
        return tuple(sorted(self.key_of(each.file_path) for each in task.delete_files))

    def _live(self, task: FileScanTask, ids: dict[int, str]) -> LiveFile:
        file = task.file
        low, high = file.lower_bounds or {}, file.upper_bounds or {}
        bounds = {
            name: (
                int.from_bytes(low[field], "little", signed=True),
                int.from_bytes(high[field], "little", signed=True),
            )
            for field, name in ids.items()
            if field in low and field in high
        }
        return LiveFile(
            key=self.key_of(file.file_path),
            size_bytes=file.file_size_in_bytes,
            rows=file.record_count,
            partition=f"{file.spec_id}{_values(file.partition)!r}" if file.partition else "",
            bounds=bounds,
            deletes=self._deletes_of(task),
            path=file.file_path,
        )

    def _known(self) -> Table:
        assert self._table is not None, "head() comes first"
        return self._table

    def _open(self) -> Catalog:
        if self._catalog is None:
            with _catalog_errors(self._definition):
                properties = catalog_properties(self._definition, self._options)
                self._catalog = load_catalog(CATALOG, **properties)
        return self._catalog

    def _exists(self, catalog: Catalog) -> str:
        name = ".".join(self._identifier)
        columns = ", ".join(catalog.load_table(self._identifier).schema().column_names)
        return (
            f"table {name} exists in the catalog of {self._url}, with the columns {columns}: "
            "choose another name, or drop it there"
        )


def _transform(field: PartitionField) -> Transform[Any, Any]:
    return _TRANSFORMS.get(field.transform) or BucketTransform(field.buckets)


def _statistics(table: Table, written: DataFile) -> dict[str, Any]:
    """Return the counts and bounds of a file's columns, as manifests have them."""
    schema, footer = table.schema(), read_footer(written.footer)
    plan = compute_statistics_plan(schema, table.metadata.properties)
    mapping = parquet_path_to_id_mapping(schema)

    def describe(columns: Any) -> dict[str, Any]:
        found = data_file_statistics_from_parquet_metadata(footer, columns, mapping)
        return found.to_serialized_dict()

    try:
        return describe(plan)
    except (OverflowError, ValueError):
        # pyiceberg makes Python's datetimes of the bounds, and those end with the year 9999; and it
        # rounds U+D7FF at the end of a shortened text up to what no text has.
        counts = MetricsMode(MetricModeTypes.COUNTS)
        return describe(
            {
                each: column
                if isinstance(column.iceberg_type, (IntegerType, LongType))
                else replace(column, mode=counts)
                for each, column in plan.items()
            }
        )


def _as_ours(path: str) -> str:
    """Return a path as we write it: Hadoop has other schemes for the same files."""
    scheme, colon, rest = path.partition(":")
    if scheme in ("s3a", "s3n"):
        return f"s3{colon}{rest}"
    return f"file:///{rest.lstrip('/')}" if scheme == "file" else path


def _values(partition: Any) -> tuple[Any, ...]:
    return tuple(partition)


def _version(table: Table) -> str:
    """Return what identifies a state of a table: its schema may change between snapshots."""
    return PurePosixPath(table.metadata_location).name


def _bare(field: Any) -> Any:
    """Return a field without ids: a new one gets its own, an old one is found by its name."""
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_bare(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_bare(kind.field(index)) for index in range(kind.num_fields)])
    return pa.field(field.name, kind, field.nullable)


class _catalog_errors:  # noqa: N801  a context manager
    """Turns what a catalog's library raises into one error that names the catalog."""

    def __init__(self, definition: Definition) -> None:
        self._where = definition.catalog.get("uri") or f"{definition.location}/catalog.db"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None or isinstance(error, HeadraceError) or not isinstance(error, Exception):
            return
        text = " ".join(str(error).split())[:300]
        raise CatalogFailed(
            f"the catalog {self._where} failed ({type(error).__name__}: {text}): nothing was "
            "committed; run the table again when it works"
        ) from error
