"""Partitions of tables: `day(_timestamp)`, `bucket(16, id)`, `country`. Pure.

What a table is partitioned by has to be a column from its first day: one that every table has, or a
given one. Values of partitions follow Iceberg's transforms, in every format. Delta and Parquet
have them as columns of their own, `_timestamp_day` for `day(_timestamp)`.
"""

import datetime
import re
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.tables.definition import Definition, Format, InvalidTable, Target, suggest

TIME: Final = ("year", "month", "day", "hour")
BUCKETS_MAX: Final = 10_000
PARTITIONS_PER_TASK_MAX: Final = 1_000
"""How many partitions one task writes to at most: each is a file."""
FOLDER_BYTES_MAX: Final = 255
"""What file systems take as the name of a folder."""
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_CALL: Final = re.compile(r"(\w+)\s*\(\s*(?:([0-9]{1,9})\s*,\s*)?([\w.]+)\s*\)")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FIRST_DAY: Final = (datetime.date.min - _EPOCH.date()).days
_LAST_DAY: Final = (datetime.date.max - _EPOCH.date()).days
_DAY_US: Final = 86_400_000_000


class PartitionField(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a table is partitioned by."""

    transform: str
    """identity, bucket, or one of TIME."""
    column: str
    buckets: int = 0

    @property
    def name(self) -> str:
        """The name of the partition's field, or column."""
        if self.transform == "identity":
            return self.column
        return f"{self.column}_{self.transform}"


def parse_partition(text: str) -> PartitionField:
    """Return what `day(ts)` or `country` means."""
    word = text.strip()
    if re.fullmatch(r"\w+", word):
        return PartitionField(transform="identity", column=word)
    found = _CALL.fullmatch(word)
    if not found:
        raise InvalidTable(
            f"--partition-by {text!r}: like country, day(_timestamp), bucket(16, id)"
        )
    transform, number, column = found[1].lower(), found[2], found[3]
    if transform == "bucket":
        if not number or not 1 <= int(number) <= BUCKETS_MAX:
            raise InvalidTable(
                f"--partition-by {text!r}: 1 to {BUCKETS_MAX} buckets, bucket(16, id)"
            )
        return PartitionField(transform=transform, column=column, buckets=int(number))
    if transform not in TIME or number:
        known = [*TIME, "bucket"]
        raise InvalidTable(f"--partition-by {text!r}: no {transform!r}{suggest(transform, known)}")
    return PartitionField(transform=transform, column=column)


def partition_fields(definition: Definition) -> list[PartitionField]:
    """Return what a definition says."""
    return [parse_partition(each) for each in definition.partition_by]


def check_partitions(definition: Definition, schema: pa.Schema) -> None:
    """Refuse partitions and sort columns that the table cannot have."""
    fields = partition_fields(definition)
    _check_repeated(definition, fields)
    for field in fields:
        kind = _kind(field.column, schema, definition, "--partition-by")
        if field.transform in TIME and not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise InvalidTable(f"--partition-by {field.transform}({field.column}): not a time")
        if field.transform == "hour" and pa.types.is_date(kind):
            raise InvalidTable(f"--partition-by hour({field.column}): a date has no hours")
        if field.transform in ("identity", "bucket") and (
            pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            raise InvalidTable(f"--partition-by {field.column}: not by numbers with fractions")
        if (
            field.transform == "identity"
            and definition.to is not Target.ICEBERG
            and pa.types.is_binary(kind)
        ):
            raise InvalidTable(
                f"--partition-by {field.column}: --to {definition.to} names its partitions as "
                "text, and this column is bytes; Iceberg takes it"
            )
        if field.transform == "bucket" and definition.to is not Target.ICEBERG:
            raise InvalidTable(
                f"--partition-by bucket: --to {definition.to} has no buckets; a column or a time "
                "partitions it"
            )
    for name in definition.sort_by:
        kind = _kind(name, schema, definition, "--sort-by")
        if pa.types.is_nested(kind):
            raise InvalidTable(f"--sort-by {name}: not a column of simple values")


def _check_repeated(definition: Definition, fields: list[PartitionField]) -> None:
    names: set[str] = set()
    timed: set[str] = set()
    for each in fields:
        if each.name in names:
            raise InvalidTable(f"--partition-by {each.column}: {each.transform} of it twice")
        if each.column in timed and each.transform in TIME and definition.to is Target.ICEBERG:
            raise InvalidTable(
                f"--partition-by {each.transform}({each.column}): Iceberg takes one time of a "
                "column, the finest one that is wanted"
            )
        names.add(each.name)
        timed.update([each.column] if each.transform in TIME else [])


def _kind(name: str, schema: pa.Schema, definition: Definition, option: str) -> pa.DataType:
    if name in schema.names:
        kind: pa.DataType = schema.field(name).type
        return kind
    way = (
        f"give it a type, --column {name}:string"
        if definition.format is Format.JSON
        else "the schema has no such column"
    )
    raise InvalidTable(
        f"{option} {name}: not a column of the new table{suggest(name, schema.names)}; {way}"
    )


def split_rows(
    rows: pa.Table, fields: list[PartitionField]
) -> list[tuple[tuple[Any, ...], pa.Table]]:
    """Return the rows of each partition with the partition's values, as Iceberg stores them."""
    if not fields:
        return [((), rows)]
    keys = [_values(rows.column(each.column), each) for each in fields]
    numbers = pa.table({str(index): key for index, key in enumerate(keys)})
    numbers = numbers.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    groups = numbers.group_by([str(index) for index in range(len(keys))]).aggregate(
        [("row", "list")]
    )
    found = []
    for group in groups.to_pylist():
        values = tuple(group[str(index)] for index in range(len(keys)))
        found.append((values, rows.take(pa.array(group["row_list"], pa.int64()))))
    if len(found) > PARTITIONS_PER_TASK_MAX:
        raise InvalidTable(
            f"{len(found)} partitions in one task, {PARTITIONS_PER_TASK_MAX} are the most: the "
            f"table is partitioned too finely by {', '.join(each.name for each in fields)}"
        )
    return found


def _values(column: Any, field: PartitionField) -> Any:
    if field.transform == "identity":
        return column
    if field.transform == "bucket":
        return _buckets(column, field.buckets)
    times = column.cast(pa.timestamp("us", tz="UTC"))
    if field.transform == "year":
        return pc.subtract(pc.year(times), 1970).cast(pa.int32())
    if field.transform == "month":
        months = pc.add(pc.multiply(pc.subtract(pc.year(times), 1970), 12), pc.month(times))
        return pc.subtract(months, 1).cast(pa.int32())
    unit_us = _DAY_US if field.transform == "day" else 3_600_000_000
    whole = times.cast(pa.int64())
    functions: Any = pc
    floor = functions.subtract(whole, functions.if_else(functions.less(whole, 0), unit_us - 1, 0))
    return functions.divide(floor, unit_us).cast(pa.int32())


def _buckets(column: Any, count: int) -> Any:
    """Return Iceberg's buckets; each distinct value is hashed once."""
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415  a heavy extra

    from headrace.spark.tables.iceberg_types import iceberg_type  # noqa: PLC0415  with it

    encoded = column.combine_chunks().dictionary_encode()
    hashed = BucketTransform(count).transform(iceberg_type(column.type))
    words = pa.array(
        [hashed(plain_value(each)) for each in encoded.dictionary.to_pylist()], pa.int32()
    )
    return words.take(encoded.indices)


def plain_value(value: Any) -> Any:
    """Return a partition's value as Iceberg stores it: times are numbers."""
    if isinstance(value, datetime.datetime):
        return int((value - _EPOCH) / datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    return value


def misplaced(rows: pa.Table, fields: list[PartitionField], target: Target) -> dict[int, str]:
    """Return the rows that no partition can have, with the reason."""
    found: dict[int, str] = {}
    for field in fields:
        column = rows.column(field.column)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            mask = _outside_calendar(column)
            reason = f"no partition for {field.column!r}: a year from 1 to 9999 has one"
        elif field.transform == "identity" and target is not Target.ICEBERG:
            mask, reason = _unnamed(column, field, target)
        else:
            continue
        if mask is not None:
            rows_found: list[Any] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
            found |= dict.fromkeys(rows_found, reason)
    return found


def _outside_calendar(column: Any) -> Any:
    if pa.types.is_date(column.type):
        days: Any = column.cast(pa.int32())
        low, high = _FIRST_DAY, _LAST_DAY
    else:
        days = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        low, high = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
    functions: Any = pc
    return functions.or_(functions.less(days, low), functions.greater(days, high))


def _unnamed(column: Any, field: PartitionField, target: Target) -> tuple[Any, str]:
    """Return the rows whose partition the format, or its readers, cannot name."""
    bad = []
    for value in column.unique().to_pylist():
        text = path_text(value, field)
        is_hidden = text in ("", NULL_FOLDER) if target is Target.PARQUET else text == ""
        is_long = target is Target.PARQUET and len(folder_name(value, field)) > FOLDER_BYTES_MAX
        if is_hidden or is_long:
            bad.append(value)
    if not bad:
        return None, ""
    mask = pc.is_in(column, value_set=pa.array(bad, column.type))
    return mask, (
        f"no partition for {field.column!r}: --to {target} cannot name one after a text that is "
        f"empty{', as long as this, or its word for null' if target is Target.PARQUET else ''}"
    )


def folder_name(value: Any, field: PartitionField) -> str:
    """Return the folder of a partition, as Hive names it."""
    text = path_text(value, field)
    return f"{field.name}={NULL_FOLDER if text is None else quote(text, safe=' ')}"


def texts_of(values: tuple[Any, ...], fields: list[PartitionField]) -> dict[str, str | None]:
    """Return the columns that a file lacks because its partition has them."""
    return {
        field.name: path_text(value, field)
        for field, value in zip(fields, values, strict=True)
        if field.transform == "identity"
    }


def column_of(text: str | None, kind: pa.DataType, rows: int) -> Any:
    """Return a column that is the same in all rows, from what `path_text` says of it."""
    if text is None:
        return pa.array([None] * rows, kind)
    value: Any = pa.array([text])
    if pa.types.is_timestamp(kind):
        value = pa.array([datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)])
    return pa.repeat(value.cast(kind)[0], rows)


def path_text(value: Any, field: PartitionField) -> str | None:
    """Return a partition's value as Delta and Hive write it; None for null."""
    if value is None:
        return None
    if field.transform in ("year", "month"):
        year, month = divmod(value, 12) if field.transform == "month" else (value, 0)
        return f"{1970 + year:04}" + (f"-{month + 1:02}" if field.transform == "month" else "")
    if field.transform == "day":
        return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()
    if field.transform == "hour":
        return (_EPOCH + datetime.timedelta(hours=value)).strftime("%Y-%m-%d-%H").zfill(13)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)
    return str(value)
