"""From the values of records to columns, on executors: what every format has in common.

A decoder gets values and the columns that the table has for them. It returns the rows of those that
it could decode, and a reason for each of the others. It never raises for a value.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from headrace.spark.tables.definition import METADATA, Definition, Format

BinaryArray: TypeAlias = "pa.Array[Any]"
REASON_CHARACTERS_MAX: Final = 300


class BadValue(msgspec.Struct, frozen=True):
    """A value that could not be decoded."""

    row: int
    reason: str


class Decoded(msgspec.Struct, frozen=True):
    """The values of one chunk."""

    kept: list[int]
    """The rows that could be decoded, in order."""
    columns: pa.Table
    """Their columns, exactly those that the table has."""
    bad: list[BadValue]
    seen: pa.Schema
    """The columns that values have and the table lacks; empty if there are none."""


class Decoder(Protocol):
    """One format with one schema."""

    def decode(self, values: BinaryArray) -> Decoded:
        """Decode values, none of which is null."""


def decoder_of(definition: Definition, columns: pa.Schema) -> Decoder:
    """Return the decoder of a table whose columns for values are these."""
    if definition.format is Format.JSON:
        from headrace.spark.tables.json_decoding import JsonDecoder  # noqa: PLC0415  one of four

        return JsonDecoder(columns, evolves=definition.evolves)
    if definition.format is Format.AVRO:
        from headrace.spark.tables.avro_decoding import AvroDecoder  # noqa: PLC0415

        return AvroDecoder(definition, columns)
    if definition.format is Format.PROTOBUF:
        from headrace.spark.tables.protobuf_decoding import ProtobufDecoder  # noqa: PLC0415

        return ProtobufDecoder(definition, columns)
    return RawDecoder()


def first_columns(definition: Definition) -> pa.Schema:
    """Return the columns for values that a new table begins with."""
    if definition.format is Format.AVRO:
        from headrace.spark.tables.avro_decoding import avro_columns  # noqa: PLC0415

        return avro_columns(definition)
    if definition.format is Format.PROTOBUF:
        from headrace.spark.tables.protobuf_decoding import protobuf_columns  # noqa: PLC0415

        return protobuf_columns(definition)
    if definition.format is Format.RAW:
        return RAW
    return pa.schema(definition.given_fields())


def value_columns(schema: pa.Schema, generated: Sequence[str] = ()) -> pa.Schema:
    """Return the part of a table's schema that comes from values."""
    own = {*METADATA.names, *generated}
    return pa.schema([each for each in schema if each.name not in own])


RAW: Final = pa.schema([pa.field("value", pa.binary())])


class RawDecoder:
    """Values as they are."""

    def decode(self, values: BinaryArray) -> Decoded:
        return Decoded(list(range(len(values))), pa.table([values], schema=RAW), [], pa.schema([]))


def short_reason(error: Exception | str) -> str:
    """Return an error's text, on one line and bounded."""
    return " ".join(str(error).split())[:REASON_CHARACTERS_MAX]


def rows_to_table(rows: list[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    """Return Python rows as columns; raise what Arrow raises for a value that does not fit."""
    arrays = [pa.array([row.get(each.name) for row in rows], each.type) for each in columns]
    return pa.Table.from_arrays(arrays, schema=columns)


def decode_rows(
    rows: list[tuple[int, dict[str, Any]]], bad: list[BadValue], columns: pa.Schema
) -> Decoded:
    """Return decoded values as columns; those that do not fit become bad ones."""
    try:
        table = rows_to_table([row for _, row in rows], columns)
        return Decoded([index for index, _ in rows], table, bad, pa.schema([]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    kept: list[tuple[int, dict[str, Any]]] = []
    found = list(bad)
    for index, row in rows:
        try:
            rows_to_table([row], columns)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            found.append(BadValue(index, short_reason(error)))
        else:
            kept.append((index, row))
    table = rows_to_table([row for _, row in kept], columns)
    return Decoded([index for index, _ in kept], table, found, pa.schema([]))
