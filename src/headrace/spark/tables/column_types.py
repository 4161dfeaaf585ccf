"""Column types: how users write them, and how a table's columns grow. Pure.

Two schemas meet in one of two ways. What a batch has seen of *new* columns is unified: nothing of
them is stored yet, so whole numbers and fractions become fractions. A column that the table has
only widens where every format can read its old files: int to long, float to double, a decimal to
more digits.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headrace.errors import HeadraceError

AnyField: TypeAlias = "pa.Field[Any]"
DEPTH_MAX: Final = 32
"""How deeply types may be nested."""
COLUMNS_MAX: Final = 5_000
"""How many columns, nested ones included, a table may have."""

SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ALIASES: Final = {"bigint": "long", "integer": "int", "bool": "boolean", "bytes": "binary"}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


class InvalidType(HeadraceError, ValueError):
    """Text that is not a type."""


class TypeConflict(HeadraceError):
    """Two types for one column, of which neither can become the other."""


def parse_type(text: str, depth: int = 0) -> pa.DataType:
    """Return the Arrow type of `long`, `decimal(10,2)`, `array<string>`, `struct<a:int,b:date>`."""
    word = text.strip()
    lower = word.lower()
    if depth > DEPTH_MAX:
        raise InvalidType(f"a type is nested more than {DEPTH_MAX} deep")
    lower = _ALIASES.get(lower, lower)
    if lower in SIMPLE:
        return SIMPLE[lower]
    if found := _DECIMAL.fullmatch(lower):
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise InvalidType(f"{word!r}: a decimal has 1 to 38 digits, the scale among them")
        return pa.decimal128(precision, scale)
    if lower.startswith("array<") and lower.endswith(">"):
        return pa.list_(pa.field("element", parse_type(word[6:-1], depth + 1)))
    if lower.startswith("struct<") and lower.endswith(">"):
        fields = [parse_column(part, depth + 1) for part in _split(word[7:-1])]
        return pa.struct(fields)
    names = ", ".join((*SIMPLE, "decimal(p,s)", "array<...>", "struct<name:type,...>"))
    raise InvalidType(f"{word!r} is not a type; there are {names}")


def parse_column(text: str, depth: int = 0) -> AnyField:
    """Return the field of `name:type`."""
    name, separator, kind = text.partition(":")
    if not separator or not name.strip():
        raise InvalidType(f"{text!r}: write a column as name:type, like price:double")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidType(f"{text!r}: the name of a column is text in UTF-8") from None
    return pa.field(name.strip(), parse_type(kind, depth))


def type_text(kind: pa.DataType) -> str:
    """Return a type as users write it."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        inside = ",".join(f"{each.name}:{type_text(each.type)}" for each in _fields(kind))
        return f"struct<{inside}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for name, each in SIMPLE.items() if each == kind), str(kind))


def settled(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that a column with values of this inferred type gets; None if none yet.

    Text that looks like a time stays text: one value that does not would not fit any more. What is
    only ever null or empty has no type yet.
    """
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inside = settled(kind.value_type)
        return None if inside is None else pa.list_(pa.field("element", inside))
    if pa.types.is_struct(kind):
        fields = [
            pa.field(each.name, inside)
            for each in _fields(kind)
            if (inside := settled(each.type)) is not None
        ]
        return pa.struct(fields) if fields else None
    return kind


def unify(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return one type for a column that is not stored yet; TypeConflict if there is none."""
    if first.equals(second):
        return first
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return _more_digits(first, second) or _combine(first, second, unify)


def widen(known: pa.DataType, seen: pa.DataType) -> pa.DataType:
    """Return the type that a stored column gets; TypeConflict if its old files forbid it."""
    if known.equals(seen) or (known, seen) in _NARROWER:
        return known
    if (seen, known) in _NARROWER:
        return seen
    return _more_digits(known, seen) or _combine(known, seen, widen)


def unify_fields(seen: Iterable[pa.Schema]) -> pa.Schema:
    """Return the columns that batches have seen; of types that conflict the first one counts."""
    found: dict[str, pa.DataType] = {}
    for schema in seen:
        for each in schema:
            kind = settled(each.type)
            if kind is None:
                continue
            try:
                found[each.name] = unify(found.get(each.name, kind), kind)
            except TypeConflict:
                continue
    return pa.schema([pa.field(name, kind) for name, kind in found.items()])


def grow(known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return a table's schema with the columns that it lacks, and with those that widen.

    Raise TypeConflict with the column's name.
    """
    fields = {each.name: each for each in known}
    lower = {name.lower(): name for name in fields}
    for each in wanted:
        if each.name in fields:
            old = fields[each.name]
            try:
                fields[each.name] = old.with_type(widen(old.type, each.type))
            except TypeConflict as error:
                raise TypeConflict(f"column {each.name!r}: {error}") from None
        elif each.name.lower() not in lower:
            fields[each.name] = pa.field(each.name, each.type)
            lower[each.name.lower()] = each.name
    return pa.schema(list(fields.values()))


def is_grown(known: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether a table would have to change to take these columns."""
    return not grow(known, wanted).equals(known)


def count_columns(kinds: Iterable[pa.DataType]) -> int:
    """Return how many columns there are, nested ones included."""
    total = 0
    for kind in kinds:
        total += 1
        if pa.types.is_struct(kind):
            total += count_columns(each.type for each in _fields(kind))
        elif pa.types.is_list(kind):
            total += count_columns([kind.value_type])
    return total


def _more_digits(first: Any, second: Any) -> pa.DataType | None:
    """Return the larger one of two decimals; None if neither can become the other."""
    if pa.types.is_decimal(first) and pa.types.is_decimal(second) and first.scale == second.scale:
        larger: pa.DataType = max(first, second, key=lambda each: int(each.precision))
        return larger
    return None


def _combine(first: pa.DataType, second: pa.DataType, merge: Any) -> pa.DataType:
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        fields = {each.name: each for each in _fields(first)}
        lower = {name.lower() for name in fields}
        for each in _fields(second):
            old = fields.get(each.name)
            if old is not None:
                fields[each.name] = old.with_type(merge(old.type, each.type))
            elif each.name.lower() not in lower:  # as columns are, too: the first one counts
                fields[each.name] = each
                lower.add(each.name.lower())
        return pa.struct(list(fields.values()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        inside: AnyField = first.value_field
        return pa.list_(inside.with_type(merge(inside.type, second.value_type)))
    raise TypeConflict(f"it is {type_text(first)} and cannot become {type_text(second)}")


def _fields(kind: pa.DataType) -> Sequence[AnyField]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are not inside of brackets."""
    depth, begin = 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


_NARROWER: Final = frozenset({(pa.int64(), pa.int32()), (pa.float64(), pa.float32())})
"""Pairs of a type and one whose values, and files, it can read as its own."""
