"""Rows of stored files in the columns that the table has now.

Files of Delta and Parquet lack the columns that the table is partitioned by: what those are is said
where the file is named, in the log of the table or in the path. So nobody reads a file of rows but
through here: a reader that took the missing column for null would write it as null, too.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.tables.data_files import fit_rows, read_rows
from headrace.spark.tables.partitioning import column_of
from headrace.spark.tables.table_store import LiveFile
from headrace.spark.tables.writer_lease import Blocking


def read_stored(
    blocking: Blocking,
    file: LiveFile,
    schema: pa.Schema,
    *,
    columns: list[str] | None = None,
    filters: Any = None,
) -> pa.Table:
    """Return the rows of a file that pass the filters, in all columns of the table or in some.

    `columns` are some that every table has.
    """
    wanted = schema if columns is None else pa.schema([schema.field(each) for each in columns])
    stored = columns and [each for each in columns if each not in file.values]
    is_whole = not file.values and not file.deletes
    rows = read_rows(blocking, file.key, stored, filters if is_whole else None)
    if file.deletes:
        rows = rows.filter(pc.invert(_deleted(blocking, file, rows.num_rows)))
    for name, text in file.values.items():
        if name in schema.names:
            column = column_of(text, schema.field(name).type, rows.num_rows)
            rows = rows.append_column(schema.field(name), column)
    if filters is not None and not is_whole:
        rows = rows.filter(filters)
    return fit_rows(rows, wanted)


def _deleted(blocking: Blocking, file: LiveFile, count: int) -> Any:
    """Return a mask of the rows that others have deleted by their positions."""
    gone: set[int] = set()
    for each in file.deletes:
        found = read_rows(blocking, each, ["pos"], pc.field("file_path") == file.path)
        places: list[Any] = found.column("pos").to_pylist()
        gone.update(places)
    return pa.array([row in gone for row in range(count)], pa.bool_())
