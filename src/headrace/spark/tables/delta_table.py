"""Delta through deltalake: a commit per batch, an application transaction per partition.

The version of the transaction `<table id>/<partition>` is the next offset of that partition, so
Delta itself keeps the offsets, also through checkpoints of its log; the epoch is another one. Two
commits that set the same transaction conflict. So of two writers on one head only one succeeds.
"""

import json
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace.ids import TopicId, parse_topic_id, topic_id_text
from headrace.remote.store_options import StoreOptions, parse_store_url
from headrace.spark.tables import commits
from headrace.spark.tables.commits import CommitConflict, FilesGone, Head, OutcomeUnknown
from headrace.spark.tables.data_files import DataFile, read_footer
from headrace.spark.tables.definition import NAMESPACE, Definition
from headrace.spark.tables.partitioning import PartitionField, partition_fields, path_text
from headrace.spark.tables.table_store import (
    CatalogFailed,
    Change,
    LiveFile,
    NoSuchTable,
    TableExists,
)
from headrace.surroundings import clocks

OFFSET: Final = "offset"
BEGIN: Final = "begin"
LEADER: Final = "leader"
EPOCH: Final = "epoch"
TOPIC: Final = "topic"
TOPIC_BYTES: Final = (6, 6, 4)
BATCH: Final = "batch"
PARTITIONS: Final = "partitions"
"""How many partitions have an offset, so that a reader knows which transactions to ask for."""
CONFIGURATION: Final[dict[str, str | None]] = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
}
"""Settings of new tables.

A batch every ten seconds is 8,640 entries of the log a day; `compact` removes older ones, behind a
checkpoint.
"""


FOREIGN_FEATURES: Final = frozenset({"columnMapping", "deletionVectors"})


class DeltaLakeTable:
    """One table of Delta."""

    def __init__(self, definition: Definition, name: str, options: StoreOptions) -> None:
        self._definition = definition
        self._url = parse_store_url(definition.location, options).text
        self._folder = f"{NAMESPACE}/{name}"
        self._fields = partition_fields(definition) if name == definition.name else []
        self._storage = storage_options(definition)
        self._table: DeltaTable | None = None

    @property
    def uri(self) -> str:
        return f"{self._url}/{self._folder}"

    def create(self, schema: pa.Schema) -> None:
        columns = pa.schema([*schema, *self._generated(schema)])
        try:
            DeltaTable.create(
                self.uri,
                Schema.from_arrow(columns),
                mode="error",
                partition_by=[each.name for each in self._fields] or None,
                storage_options=self._storage,
                configuration=CONFIGURATION,
                name=self._folder.rpartition("/")[2],
                description=self._description(),
            )
        except DeltaError as error:
            if "already exists" in str(error).lower():
                raise TableExists(f"there is a Delta table in {self.uri} already") from None
            raise self._failed(error) from error
        except OSError as error:
            raise self._failed(error) from error

    def head(self) -> Head:
        try:
            table = self._table = DeltaTable(self.uri, storage_options=self._storage)
        except TableNotFoundError:
            raise NoSuchTable(f"there is no Delta table in {self.uri} any more") from None
        except (DeltaError, OSError) as error:
            raise self._failed(error) from error
        if table.metadata().description != self._description():
            raise TableExists(f"the Delta table in {self.uri} belongs to another definition")
        self._check_features(table)
        return Head(
            offsets=self._numbers(OFFSET),
            begins=self._numbers(BEGIN),
            leaders=self._numbers(LEADER),
            epoch=self._version(EPOCH) or 0,
            batch=-1 if (batch := self._version(BATCH)) is None else batch,
            topic_id=self._topic_id(),
            version=str(table.version()),
        )

    def _check_features(self, table: DeltaTable) -> None:
        """Raise CatalogFailed if files do not say any more which rows and columns there are."""
        found = FOREIGN_FEATURES.intersection(table.protocol().reader_features or ())
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            found |= {"columnMapping"}
        if found:
            raise CatalogFailed(
                f"others have switched on {' and '.join(sorted(found))} for the Delta table "
                f"{self.uri}, so its files alone do not say any more which rows and columns it "
                "has: drop that feature there, or create the table again"
            )

    def schema(self) -> pa.Schema:
        generated = {each.name for each in self._fields if each.transform != "identity"}
        arrow: Any = self._known().schema().to_arrow()
        columns = pa.schema(arrow)
        return pa.schema([_plain(each) for each in columns if each.name not in generated])

    def evolve(self, schema: pa.Schema) -> None:
        table = self._known()
        known = self.schema()
        for each in schema:
            if each.name in known.names and not _same(known.field(each.name).type, each.type):
                if pa.types.is_nested(each.type):
                    raise CatalogFailed(
                        f"column {each.name!r} of the Delta table {self.uri} gets new fields "
                        "inside, which deltalake cannot add: give the whole column with --column, "
                        "or use Iceberg"
                    )
                raise CatalogFailed(
                    f"column {each.name!r} of the Delta table {self.uri} cannot be widened: "
                    "deltalake does not; create the table again with --column"
                )
        new = [each for each in schema if each.name not in known.names]
        fields = Schema.from_arrow(pa.schema(new)).fields
        try:
            table.alter.add_columns(fields)
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from None
        except (DeltaError, OSError) as error:
            raise self._failed(error) from error

    def commit(self, head: Head, change: Change) -> None:
        table = self._known()
        assert head.version == str(table.version())
        now_ms = clocks().time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            self._add(each, now_ms, is_new=not change.is_rearrangement) for each in change.added
        ]
        if change.removed:
            live = {each.key for each in self.files()}
            if not live.issuperset(change.removed):
                raise FilesGone("files that were to be replaced are not in the table any more")
            actions += [
                RemoveAction(self._path(key), not change.is_rearrangement, now_ms)
                for key in change.removed
            ]
        try:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=[each.name for each in self._fields],
                commit_properties=CommitProperties(
                    custom_metadata=dict(change.properties),
                    max_commit_retries=0,
                    app_transactions=self._transactions(change.properties),
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from None
        except (DeltaError, OSError) as error:
            raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error

    def files(self) -> list[LiveFile]:
        found = pa.table(self._known().get_add_actions(flatten=True)).to_pylist()
        return [
            LiveFile(
                # The log has paths of URLs.
                key=f"{self._folder}/{unquote(each['path'])}",
                size_bytes=each["size_bytes"],
                rows=each["num_records"] or 0,
                partition=json.dumps(
                    {
                        field.name: _text(each[f"partition.{field.name}"], field)
                        for field in self._fields
                    }
                ),
                values={
                    field.name: _text(each[f"partition.{field.name}"], field)
                    for field in self._fields
                    if field.transform == "identity"
                },
                bounds={
                    name: (each[f"min.{name}"], each[f"max.{name}"])
                    for name in ("_partition", "_offset", "partition", "offset")
                    if each.get(f"min.{name}") is not None
                },
            )
            for each in found
        ]

    def drop(self) -> None:
        """Nothing: there is no catalog, the folder is the table."""

    def close(self) -> None:
        self._table = None

    def _add(self, file: DataFile, now_ms: int, *, is_new: bool) -> AddAction:
        values = {
            field.name: path_text(value, field)
            for field, value in zip(self._fields, file.partition, strict=True)
        }
        return AddAction(
            self._path(file.key), file.size_bytes, values, now_ms, is_new, _statistics(file)
        )

    def _path(self, key: str) -> str:
        """Return a file's path as deltalake takes it: it makes a URL of it by itself."""
        return key.removeprefix(self._folder + "/")

    def _transactions(self, properties: dict[str, str]) -> list[Transaction]:
        offsets = commits.offsets_of(properties.get(commits.OFFSETS, "{}"))
        numbers = {f"{OFFSET}/{each}": offset for each, offset in offsets.items()}
        begins = commits.offsets_of(properties.get(commits.BEGINS, "{}"))
        numbers |= {f"{BEGIN}/{each}": offset for each, offset in begins.items()}
        leaders = commits.offsets_of(properties.get(commits.LEADERS, "{}"))
        numbers |= {f"{LEADER}/{each}": epoch for each, epoch in leaders.items()}
        if topic_id := properties.get(commits.TOPIC_ID):
            rest = parse_topic_id(topic_id)
            for each, size in enumerate(TOPIC_BYTES):
                numbers[f"{TOPIC}/{each}"] = int.from_bytes(rest[:size], "big")
                rest = TopicId(rest[size:])
        numbers[PARTITIONS] = max(offsets, default=-1) + 1
        numbers[EPOCH] = int(properties.get(commits.EPOCH, 0))
        numbers[BATCH] = max(0, int(properties.get(commits.BATCH, 0)))
        return [Transaction(self._application(name), each) for name, each in numbers.items()]

    def _description(self) -> str:
        """Return what tells a table of this definition from any other."""
        return f"headrace table {self._definition.id} of topic {self._definition.topic}"

    def _topic_id(self) -> str:
        """Return the id of the topic, which is in three numbers: each has less than 63 bits."""
        parts = [self._version(f"{TOPIC}/{each}") for each in range(len(TOPIC_BYTES))]
        found = b"".join(
            part.to_bytes(size, "big")
            for part, size in zip(parts, TOPIC_BYTES, strict=True)
            if part is not None
        )
        return topic_id_text(TopicId(found)) if len(found) == sum(TOPIC_BYTES) else ""

    def _numbers(self, kind: str) -> dict[int, int]:
        count = self._version(PARTITIONS) or 0
        found = {each: self._version(f"{kind}/{each}") for each in range(count)}
        return {each: offset for each, offset in found.items() if offset is not None}

    def _version(self, name: str) -> int | None:
        return self._known().transaction_version(self._application(name))

    def _application(self, name: str) -> str:
        return f"headrace/{self._definition.id}/{name}"

    def _generated(self, schema: pa.Schema) -> list[Any]:
        return [
            pa.field(each.name, pa.string())
            for each in self._fields
            if each.name not in schema.names
        ]

    def _known(self) -> DeltaTable:
        assert self._table is not None, "head() comes first"
        return self._table

    def _failed(self, error: Exception) -> CatalogFailed:
        text = " ".join(str(error).split())[:300]
        return CatalogFailed(f"the Delta table {self.uri} failed: {text}")


def storage_options(definition: Definition) -> dict[str, str]:
    """Return how delta-rs reaches the store; credentials come from the environment."""
    found = {}
    if definition.store_endpoint:
        found["AWS_ENDPOINT_URL"] = definition.store_endpoint
    if definition.store_region:
        found["AWS_REGION"] = definition.store_region
    if definition.store_allow_http:
        found["AWS_ALLOW_HTTP"] = "true"
    if definition.location.startswith("s3://"):
        found["aws_conditional_put"] = "etag"
    return found


def _text(value: Any, field: PartitionField) -> str | None:
    """Return a partition's value as text; generated ones are text already."""
    return value if field.transform != "identity" else path_text(value, field)


def _statistics(file: DataFile) -> str:
    """Return what Delta wants to know of a file: rows, and the bounds of where they come from."""
    assert read_footer(file.footer).num_rows == file.rows
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {name: low for name, (low, _) in file.bounds.items()},
            "maxValues": {name: high for name, (_, high) in file.bounds.items()},
            "nullCount": dict.fromkeys(file.bounds, 0),
        }
    )


def _plain(field: Any) -> Any:
    """Return a field in the types that decoders make."""
    kind = field.type
    names: dict[str, Any] = {"string_view": pa.string(), "binary_view": pa.binary()}
    kind = names.get(str(kind), kind)
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_plain(kind.field(index)) for index in range(kind.num_fields)])
    return pa.field(field.name, kind)


def _same(first: pa.DataType, second: pa.DataType) -> bool:
    return bool(_plain(pa.field("", first)).type.equals(_plain(pa.field("", second)).type))
