"""Compile the encoder of one version of a message.

What comes out appends parts to a list: short pieces of bytes, and the caller's own buffers for
`bytes` and `records` fields, which are never copied here. Nulls and types are not checked
ahead: what has no wire form fails in the line that writes it, and the line names the field.
"""

import struct
from functools import partial
from typing import Final

from headrace.wire import primitives
from headrace.wire.plan import STRUCT, FieldPlan, StructPlan, plan_message
from headrace.wire.primitives import LAYOUT_CODES, Runs, layout
from headrace.wire.schema import Message
from headrace.wire.source import Source, Variables

_HELPERS: Final = (
    primitives.bad_uuid,
    primitives.not_in_version,
    primitives.string_length,
    primitives.compact_string_length,
    primitives.write_tags,
    primitives.write_varint,
)


def encoder_source(message: type[Message], version: int) -> Source:
    """Write `encode(message, add)`, which hands each part to `add` in order."""
    source = Source(f"encode {message.__name__} v{version}")
    for helper in _HELPERS:
        source.bind(helper.__name__, helper)
    source.bind("ONE_BYTE", primitives.ONE_BYTE)
    with source.block("def encode(message, add):"):
        _Encoder(source).struct(plan_message(message, version), "message")
    return source


class _Encoder:
    """Writes the code that writes a value, given the expression that holds it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.add = "add"
        """The function that takes the parts: the message's, or a tagged field's."""

    def struct(self, plan: StructPlan, holder: str) -> None:
        for name in plan.forbidden:
            with self.source.field(name):
                default = self.differs(f"{holder}.{name}", getattr(plan.type(), name))
                self.source.line(f"if {default}: not_in_version({holder}.{name})")
        for run in plan.runs():
            if run[0].is_fixed:
                self.fixed(run, holder)
            else:
                self.field(run[0], holder)
        self.tagged(plan, holder)

    def differs(self, value: str, default: object) -> str:
        """Write the test whether a value is not the default."""
        if default is None:
            return f"{value} is not None"
        if isinstance(default, bool | int | float | str | bytes | list):
            return f"{value} != {default!r}"
        return f"{value} != {self.source.bind(self.source.variable('default'), default)}"

    def fixed(self, run: tuple[FieldPlan, ...], holder: str) -> None:
        for field in run:
            if field.kind == "uuid":
                with self.source.field(field.name):
                    value = f"{holder}.{field.name}"
                    self.source.line(f"if len({value}) != 16: bad_uuid({value})")
        codes = "".join(LAYOUT_CODES[field.kind] for field in run)
        pack = self.source.bind(f"pack_{codes.replace('?', 'o')}", layout(codes).pack)
        values = ", ".join(f"{holder}.{field.name}" for field in run)
        suspect = partial(_first_unpackable, run, holder)
        self.source.line(f"{self.add}({pack}({values}))", suspect=suspect)

    def field(self, plan: FieldPlan, holder: str) -> None:
        value = self.source.variable("v")
        with self.source.field(plan.name):
            self.source.line(f"{value} = {holder}.{plan.name}")
            if not plan.is_nullable:
                self.value(plan, value)
                return
            with self.source.block(f"if {value} is None:"):
                self.source.line(f"{self.add}({_null(plan)!r})")
            with self.source.block("else:"):
                if plan.kind == STRUCT and not plan.is_array:
                    self.source.line(f"{self.add}({_PRESENT!r})")
                self.value(plan, value)

    def value(self, plan: FieldPlan, value: str) -> None:
        if plan.is_array:
            self.array(plan, value)
        elif plan.kind == STRUCT:
            self.struct(plan.inner, value)
        elif plan.kind == "string":
            self.string(plan, value)
        else:
            self.length(plan, f"len({value})")
            self.source.line(f"{self.add}({value})")

    def string(self, plan: FieldPlan, value: str) -> None:
        text = self.source.variable("v")
        self.source.line(f"{text} = {value}.encode()")
        if plan.is_flexible:
            self.source.line(f"n = len({text}) + 1")
            self.source.line(f"{self.add}(ONE_BYTE[n] if n < 128 else compact_string_length(n))")
        else:
            self.source.line(f"{self.add}(string_length(len({text})))")
        self.source.line(f"{self.add}({text})")

    def length(self, plan: FieldPlan, count: str) -> None:
        if plan.is_flexible:
            self.source.line(f"n = {count} + 1")
            self.source.line(f"{self.add}(ONE_BYTE[n] if n < 128 else write_varint(n))")
        else:
            pack = self.source.bind("pack_i", layout("i").pack)
            self.source.line(f"{self.add}({pack}({count}))")

    def array(self, plan: FieldPlan, value: str) -> None:
        self.length(plan, f"len({value})")
        if plan.kind in LAYOUT_CODES:
            self.numbers(plan, value)
            return
        element = self.source.variable("x")
        each = f"{element} in {value}"
        with self.source.block(f"for {each}:"), self.source.element(each):
            self.value(plan.element(), element)

    def numbers(self, plan: FieldPlan, value: str) -> None:
        if plan.kind == "uuid":
            self.source.line(f"for x in {value}:")
            self.source.line("    if len(x) != 16: bad_uuid(x)")
        write = self.source.bind(f"write_{plan.kind}s", _NUMBER_WRITERS[plan.kind])
        self.source.line(f"{self.add}({write}[len({value})](*{value}))")

    def tagged(self, plan: StructPlan, holder: str) -> None:
        source, unknown = self.source, f"{holder}.unknown_tags"
        if not plan.is_flexible:
            with source.field("tags"):
                source.line(f"if {unknown}: not_in_version({unknown})")
            return
        known = source.variable("t")
        if plan.tagged:
            source.line(f"{known} = []")
        for field in plan.tagged:
            self.tagged_field(field, holder, known)
        with source.field("tags"):
            nothing = f"not {unknown}" + (f" and not {known}" if plan.tagged else "")
            with source.block(f"if {nothing}:"):
                source.line(f"{self.add}({_NO_TAGS!r})")
            with source.block("else:"):
                fields = known if plan.tagged else "()"
                with source.block(f"for x in write_tags({fields}, {unknown}):"):
                    source.line(f"{self.add}(x)")

    def tagged_field(self, plan: FieldPlan, holder: str, known: str) -> None:
        """Write a tagged field to a separate list, as its size comes first."""
        source, parts = self.source, self.source.variable("s")
        with source.block(f"if {self.differs(f'{holder}.{plan.name}', plan.default)}:"):
            outer, self.add = self.add, f"{parts}.append"
            source.line(f"{parts} = []")
            if plan.is_fixed:
                self.fixed((plan,), holder)
            else:
                self.field(plan, holder)
            source.line(f"{known}.append(({plan.tag}, {parts}))")
            self.add = outer


def _first_unpackable(run: tuple[FieldPlan, ...], holder: str, variables: Variables) -> str:
    """Name the field of a run whose value does not fit its type."""
    for field in run:
        try:
            layout(LAYOUT_CODES[field.kind]).pack(getattr(variables[holder], field.name))
        except struct.error:
            return field.name
    raise AssertionError("the run can be packed")


_NO_TAGS: Final = b"\x00"
_PRESENT: Final = b"\x01"
_NUMBER_WRITERS: Final = {
    kind: Runs(code, lambda layout: layout.pack) for kind, code in LAYOUT_CODES.items()
}


def _null(plan: FieldPlan) -> bytes:
    """Return the wire form of null: a length of -1, in compact form 0; a struct's marker is -1.

    The marker of a tagged struct is 0: there Kafka writes a varint.
    """
    if plan.kind == STRUCT and not plan.is_array:
        return b"\xff" if plan.tag < 0 else b"\x00"
    if plan.is_flexible:
        return b"\x00"
    return b"\xff" * (2 if plan.kind == "string" and not plan.is_array else 4)
