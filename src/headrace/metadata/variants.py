"""The MessagePack form of Rust's structs and enums that seed 004's log has.

A struct is an array of its fields. A variant of an enum is `[name, fields]`, with nil in place of
no fields; a variant that wraps one value is an array of one. Names are the tags: to rename one
breaks the log, to move one does not. Integers take their smallest size.

Fields that are enums themselves stay raw bytes until their variant is known, so what is read is the
very bytes of the log: a checksum never depends on how a later version would write them again.
"""

import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Raw, Struct

from headrace.metadata.errors import InvalidEntry

DEPTH_MAX: Final = 8
"""How deep variants may nest. No setting: nodes that disagreed would stop at different entries."""

Variant = TypeVar("Variant")


class Octets(bytes):
    """Bytes that the log has as an array of integers: Rust's serializer did not know better."""

    __slots__ = ()


class Variants(Generic[Variant]):
    """An enum: which class has which name in the log."""

    def __init__(self, classes: Mapping[str, type[Any]]) -> None:
        self.names: Final = tuple(classes)
        self._classes = dict(classes)
        self._names = {cls: name for name, cls in classes.items()}
        # Filled on first use: an enum may have itself as a field.
        self._fields: dict[str, _Fields] = {}

    def encode(self, value: Variant) -> bytes:
        """Write a value; InvalidEntry if it could not be read back."""
        try:
            data = msgspec.msgpack.encode(self.form(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidEntry(f"cannot be written: {error}") from error
        self.decode(data)
        return data

    def form(self, value: Variant) -> tuple[str, object]:
        """Return the name and the fields, ready to be packed."""
        name = self._names.get(type(value))
        if name is None:
            raise InvalidEntry(f"{type(value).__name__} is none of {', '.join(self.names)}")
        return name, self._fields_of(name).form(value)

    def decode(self, data: bytes | memoryview | Raw, depth: int = 0) -> Variant:
        """Read a value back; InvalidEntry for whatever `encode` does not write.

        Trailing bytes, missing or additional fields and numbers out of range are errors, too. That
        an integer takes more bytes than it needs is not.
        """
        if depth > DEPTH_MAX:
            raise InvalidEntry(f"nested deeper than {DEPTH_MAX} levels")
        try:
            name, fields = _TAGGED.decode(data)
        except (ValueError, RecursionError) as error:
            raise InvalidEntry(f"not a name and its fields: {error}") from error
        if name not in self._classes:
            raise InvalidEntry(f"unknown variant {name[:64]!r}; known are {', '.join(self.names)}")
        value: Variant = self._fields_of(name).decode(fields, depth)
        return value

    def _fields_of(self, name: str) -> "_Fields":
        if (fields := self._fields.get(name)) is None:
            fields = self._fields[name] = _Fields(self._classes[name])
        return fields


Octet = Annotated[int, msgspec.Meta(ge=0, le=255)]
_TAGGED: Final = msgspec.msgpack.Decoder(tuple[str, Raw])
_NIL: Final = b"\xc0"

ENUMS: Final[dict[object, Variants[Any]]] = {}
"""The enums that fields have as their types, by that type."""


class _Field(NamedTuple):
    """How a field is written and read whose type MessagePack alone does not settle."""

    raw_type: Any
    """As which it is read at first."""
    read: Callable[[Any, int], Any]
    form: Callable[[Any], object]


class _Fields:
    """The fields of one class, as an array or, if there are none, as nil."""

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        hints = get_type_hints(cls, include_extras=True)
        self._names: tuple[str, ...] = cls.__struct_fields__
        self._special = [
            (place, field)
            for place, name in enumerate(self._names)
            if (field := _field(hints[name])) is not None
        ]
        types_ = [hints[name] for name in self._names]
        for place, field in self._special:
            types_[place] = field.raw_type
        raw = msgspec.defstruct(
            cls.__name__,
            list(zip(self._names, types_, strict=True)),
            array_like=True,
            forbid_unknown_fields=True,
        )
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(raw)

    @property
    def is_plain(self) -> bool:
        return not self._special

    def form(self, value: Any) -> object:
        if not self._names:
            return None
        values = [getattr(value, name) for name in self._names]
        for place, field in self._special:
            values[place] = field.form(values[place])
        return values

    def decode(self, fields: Raw, depth: int) -> Any:
        name = self._cls.__name__
        if not self._names:
            if bytes(fields) != _NIL:
                raise InvalidEntry(f"{name} has no fields, but some were given")
            return self._cls()
        try:
            values = list(msgspec.structs.astuple(self._decoder.decode(fields)))
            for place, field in self._special:
                values[place] = field.read(values[place], depth + 1)
            return self._cls(*values)
        except (ValueError, RecursionError) as error:
            raise InvalidEntry(f"{name}: {error}") from error


def _field(type_: Any) -> _Field | None:
    """Return how a field of this type is encoded, or None if MessagePack supports it."""
    if (enum := ENUMS.get(type_)) is not None:
        return _Field(Raw, enum.decode, enum.form)
    if isinstance(type_, type):
        return _class_field(type_)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, types.UnionType) and Octets in arguments:
        return _Field(list[Octet] | None, _read_optional_octets, _optional_octets_form)
    item = _field(arguments[0]) if origin is tuple else None
    return None if item is None else _sequence(item)


def _class_field(type_: type[Any]) -> _Field | None:
    if issubclass(type_, Octets):
        return _Field(list[Octet], lambda value, _: Octets(value), list)
    if issubclass(type_, Enum):
        return _Field(
            Raw, lambda value, _: _read_unit(value, type_), lambda value: (value.value, None)
        )
    if issubclass(type_, Struct) and not (fields := _Fields(type_)).is_plain:
        return _Field(Raw, fields.decode, fields.form)
    return None


def _sequence(item: _Field) -> _Field:
    def read(values: list[Any], depth: int) -> tuple[Any, ...]:
        return tuple(item.read(value, depth) for value in values)

    def form(values: tuple[Any, ...]) -> object:
        return [item.form(value) for value in values]

    return _Field(types.GenericAlias(list, (item.raw_type,)), read, form)


def _read_optional_octets(value: list[int] | None, _depth: int) -> Octets | None:
    return None if value is None else Octets(value)


def _optional_octets_form(value: Octets | None) -> list[int] | None:
    return None if value is None else list(value)


def _read_unit(value: Raw, type_: type[Enum]) -> Enum:
    """Read a variant of an enum of which none has fields."""
    name, nothing = _TAGGED.decode(value)
    if bytes(nothing) != _NIL:
        raise ValueError(f"{name[:64]!r} has no fields, but some were given")
    return type_(name)
