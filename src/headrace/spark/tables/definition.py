"""What a table is: which topic, how it is decoded, where it is written, what is refused. Pure.

A definition is made once, by `create`, is kept in the cluster (`registry`) and goes to executors as
it is. It has no secrets: credentials come from the environment of whoever runs the table.
"""

import re
from difflib import get_close_matches
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.spark.tables.column_types import (
    COLUMNS_MAX,
    AnyField,
    count_columns,
    parse_column,
)

NAME_CHARACTERS_MAX: Final = 128
NAMESPACE: Final = "headrace"
"""The namespace of all tables, and the folder that they are in."""
DEAD_LETTERS: Final = "_dead_letters"
"""What the name of the table with the records that could not be decoded ends with."""
FILE_BYTES: Final = 128 * 1024 * 1024
BATCH_RECORDS: Final = 1_000_000
OLDER_SCHEMAS_BYTES_MAX: Final = 256 * 1024
"""How much of older schemas a definition keeps: it is one record."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRETS: Final = re.compile(
    r"token|secret|passw|pwd|credential|(?:access|account|private|api)[-_.]?key|session"
    r"|authorization|connection-string|^sig(?:nature)?$",
    re.IGNORECASE,
)
NO_SECRETS: Final = "a definition is readable for everybody in the cluster, so it holds no secrets"


class InvalidTable(HeadraceError, ValueError):
    """A definition that cannot be meant."""


class Format(StrEnum):
    """What values are."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    RAW = "raw"


class Target(StrEnum):
    """What is written."""

    ICEBERG = "iceberg"
    DELTA = "delta"
    PARQUET = "parquet"


class Mode(StrEnum):
    """What a record does to the table."""

    APPEND = "append"
    UPSERT = "upsert"


class OnViolation(StrEnum):
    """What becomes of a record that breaks a rule."""

    DEAD_LETTER = "dead-letter"
    FAIL = "fail"
    COUNT = "count"


class Start(StrEnum):
    """Where a new table begins in its topic."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OlderSchema(msgspec.Struct, frozen=True):
    """A schema of Avro or Protobuf that a table had before it was altered."""

    schema_text: str
    message: str = ""
    has_registry_header: bool = False


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One table. `check` says whether it can be meant."""

    name: str
    id: str
    """The query id: new with every `create`."""
    topic: str
    location: str
    """The URL of a folder or of a bucket and prefix."""
    format: Format = Format.JSON
    to: Target = Target.ICEBERG
    mode: Mode = Mode.APPEND
    columns: tuple[str, ...] = ()
    """Given columns, as `name:type`."""
    evolves: bool = True
    """Whether new columns of the stream become columns of the table."""
    schema_text: str = ""
    """The schema of Avro, or the descriptor set of Protobuf in base64."""
    message: str = ""
    """The message type of Protobuf."""
    has_registry_header: bool = False
    """Whether values begin with the five bytes of a schema registry."""
    older_schemas: tuple[OlderSchema, ...] = ()
    """What rows may have been decoded by, the newest first: `verify` asks."""
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    on_violation: OnViolation = OnViolation.DEAD_LETTER
    has_changed_rules: bool = False
    """Whether the table has, or may have, rows that were judged by other rules."""
    fails_on_bad_record: bool = False
    """Whether a record that cannot be decoded stops the table instead of being a dead letter."""
    start: Start = Start.EARLIEST
    start_offsets: dict[str, int] = {}
    """Explicit first offsets by partition; partitions that are not here follow `start`."""
    topic_id: str = ""
    """The topic that `start_offsets` are of: those of another one of its name mean nothing."""
    partition_count: int = 0
    """The topic's partitions when the table was created: an upserted table's keys must not move."""
    catalog: dict[str, str] = {}
    """Properties of a catalog of the user's; none for SQLite in the location."""
    store_endpoint: str = ""
    store_region: str = ""
    store_allow_http: bool = False
    file_bytes: int = FILE_BYTES
    batch_records: int = BATCH_RECORDS
    version: int = 1

    @property
    def dead_letters(self) -> str:
        """The name of the table with the records that could not be decoded."""
        return self.name + DEAD_LETTERS

    @property
    def group(self) -> str:
        """The consumer group that shows the table's progress to every lag tool."""
        return f"headrace-table-{self.name}"

    @property
    def own_schema(self) -> OlderSchema:
        """What values are decoded by now."""
        return OlderSchema(self.schema_text, self.message, self.has_registry_header)

    def given_fields(self) -> list[AnyField]:
        return [parse_column(each) for each in self.columns]


_TIME: Final[pa.DataType] = pa.timestamp("us", tz="UTC")
_WHERE_FROM: Final[list[AnyField]] = [
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", _TIME),
    pa.field("_key", pa.binary()),
]
METADATA: Final = pa.schema(_WHERE_FROM)
"""The columns of every table: where a row comes from."""
_LETTER: Final[list[AnyField]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIME),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("reason", pa.string()),
]
LETTERS: Final = pa.schema(_LETTER)
"""The columns of a table of dead letters."""


def check_name(name: str) -> str:
    """Return a name that every format and SQL take as it is."""
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidTable(
            f"table name {name!r}: letters, digits and underscores make one, at most "
            f"{NAME_CHARACTERS_MAX}, and no digit comes first"
        )
    if name.endswith(DEAD_LETTERS):
        raise InvalidTable(f"table name {name!r}: {DEAD_LETTERS!r} is for tables of dead letters")
    return name


def check(definition: Definition) -> Definition:
    """Return a definition that can be meant; InvalidTable says what cannot."""
    check_name(definition.name)
    given = definition.given_fields()
    _check_columns(given)
    _check_format(definition, given)
    _check_urls(definition)
    if definition.catalog:
        if definition.to is not Target.ICEBERG:
            raise InvalidTable("--catalog is for --to iceberg")
        _check_catalog(definition.catalog)
    for name in ("file_bytes", "batch_records"):
        if getattr(definition, name) < 1:
            raise InvalidTable(f"{name.replace('_', ' ')}: at least 1")
    return definition


def _check_format(definition: Definition, given: list[AnyField]) -> None:
    """Refuse options that have no meaning for a format."""
    if definition.format in (Format.AVRO, Format.PROTOBUF):
        if not definition.schema_text:
            raise InvalidTable(f"--format {definition.format} needs a schema: --schema FILE")
        if given:
            raise InvalidTable(
                f"--column is for JSON; the columns of {definition.format} are those of its schema"
            )
    elif definition.schema_text:
        raise InvalidTable(f"--schema has no meaning for {definition.format}; --column gives types")
    if definition.format is Format.PROTOBUF and not definition.message:
        raise InvalidTable("--format protobuf needs the name of the message: --message pkg.Name")
    if definition.format is not Format.PROTOBUF and definition.message:
        raise InvalidTable("--message is for --format protobuf")
    if definition.format is Format.RAW and given:
        raise InvalidTable("--format raw has the columns key and value; --column is for JSON")
    if definition.format in (Format.RAW, Format.JSON) and definition.has_registry_header:
        raise InvalidTable("--registry-header is for avro and protobuf")
    if not definition.evolves and definition.format is Format.JSON and not given:
        raise InvalidTable("--no-evolve needs the columns: --column name:type for each")


def remember_schema(definition: Definition, old: Definition) -> Definition:
    """Return a definition that knows what its rows were decoded by until now."""
    if definition.own_schema == old.own_schema:
        return definition
    kept: list[OlderSchema] = []
    left = OLDER_SCHEMAS_BYTES_MAX
    for each in (old.own_schema, *old.older_schemas):
        left -= len(each.schema_text.encode())
        if left < 0:
            break
        kept.append(each)
    return msgspec.structs.replace(definition, older_schemas=tuple(kept))


def suggest(name: str, known: list[str]) -> str:
    """Return a question for a misspelt name, or nothing."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _check_columns(given: list[AnyField]) -> None:
    seen: dict[str, str] = {}
    for each in given:
        if each.name.lower() in seen:
            raise InvalidTable(f"columns {seen[each.name.lower()]!r} and {each.name!r} are one")
        seen[each.name.lower()] = each.name
        if each.name in METADATA.names:
            raise InvalidTable(f"column {each.name!r} is one that every table has")
    if count_columns(each.type for each in given) > COLUMNS_MAX:
        raise InvalidTable(f"a table has at most {COLUMNS_MAX} columns")


def _check_urls(definition: Definition) -> None:
    """Refuse passwords in URLs, without repeating them."""
    urls = {
        "the endpoint of the store": definition.store_endpoint,
        **{f"--catalog {name}": text for name, text in definition.catalog.items()},
    }
    for what, text in urls.items():
        if _has_password(text):
            raise InvalidTable(
                f"{what} has a password: {NO_SECRETS}; leave it to the environment (PGPASSWORD, "
                "AWS_SECRET_ACCESS_KEY and others)"
            )


def _has_password(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.password) or any(
            _SECRETS.search(name) for name, _ in parse_qsl(parts.query)
        )
    except ValueError:
        return "@" in text  # a URL that cannot be taken apart


def _check_catalog(properties: dict[str, str]) -> None:
    for name in properties:
        if _SECRETS.search(name):
            raise InvalidTable(
                f"--catalog {name}: {NO_SECRETS}; pyiceberg reads "
                "PYICEBERG_CATALOG__HEADRACE__... from the environment"
            )
    if "uri" not in properties:
        raise InvalidTable("--catalog needs uri=..., and type=rest unless pyiceberg knows it")
