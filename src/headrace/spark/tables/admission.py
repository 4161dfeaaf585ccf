"""Which columns a table can have: asked before its schema is changed. Pure.

A schema that was committed stays, so one that a reader, a writer or the format itself cannot take
would be the end of the table. Tasks ask about what a record shows, and a record with a column that
cannot be is a dead letter. The driver asks again about all of a batch, and adds what can be.
"""

import io
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.spark.tables.column_types import (
    COLUMNS_MAX,
    DEPTH_MAX,
    AnyField,
    TypeConflict,
    count_columns,
    grow,
    unify_fields,
)
from headrace.spark.tables.decoding import BadValue, BinaryArray, Decoded, Decoder
from headrace.spark.tables.definition import METADATA, Definition, Target
from headrace.spark.tables.partitioning import partition_fields

NAME_BYTES_MAX = 1_000
"""How long the name of a column may be."""


def admitted(decoder: Decoder, values: BinaryArray, refused: Callable[[pa.Schema], str]) -> Decoded:
    """Decode values; those that show a column which cannot be become bad ones.

    They are found by halving, as bad values are.
    """
    decoded = decoder.decode(values)
    reason = refused(decoded.seen) if len(decoded.seen) else ""
    if not reason:
        return decoded
    if len(values) == 1:
        return Decoded([], decoded.columns.slice(0, 0), [BadValue(0, reason)], pa.schema([]))
    half = len(values) // 2
    first = admitted(decoder, values.slice(0, half), refused)
    second = admitted(decoder, values.slice(half), refused)
    return Decoded(
        [*first.kept, *(half + each for each in second.kept)],
        pa.concat_tables([first.columns, second.columns]),
        [*first.bad, *(BadValue(half + each.row, each.reason) for each in second.bad)],
        unify_fields([first.seen, second.seen]),
    )


def refusal(definition: Definition, known: pa.Schema, wanted: pa.Schema) -> str:
    """Return why a table with these columns cannot have those, too; empty if it can."""
    for each in wanted:
        if _depth(each.type) > DEPTH_MAX:
            return f"column {each.name[:100]!r} is nested more than {DEPTH_MAX} deep"
    if count_columns(each.type for each in wanted) > COLUMNS_MAX:
        return f"more than {COLUMNS_MAX} columns: is a field's name a value?"
    try:
        grown = grow(known, wanted)
    except TypeConflict as error:
        return str(error)
    paths = list(_paths(grown))
    if lost := set(_paths(wanted)).difference(paths):
        return _twin(min(lost))
    return _bad_names(definition, paths, set(_paths(known))) or _unwritable(
        definition, known, grown
    )


def admit(definition: Definition, known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the table's columns with those of the wanted ones that can be."""
    grown = known
    waiting = [wanted]
    while waiting:
        part = waiting.pop()
        if not refusal(definition, grown, part):
            grown = grow(grown, part)
        else:
            # One that cannot be is found by halving, down to one simple value inside of a column.
            halves = _halves(part) if len(part) > 1 else _halves(list(_leaves(part.field(0))))
            waiting += reversed(halves)
    return grown


def fills(known: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether a table with these columns would have too many with those."""
    new = [each.type for each in wanted if each.name not in known.names]
    return (
        count_columns(each.type for each in wanted) > COLUMNS_MAX
        or count_columns([each.type for each in known] + new) > COLUMNS_MAX
    )


def _bad_names(
    definition: Definition, paths: list[tuple[str, ...]], known: set[tuple[str, ...]]
) -> str:
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    reserved = {each.lower() for each in _generated(definition)}
    dotted: set[str] = set()
    for path in paths:
        is_new = path not in known
        lower = tuple(each.lower() for each in path)
        if lower in seen:
            return _twin(path)
        seen[lower] = path
        name = path[-1]
        if is_new and len(path) == 1 and name.lower() in reserved:
            return f"column {name!r} is one that partitions of the table are named by"
        if is_new and len(name.encode()) > NAME_BYTES_MAX:
            return f"the name of column {name[:100]!r}... has more than {NAME_BYTES_MAX} bytes"
        if is_new and ("\0" in name or not name):
            return f"column {'.'.join(path)!r}: a name is not empty, and has no zero character"
        if definition.to is Target.ICEBERG:
            whole = ".".join(path)
            if whole in dotted:
                return f"column {whole!r} has the name of a nested one, and Iceberg knows one"
            dotted.add(whole)
    return ""


def _unwritable(definition: Definition, known: pa.Schema, grown: pa.Schema) -> str:
    if definition.to is Target.DELTA:
        for each in grown:
            if each.name in known.names and not known.field(each.name).type.equals(each.type):
                return (
                    f"column {each.name!r} would get new fields inside, or another type, which "
                    "deltalake cannot do: give the whole column with --column, or use Iceberg"
                )
    for field in partition_fields(definition):
        name = field.column
        if name in known.names and not known.field(name).type.equals(grown.field(name).type):
            return f"column {name!r} partitions the table, and cannot get another type"
    try:
        pq.ParquetWriter(io.BytesIO(), grown).close()
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"no Parquet file can have such columns: {' '.join(str(error).split())[:200]}"
    return ""


def _generated(definition: Definition) -> Iterator[str]:
    """Yield the names that partitions have beside the columns."""
    for each in partition_fields(definition):
        if each.transform != "identity":
            yield each.name
        elif definition.to is Target.ICEBERG:
            yield f"{each.column}_identity"


def _twin(path: tuple[str, ...]) -> str:
    return f"column {'.'.join(path)!r} differs from another one only by case"


def _paths(schema: pa.Schema) -> Iterator[tuple[str, ...]]:
    for each in schema:
        yield from _inside((), each)


def _inside(above: tuple[str, ...], field: AnyField) -> Iterator[tuple[str, ...]]:
    path = (*above, field.name)
    yield path
    for each in _children(field.type):
        yield from _inside(path, each)


def _children(kind: pa.DataType) -> list[AnyField]:
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    return [pa.field("element", kind.value_type)] if pa.types.is_list(kind) else []


def _depth(kind: pa.DataType) -> int:
    """Return how deeply a type is nested, and no more than one too many."""
    depth, level = 0, [kind]
    while level and depth <= DEPTH_MAX:
        level = [field.type for each in level for field in _children(each)]
        depth += 1 if level else 0
    return depth


def _leaves(field: AnyField) -> Iterator[AnyField]:
    """Yield a field once for each simple value inside of it, with nothing else."""
    for kind in _chains(field.type):
        yield pa.field(field.name, kind)


def _halves(fields: Iterable[AnyField]) -> list[pa.Schema]:
    """Return fields as two schemas; those of one column are put together again."""
    whole = list(fields)
    half = len(whole) // 2
    return [
        unify_fields(pa.schema([each]) for each in part)
        for part in (whole[:half], whole[half:])
        if part and len(whole) > 1
    ]


def _chains(kind: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_struct(kind):
        for each in _children(kind):
            for inside in _chains(each.type):
                yield pa.struct([pa.field(each.name, inside)])
    elif pa.types.is_list(kind):
        for inside in _chains(kind.value_type):
            yield pa.list_(pa.field("element", inside))
    else:
        yield kind


def check_columns(definition: Definition, schema: pa.Schema) -> str:
    """Return why a new table cannot have these columns; empty if it can."""
    own = pa.schema([each for each in schema if each.name in METADATA.names])
    others = pa.schema([each for each in schema if each.name not in METADATA.names])
    return refusal(definition, own, others)
