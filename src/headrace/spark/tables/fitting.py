"""Columns in the types of a table: cast, and with null for fields that are missing. Pure."""

from typing import Any

import pyarrow as pa


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
    return column.cast(kind)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
