"""Columns in the types of a table: cast, and with null for fields that are missing. Pure."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def fit(column: Any, kind: pa.DataType) -> Any:
    """Cast a column; a struct is taken apart, as it may have more fields than the table's."""
    if pa.types.is_struct(kind):
        whole = _whole(column)
        names = {whole.type.field(index).name for index in range(whole.type.num_fields)}
        fields = [kind.field(index) for index in range(kind.num_fields)]
        arrays = [
            fit(whole.field(each.name), each.type)
            if each.name in names
            else pa.nulls(len(whole), each.type)
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
    functions: Any = pc
    found = column.cast(pa.float32())
    lost = functions.and_not(functions.is_inf(found), functions.is_inf(column))
    if functions.any(lost).as_py():
        raise ValueError("a number is too large for a float")
    return found


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
