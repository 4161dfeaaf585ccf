"""A type, resolved: what each part of it takes on the wire. The step between types and code."""

import types
import typing
from enum import IntEnum
from typing import Annotated, Any, TypeAlias

import msgspec

from headrace.cluster.protocol.postcard.schema import Form, Integer, Octets, Real
from headrace.wire.schema import Buffer


class Boolean(msgspec.Struct, frozen=True):
    """True or false."""


class Text(msgspec.Struct, frozen=True):
    """A string."""


class Data(msgspec.Struct, frozen=True):
    """Bytes, with their count."""


class Choice(msgspec.Struct, frozen=True):
    """An enum whose variants have no fields."""

    type: type[IntEnum]


class Optional(msgspec.Struct, frozen=True):
    item: "Plan"


class Sequence(msgspec.Struct, frozen=True):
    item: "Plan"


class Mapping(msgspec.Struct, frozen=True):
    key: "Plan"
    value: "Plan"


class Record(msgspec.Struct, frozen=True):
    """A struct, or one variant of an enum."""

    type: type[Form]
    fields: "tuple[tuple[str, Plan], ...]"


class Union(msgspec.Struct, frozen=True):
    """An enum whose variants have fields: by index, which need not be without gaps."""

    variants: tuple[tuple[int, Record], ...]


Plan: TypeAlias = (
    Integer
    | Real
    | Octets
    | Boolean
    | Text
    | Data
    | Choice
    | Optional
    | Sequence
    | Mapping
    | Record
    | Union
)


def bytes_min(plan: Plan) -> int:
    """Return the fewest bytes that a value takes, which bounds how many fit a frame."""
    match plan:
        case Real(bits):
            return bits // 8
        case Octets(count):
            return count
        case Record(_, fields):
            return sum(bytes_min(field) for _, field in fields)
        case _:
            return 1


def plan_of(form: Any, within: tuple[Any, ...] = ()) -> Plan:  # noqa: PLR0911  a table
    """Return the plan of a type; TypeError if it has none, or nests in itself."""
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if origin is Annotated:
        return _annotated(form, arguments[1:])
    if form == Buffer:
        return Data()
    if origin in (types.UnionType, typing.Union):
        return _union(form, arguments, within)
    if origin is tuple and arguments[1:] == (...,):
        return Sequence(_counted(form, plan_of(arguments[0], within)))
    if origin is dict:
        key, value = (plan_of(each, within) for each in arguments)
        _counted(form, key)
        return Mapping(key, value)
    while isinstance(form, typing.NewType):
        form = form.__supertype__
    if form is bool:
        return Boolean()
    if form is str:
        return Text()
    if isinstance(form, type) and issubclass(form, IntEnum):
        return Choice(form)
    if isinstance(form, type) and issubclass(form, Form):
        return _record(form, within)
    raise TypeError(f"{form!r} has no wire form; an integer needs a width")


def _annotated(form: Any, notes: tuple[Any, ...]) -> Plan:
    for note in notes:
        if isinstance(note, Integer | Real | Octets):
            return note
    raise TypeError(f"{form!r} says nothing about the wire")


def _union(form: Any, arguments: tuple[Any, ...], within: tuple[Any, ...]) -> Plan:
    if type(None) in arguments:
        rest = tuple(each for each in arguments if each is not type(None))
        return Optional(plan_of(typing.Union[rest], within))  # noqa: UP007  made at run time
    variants: dict[int, Record] = {}
    for each in arguments:
        tag = each.__struct_config__.tag if issubclass(each, Form) else None
        if not isinstance(tag, int) or tag in variants:
            raise TypeError(f"{each!r} has no tag of its own in {form!r}")
        variants[tag] = _record(each, within)
    return Union(tuple(sorted(variants.items())))


def _record(form: type[Form], within: tuple[Any, ...]) -> Record:
    if form in within:
        raise TypeError(f"{form!r} nests in itself")
    hints = typing.get_type_hints(form, include_extras=True)
    fields = ((name, plan_of(hints[name], (*within, form))) for name in form.__struct_fields__)
    return Record(form, tuple(fields))


def _counted(form: Any, item: Plan) -> Plan:
    if not bytes_min(item):
        raise TypeError(f"{form!r}: items without bytes, of which a frame could hold any number")
    return item
