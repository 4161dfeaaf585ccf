"""Avro values to columns, with fastavro.

Unions of null and one other type are nullable columns; a union of several is refused when the table
is created, as a column has one type. Maps become lists of key and value, enums and fixed become
text and bytes.
"""

import io
import json
from typing import Any, Final

import pyarrow as pa

from headrace.spark.tables.column_types import DEPTH_MAX
from headrace.spark.tables.decoding import (
    BadValue,
    BinaryArray,
    Decoded,
    decode_rows,
    short_reason,
)
from headrace.spark.tables.definition import METADATA, Definition, InvalidTable
from headrace.spark.tables.extras import import_extra
from headrace.spark.tables.fitting import DIGITS_MAX

REGISTRY_BYTES: Final = 5
"""A zero and the id of the schema, as a registry's serializers write them."""
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "uuid": pa.string(),
}


class AvroDecoder:
    """Values of one schema."""

    def __init__(self, definition: Definition, columns: pa.Schema) -> None:
        self._read = import_extra("fastavro").schemaless_reader
        schema = _without_others(json.loads(definition.schema_text))
        self._schema = import_extra("fastavro").parse_schema(schema)
        self._skip = REGISTRY_BYTES if definition.has_registry_header else 0
        self._columns = columns

    def decode(self, values: BinaryArray) -> Decoded:
        rows: list[tuple[int, dict[str, Any]]] = []
        bad: list[BadValue] = []
        found: list[Any] = values.to_pylist()
        for index, value in enumerate(found):
            try:
                rows.append((index, self._decode(value)))
            except Exception as error:  # fastavro raises whatever it meets
                bad.append(BadValue(index, f"not of the Avro schema: {short_reason(error)}"))
        return decode_rows(rows, bad, self._columns)

    def _decode(self, value: bytes) -> dict[str, Any]:
        if self._skip and (len(value) < self._skip or value[0]):
            raise ValueError("it does not begin with the five bytes of a registry")
        stream = io.BytesIO(value)
        stream.seek(self._skip)
        row = self._read(stream, self._schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
        return {each.name: _plain(row.get(each.name), each.type) for each in self._columns}


def _without_others(schema: Any) -> Any:
    """Return a schema without the logical types that no column has: their values are numbers then.

    fastavro would make times of a day, and local times, of them.
    """
    if isinstance(schema, list):
        return [_without_others(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_others(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or value in (*_LOGICAL, "decimal")
    }


def avro_columns(definition: Definition) -> pa.Schema:
    """Return the columns of a schema; InvalidTable for what a table cannot have."""
    fastavro = import_extra("fastavro")
    try:
        schema = fastavro.parse_schema(json.loads(definition.schema_text))
    except Exception as error:  # JSON's and fastavro's
        raise InvalidTable(f"--schema is not an Avro schema: {short_reason(error)}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidTable("--schema: an Avro schema of a table is a record")
    named: dict[str, Any] = {}
    fields = [
        pa.field(each["name"], _kind(each["type"], each["name"], named, 0))
        for each in schema["fields"]
    ]
    clash = sorted({each.name for each in fields}.intersection(METADATA.names))
    if clash:
        raise InvalidTable(f"--schema: column {clash[0]!r} is one that every table has")
    return pa.schema(fields)


def _kind(  # noqa: PLR0911  a kind of type each
    schema: Any, where: str, named: dict[str, Any], depth: int
) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise InvalidTable(f"--schema: {where} is nested more than {DEPTH_MAX} deep, or in itself")
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise InvalidTable(
                f"--schema: {where} is a union of {len(kinds)} types, and a column has one"
            )
        return _kind(kinds[0], where, named, depth + 1)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        if schema in named:
            return _kind(named[schema], where, named, depth + 1)
        raise InvalidTable(f"--schema: {where} is {schema!r}, which a column cannot be")
    if "name" in schema:
        named[schema["name"]] = schema
    logical, kind = schema.get("logicalType"), schema["type"]
    if logical == "decimal":
        return _decimal(schema, where)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        fields = [
            pa.field(each["name"], _kind(each["type"], f"{where}.{each['name']}", named, depth + 1))
            for each in schema["fields"]
        ]
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(pa.field("element", _kind(schema["items"], where, named, depth + 1)))
    if kind == "map":
        inside = _kind(schema["values"], where, named, depth + 1)
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", inside)])
        return pa.list_(pa.field("element", pair))
    return _kind(kind, where, named, depth + 1)


def _decimal(schema: dict[str, Any], where: str) -> pa.DataType:
    precision = schema.get("precision", 0)
    if not 1 <= precision <= DIGITS_MAX:
        raise InvalidTable(
            f"--schema: {where} is a decimal, and has to have 1 to {DIGITS_MAX} digits"
        )
    return pa.decimal128(precision, schema.get("scale", 0))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value as its column takes it: maps are lists of pairs, ids of uuids are text."""
    if pa.types.is_list(kind) and value is not None:
        inside = kind.value_type
        if isinstance(value, dict):
            of = inside.field(1).type
            return [{"key": key, "value": _plain(each, of)} for key, each in sorted(value.items())]
        return [_plain(each, inside) for each in value]
    if pa.types.is_struct(kind) and value is not None:
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {each.name: _plain(value.get(each.name), each.type) for each in fields}
    return str(value) if pa.types.is_string(kind) and value is not None else value
