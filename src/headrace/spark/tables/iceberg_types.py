"""Between Arrow's types and Iceberg's: what pyiceberg does not say the way that files need it."""

from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

_SIMPLE: Final[dict[pa.DataType, PrimitiveType]] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}


def iceberg_type(kind: pa.DataType) -> PrimitiveType:
    """Return the type of a column that a table may be partitioned by."""
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _SIMPLE[kind]


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of data files, each with its id."""
    return pa.schema([_small(each) for each in schema_to_pyarrow(schema)])


def _small(field: Any) -> Any:
    """Return a field with 32-bit offsets, as decoders make them."""
    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
        kind = pa.list_(_small(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_small(kind.field(index)) for index in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(_small(kind.key_field), _small(kind.item_field))
    return pa.field(field.name, kind, field.nullable, field.metadata)
