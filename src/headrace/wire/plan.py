"""One version of a message, resolved: what is on the wire, in which order, in which form.

The step between the definitions, which speak of ranges of versions, and the compilers, which
write code for one.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final, cast

import msgspec

from headrace.wire.primitives import LAYOUT_CODES, layout
from headrace.wire.schema import Field, Message, Struct, parse_versions

STRUCT: Final = "struct"


class StructPlan(msgspec.Struct, frozen=True):
    """A struct as one version writes it."""

    type: type[Struct]
    is_flexible: bool
    present: tuple["FieldPlan", ...]
    """Fields in the order of the wire."""
    tagged: tuple["FieldPlan", ...]
    """Fields of the tagged section in the order of their tags."""
    forbidden: tuple[str, ...]
    """Fields that this version lacks and whose values may not be dropped."""

    @property
    def wire_bytes_min(self) -> int:
        """The fewest bytes that the struct takes."""
        return sum(field.wire_bytes_min for field in self.present) + self.is_flexible

    @property
    def memory_bytes(self) -> int:
        """About what an object takes in memory, but for its arrays' elements."""
        fields = (*self.present, *self.tagged)
        return 32 + 8 * len(self.type.__struct_fields__) + sum(f.memory_bytes for f in fields)

    def runs(self) -> Iterator[tuple["FieldPlan", ...]]:
        """Split the fields where code has to: neighbours of fixed width stay together."""
        for is_fixed, fields in groupby(self.present, key=lambda field: field.is_fixed):
            if is_fixed:
                yield tuple(fields)
            else:
                yield from ((field,) for field in fields)


class FieldPlan(msgspec.Struct, frozen=True):
    """A field as one version writes it."""

    name: str
    kind: str
    """The name of a primitive, or STRUCT; of an array, that of its elements."""
    struct: StructPlan | None
    is_array: bool
    is_nullable: bool
    is_flexible: bool
    tag: int
    default: Any

    @property
    def is_fixed(self) -> bool:
        return not self.is_array and self.kind in LAYOUT_CODES

    @property
    def length_code(self) -> str:
        """The layout of the length that the field starts with: empty if it has none."""
        if self.is_fixed or (self.kind == STRUCT and not self.is_array):
            return ""
        if self.is_flexible:
            return "B"
        return "h" if self.kind == "string" and not self.is_array else "i"

    def element(self) -> "FieldPlan":
        """Return the plan of one element of the array."""
        return msgspec.structs.replace(self, is_array=False, is_nullable=False)

    @property
    def inner(self) -> StructPlan:
        assert self.struct is not None, f"{self.name} is not a struct"
        return self.struct

    @property
    def wire_bytes_min(self) -> int:
        """The fewest bytes that the field takes."""
        if self.length_code:
            return layout(self.length_code).size
        if self.is_nullable and self.kind == STRUCT:
            return 1
        return self.element_bytes_min

    @property
    def element_bytes_min(self) -> int:
        """The fewest bytes that the value, or one element of an array, takes."""
        if self.kind == STRUCT:
            return self.inner.wire_bytes_min
        if self.kind in LAYOUT_CODES:
            return layout(LAYOUT_CODES[self.kind]).size
        return layout(self.element().length_code).size

    @property
    def memory_bytes(self) -> int:
        return _LIST_MEMORY_BYTES if self.is_array else self.element_memory_bytes

    @property
    def element_memory_bytes(self) -> int:
        """About what one element of the array takes in memory, but for a string's text."""
        return self.inner.memory_bytes if self.kind == STRUCT else _MEMORY_BYTES[self.kind]


_LIST_MEMORY_BYTES: Final = 72
_MEMORY_BYTES: Final = {
    **dict.fromkeys(LAYOUT_CODES, 32),
    "bool": 0,
    "uuid": 56,
    "string": 72,
    "bytes": 200,
    "records": 200,
}


def plan_message(message: type[Message], version: int) -> StructPlan:
    return _plan_struct(message, version, version in parse_versions(message.FLEXIBLE))


def _plan_struct(struct: type[Struct], version: int, is_flexible: bool) -> StructPlan:
    present, tagged, forbidden = [], [], []
    defaults = struct()
    for field in struct.FIELDS:
        default = getattr(defaults, field.name)
        if version in parse_versions(field.tagged):
            tagged.append(_plan_field(field, version, is_flexible, default))
        elif version in parse_versions(field.versions):
            present.append(_plan_field(field, version, is_flexible, default))
        elif not field.ignorable:
            forbidden.append(field.name)
    tagged.sort(key=lambda plan: plan.tag)
    return StructPlan(struct, is_flexible, tuple(present), tuple(tagged), tuple(forbidden))


def _plan_field(field: Field, version: int, is_flexible: bool, default: object) -> FieldPlan:
    is_array = isinstance(field.type, list)
    kind = cast("str | type[Struct]", field.type[0] if isinstance(field.type, list) else field.type)
    return FieldPlan(
        name=field.name,
        kind=kind if isinstance(kind, str) else STRUCT,
        struct=None if isinstance(kind, str) else _plan_struct(kind, version, is_flexible),
        is_array=is_array,
        is_nullable=version in parse_versions(field.nullable),
        is_flexible=version in parse_versions(field.flexible) if field.flexible else is_flexible,
        tag=field.tag,
        default=default,
    )
