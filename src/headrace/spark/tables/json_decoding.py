"""JSON values to columns: Arrow's reader over whole chunks, and halves of chunks where it fails.

A chunk is read as lines, which is many times faster than record by record. A value that Arrow
refuses is found by halving, so that one bad record in ten thousand costs a few more reads,
and every value is judged by the same reader. Values that are nested too deep are found before
Arrow sees them: its reader calls itself for each level.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.spark.tables.column_types import DEPTH_MAX, settled, unify_fields
from headrace.spark.tables.decoding import BadValue, BinaryArray, Decoded, short_reason
from headrace.spark.tables.definition import METADATA
from headrace.spark.tables.fitting import fit, widened, widest
from headrace.spark.tables.json_depth import rows_deeper_than

_NOT_AN_OBJECT: Final = "not a JSON object"
_TOO_DEEP: Final = f"nested more than {DEPTH_MAX} deep"
_OPENED: Final = "{"
_CLOSED: Final = "}"


class JsonDecoder:
    """Objects, one per value, whose fields are columns."""

    def __init__(self, columns: pa.Schema, *, evolves: bool) -> None:
        self._columns = columns
        self._evolves = evolves
        self._read = pa.schema(
            [pa.field(each.name, _read_type(each.type, is_wide=evolves)) for each in columns]
        )
        self._lower = {name.lower() for name in columns.names}

    def decode(self, values: BinaryArray) -> Decoded:
        tables: list[pa.Table] = []
        kept: list[int] = []
        deep = rows_deeper_than(values, DEPTH_MAX)
        bad = [BadValue(row, _TOO_DEEP) for row in deep]
        seen: list[pa.Schema] = []
        waiting = _between(deep, len(values))
        while waiting:
            start, stop = waiting.pop()
            try:
                found = self._read_block(values.slice(start, stop - start))
                wide = self._widened(found) if self._evolves else []
                table = self._cast(found, {each.name for each in wide})
            except (pa.ArrowException, ValueError) as error:
                if stop - start == 1:
                    bad.append(BadValue(start, short_reason(error)))
                else:
                    half = (start + stop) // 2
                    waiting += [(half, stop), (start, half)]
                continue
            extra = self._extra(found)
            refused = self._refused(found, extra) if self._evolves else {}
            for row, reason in refused.items():
                bad.append(BadValue(start + row, reason))
            wanted = [each for each in extra if each.name.lower() not in self._lower]
            if self._evolves and (wanted := wanted + self._grown(found) + wide):
                seen.append(pa.schema(wanted))
            rows = range(start, stop)
            if refused:
                good = [row for row in range(stop - start) if row not in refused]
                table = table.take(pa.array(good, pa.int64()))
                kept += [start + row for row in good]
            else:
                kept += rows
            tables.append(table)
        whole = pa.concat_tables(tables) if tables else self._columns.empty_table()
        return Decoded(kept, whole, sorted(bad, key=lambda each: each.row), _joined(seen))

    def _read_block(self, values: BinaryArray) -> pa.Table:
        """Return the objects of a block; raise if one of its values is not exactly one object."""
        joined = _lines(values)
        is_plain = (
            _all(pc.starts_with(values, _OPENED))
            and _all(pc.ends_with(values, _CLOSED))
            and joined.count(b"\n") == len(values)
        )
        if not is_plain:
            texts: list[Any] = values.to_pylist()
            for text in texts:
                if not text.lstrip().startswith(b"{") or not text.rstrip().endswith(b"}"):
                    raise ValueError(_NOT_AN_OBJECT)
        # Every value begins with a brace and ends with one, so an object that is not complete
        # cannot be completed by the next value: as many rows as values are one object each.
        str(joined, "utf-8")
        source: Any = pa.BufferReader(joined)
        table = pj.read_json(
            source,
            read_options=pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._read,
                newlines_in_values=not is_plain,
                unexpected_field_behavior="infer" if self._evolves else "ignore",
            ),
        )
        if table.num_rows != len(values):
            raise ValueError("more than one JSON object in a value")
        return table

    def _cast(self, found: pa.Table, wide: set[str]) -> pa.Table:
        """Return the table's own columns, in its types; those that are too narrow are null."""
        arrays = []
        for each in self._columns:
            column: Any = found.column(each.name)
            if each.name in wide:
                column = pa.nulls(found.num_rows, each.type)
            elif not column.type.equals(each.type):
                column = fit(column, each.type)
            arrays.append(column)
        if not arrays:
            return pa.table({"_": pa.nulls(found.num_rows)}).select([])
        return pa.Table.from_arrays(arrays, schema=self._columns)

    def _extra(self, found: pa.Table) -> list["pa.Field[Any]"]:
        known = set(self._columns.names)
        return [
            each
            for each in found.schema
            if each.name not in known and settled(each.type) is not None
        ]

    def _refused(self, found: pa.Table, extra: list["pa.Field[Any]"]) -> dict[int, str]:
        """Return the rows with a column that the table can never have."""
        refused: dict[int, str] = {}
        for each in extra:
            if each.name in METADATA.names:
                reason = f"column {each.name!r} is one that every table has: rename the field"
            elif each.name.lower() in self._lower:
                reason = f"column {each.name!r} differs from one of the table only by case"
            else:
                continue
            mask = found.column(each.name).is_valid()
            rows: list[Any] = pc.indices_nonzero(mask.combine_chunks()).to_pylist()
            for row in rows:
                refused[row] = reason
        return refused

    def _widened(self, found: pa.Table) -> list["pa.Field[Any]"]:
        """Return the columns that are too narrow, in the types that hold what they have."""
        return [
            pa.field(each.name, kind)
            for each in self._columns
            if (kind := widened(found.column(each.name), each.type)) is not None
        ]

    def _grown(self, found: pa.Table) -> list["pa.Field[Any]"]:
        """Return what nested columns have and the table's lack, and nothing else of them."""
        return [
            pa.field(each.name, more)
            for each in self._read
            if pa.types.is_nested(each.type)
            and (more := _more(found.schema.field(each.name).type, each.type)) is not None
        ]


def _lines(values: BinaryArray) -> bytes:
    """Return values as lines, each with its end."""
    parts: Any = (values, b"\n", b"")
    lines: Any = pc.binary_join_element_wise(*parts)
    _, offsets, data = lines.buffers()
    size = memoryview(offsets).cast("i")[lines.offset + len(lines)]
    return bytes(data.slice(0, size)) if data is not None else b""


def _all(found: Any) -> bool:
    return bool(pc.all(found).as_py())


def _between(rows: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return the runs between rows that are left out, the first one last."""
    runs = []
    start = 0
    for row in (*rows, count):
        if row > start:
            runs.append((start, row))
        start = row + 1
    return runs[::-1]


def _joined(seen: list[pa.Schema]) -> pa.Schema:
    wanted = unify_fields(seen) if seen else pa.schema([])
    return pa.schema([each for each in wanted if each.name not in METADATA.names])


def _read_type(kind: pa.DataType, *, is_wide: bool) -> pa.DataType:
    """Return what Arrow is to read for a type: dates are text in JSON.

    Of numbers that are too large for a float Arrow would make infinite ones. Types that can become
    wider are read as the widest, to see what they would have to be.
    """
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_list(kind):
        inside = kind.value_field
        return pa.list_(pa.field(inside.name, _read_type(inside.type, is_wide=is_wide)))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct(
            [pa.field(each.name, _read_type(each.type, is_wide=is_wide)) for each in fields]
        )
    return widest(kind) if is_wide else kind


def _more(found: pa.DataType, known: pa.DataType) -> pa.DataType | None:
    """Return the fields of a nested type that another one lacks; None if there are none."""
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        inside = {
            known.field(index).name: known.field(index).type for index in range(known.num_fields)
        }
        fields = []
        for index in range(found.num_fields):
            each = found.field(index)
            kind = (
                _more(each.type, inside[each.name]) if each.name in inside else settled(each.type)
            )
            if kind is not None:
                fields.append(pa.field(each.name, kind))
        return pa.struct(fields) if fields else None
    if pa.types.is_list(found) and pa.types.is_list(known):
        kind = _more(found.value_type, known.value_type)
        return None if kind is None else pa.list_(pa.field("element", kind))
    return None
