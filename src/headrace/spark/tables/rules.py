"""Rules for columns: what a row must satisfy, checked on whole columns. Pure.

    id not null        price >= 0        price between 0 and 1000
    country matches [A-Z]{2}             state in open, paid, sent

A rule that names a column which the table does not have yet is broken by every row if it is `not
null`, and by none otherwise: null satisfies all the other rules, as in SQL.
"""

import math
import re
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.tables.definition import InvalidTable

RULES_MAX: Final = 100
_LONG_MAX: Final = 2**63 - 1
_NOT_NULL: Final = re.compile(r"(\S+)\s+not\s+null", re.IGNORECASE)
_COMPARED: Final = re.compile(r"(\S+?)\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)")
_BETWEEN: Final = re.compile(
    r"(\S+)\s+between\s+(-?\d+(?:\.\d+)?)\s+and\s+(-?\d+(?:\.\d+)?)", re.IGNORECASE
)
_MATCHES: Final = re.compile(r"(\S+)\s+matches\s+(.+)", re.IGNORECASE)
_IN: Final = re.compile(r"(\S+)\s+in\s+(.+)", re.IGNORECASE)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule."""

    text: str
    column: str
    is_not_null: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    is_open: bool = False
    """Whether the limit itself is outside."""
    pattern: str = ""
    words: tuple[str, ...] = ()


def parse_rule(text: str) -> Rule:
    """Return a rule; InvalidTable for text that is none."""
    word = " ".join(text.split())
    if found := _NOT_NULL.fullmatch(word):
        return Rule(text=word, column=found[1], is_not_null=True)
    if found := _BETWEEN.fullmatch(word):
        low, high = Decimal(found[2]), Decimal(found[3])
        if low > high:
            raise InvalidTable(f"rule {word!r}: nothing is between {found[2]} and {found[3]}")
        return Rule(text=word, column=found[1], low=low, high=high)
    if found := _COMPARED.fullmatch(word):
        limit, is_open = Decimal(found[3]), found[2] in "<>"
        if found[2].startswith(">"):
            return Rule(text=word, column=found[1], low=limit, is_open=is_open)
        return Rule(text=word, column=found[1], high=limit, is_open=is_open)
    if found := _MATCHES.fullmatch(word):
        try:
            pc.match_substring_regex(pa.array([""]), _whole(found[2]))
        except pa.ArrowInvalid as error:
            raise InvalidTable(f"rule {word!r}: {error}") from None
        return Rule(text=word, column=found[1], pattern=found[2])
    if found := _IN.fullmatch(word):
        words = tuple(each.strip() for each in found[2].split(","))
        return Rule(text=word, column=found[1], words=words)
    raise InvalidTable(
        f"rule {text!r}: a rule is like 'id not null', 'price >= 0', 'price between 0 and 1000', "
        "'country matches [A-Z]{2}' or 'state in open, paid'"
    )


def broken(rule: Rule, rows: pa.Table) -> Any:
    """Return a mask of the rows that break a rule; None if none does."""
    column = _column(rows, rule.column)
    if column is None:
        return pa.array([True] * rows.num_rows) if rule.is_not_null and rows.num_rows else None
    if rule.is_not_null:
        mask = column.is_null()
    elif rule.pattern:
        fits = pc.match_substring_regex(_texts(column), _whole(rule.pattern))
        mask = pc.and_(pc.invert(pc.fill_null(fits, False)), column.is_valid())
    elif rule.words:
        known = pc.is_in(_texts(column), value_set=pa.array(rule.words))
        mask = pc.and_(pc.invert(known), column.is_valid())
    else:
        mask = _outside(rule, column)
    mask = pc.fill_null(mask, False)
    return mask if pc.any(mask).as_py() else None


def check_column(rule: Rule, kind: pa.DataType) -> None:
    """Refuse a rule that makes no sense for a column's type."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if (rule.low is not None or rule.high is not None) and not is_number:
        raise InvalidTable(f"rule {rule.text!r}: column {rule.column!r} is not a number")
    if rule.pattern and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InvalidTable(f"rule {rule.text!r}: column {rule.column!r} is not text")


def _outside(rule: Rule, column: Any) -> Any:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return column.is_valid()  # no number is within limits
    if pa.types.is_integer(kind):
        return _outside_whole(rule, column)
    numbers = column.cast(pa.float64())
    masks: list[Any] = []
    functions: Any = pc
    if rule.low is not None:
        low = float(rule.low)
        masks.append((functions.less_equal if rule.is_open else functions.less)(numbers, low))
    if rule.high is not None:
        high = float(rule.high)
        masks.append(
            (functions.greater_equal if rule.is_open else functions.greater)(numbers, high)
        )
    masks.append(pc.is_nan(numbers))
    mask = masks[0]
    for each in masks[1:]:
        mask = pc.or_(mask, each)
    return mask


def _outside_whole(rule: Rule, column: Any) -> Any:
    """Compare whole numbers exactly: as fractions, those above 2^53 are others."""
    numbers: Any = column.cast(pa.int64())
    functions: Any = pc
    mask: Any = pa.array([False] * len(numbers), pa.bool_())
    if rule.low is not None:
        least = math.floor(rule.low) + 1 if rule.is_open else math.ceil(rule.low)
        if least > _LONG_MAX:
            return column.is_valid()
        mask = functions.or_(mask, functions.less(numbers, max(least, -_LONG_MAX - 1)))
    if rule.high is not None:
        most = math.ceil(rule.high) - 1 if rule.is_open else math.floor(rule.high)
        if most < -_LONG_MAX - 1:
            return column.is_valid()
        mask = functions.or_(mask, functions.greater(numbers, min(most, _LONG_MAX)))
    return mask


def _texts(column: Any) -> Any:
    """Return values as text, and null for objects, lists, and bytes that are not UTF-8."""
    kind = column.type
    if pa.types.is_nested(kind):
        return pa.nulls(len(column), pa.string())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        words: list[Any] = column.to_pylist()
        return pa.array([_decoded(each) for each in words], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _column(rows: pa.Table, path: str) -> Any:
    """Return a column, nested ones by dots; None if there is none."""
    first, *rest = path.split(".")
    if first not in rows.schema.names:
        return None
    column = rows.column(first).combine_chunks()
    for each in rest:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(each) < 0:
            return None
        column = pc.struct_field(column, each)
    return column


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"
