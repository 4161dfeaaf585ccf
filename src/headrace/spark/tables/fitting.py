"""Columns in the types of a table: cast, and with null for fields that are missing. Pure."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

DIGITS_MAX: Final = 38
"""The most digits of a decimal."""
FIELD_ID: Final = b"PARQUET:field_id"
"""Where Arrow has the id of a field."""


def fit(column: Any, kind: pa.DataType) -> Any:
    """Cast a column; a struct is taken apart, as it may have more fields than the table's."""
    if pa.types.is_struct(kind):
        whole = _whole(column)
        stored = [whole.type.field(index) for index in range(whole.type.num_fields)]
        fields = [kind.field(index) for index in range(kind.num_fields)]
        arrays = [
            pa.nulls(len(whole), each.type)
            if (index := place_of(stored, each)) is None
            else fit(whole.field(index), each.type)
            for each in fields
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=whole.is_null())
    if pa.types.is_list(kind):
        whole = _whole(column)
        values = fit(whole.values, kind.value_type)
        return pa.Array.from_buffers(
            kind, len(whole), whole.buffers()[:2], whole.null_count, whole.offset, [values]
        )
    if pa.types.is_float32(kind) and pa.types.is_float64(column.type):
        return _as_float(column)
    return column.cast(kind)


def _as_float(column: Any) -> Any:
    """Return numbers with less digits; ValueError for one that would become infinite."""
    if _lost(column):
        raise ValueError("a number is too large for a float")
    return column.cast(pa.float32())


def _lost(column: Any) -> bool:
    """Return whether a number would become infinite as a float."""
    functions: Any = pc
    found = functions.is_inf(column.cast(pa.float32()))
    return bool(functions.any(functions.and_not(found, functions.is_inf(column))).as_py())


def place_of(stored: Sequence[Any], wanted: Any) -> int | None:
    """Return which of stored fields a field of the table is; None if it is none of them.

    Where fields have ids, as in Iceberg, these count: others may have renamed a column, or dropped
    one and added another one of its name.
    """
    number = _id_of(wanted)
    has_ids = number is not None and any(_id_of(each) is not None for each in stored)
    for index, each in enumerate(stored):
        if (_id_of(each) == number) if has_ids else (each.name == wanted.name):
            return index
    return None


def _id_of(field: Any) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return found


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def widest(kind: pa.DataType) -> pa.DataType:
    """Return what a stored column of a simple type can become at most."""
    if pa.types.is_int32(kind):
        return pa.int64()
    if pa.types.is_float32(kind):
        return pa.float64()
    return pa.decimal128(DIGITS_MAX, kind.scale) if pa.types.is_decimal128(kind) else kind


def widened(column: Any, kind: pa.DataType) -> pa.DataType | None:
    """Return the type that a column needs to hold values of the widest type; None if it does.

    Of a nested type that is what is too narrow inside, and nothing else.
    """
    if column.type.equals(kind):
        return None
    if pa.types.is_struct(kind):
        whole = _whole(column)
        inside = (kind.field(index) for index in range(kind.num_fields))
        fields = [
            pa.field(each.name, wider)
            for each in inside
            if (wider := widened(whole.field(each.name), each.type)) is not None
        ]
        return pa.struct(fields) if fields else None
    if pa.types.is_list(kind):
        wider = widened(_whole(column).values, kind.value_type)
        return None if wider is None else pa.list_(pa.field("element", wider))
    return _needed(column, kind)


def _needed(column: Any, kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_float32(kind):
        return pa.float64() if _lost(column) else None
    if not (pa.types.is_int32(kind) or pa.types.is_decimal128(kind)):
        return None
    bounds: Any = pc.min_max(column).as_py()
    ends = [each for each in bounds.values() if each is not None]
    if pa.types.is_int32(kind):
        return None if all(-(2**31) <= each < 2**31 for each in ends) else pa.int64()
    digits = max((each.adjusted() + 1 + kind.scale for each in ends), default=1)
    return pa.decimal128(digits, kind.scale) if digits > kind.precision else None
