"""Compile the encoder of a type.

What comes out appends parts to a list: short pieces of bytes, and the caller's own buffers for
`Buffer` fields, which are never copied here. A value that has no wire form fails in the line
that writes it, and the line names the field.
"""

from functools import cache
from struct import Struct as Layout
from typing import Final

from headrace.cluster.protocol.postcard import primitives
from headrace.cluster.protocol.postcard.decoding import COUNT, class_name
from headrace.cluster.protocol.postcard.plan import (
    Boolean,
    Choice,
    Data,
    Mapping,
    Optional,
    Plan,
    Record,
    Sequence,
    Text,
    Union,
)
from headrace.cluster.protocol.postcard.primitives import (
    ONE_BYTE,
    Writer,
    byte_writer,
    integer_writer,
    varint,
)
from headrace.cluster.protocol.postcard.schema import Integer, Octets, Real
from headrace.wire.source import Source

_HELPERS: Final = (
    primitives.bad_variant,
    primitives.checked_data,
    primitives.checked_octets,
    primitives.write_boolean,
)


def encoder_source(name: str, plan: Plan) -> Source:
    """Write `encode(message, add)`, which hands each part to `add` in order."""
    source = Source(f"encode postcard {name}")
    for helper in _HELPERS:
        source.bind(helper.__name__, helper)
    source.bind("ONE_BYTE", ONE_BYTE)
    with source.block("def encode(message, add):"):
        _Encoder(source).write(plan, "message")
    return source


class _Encoder:
    """Writes the code that writes a value, given the variable that holds it."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def write(self, plan: Plan, value: str) -> None:
        match plan:
            case Integer():
                self.integer(plan, value)
            case Text():
                text = self.source.variable("v")
                self.source.line(f"{text} = {value}.encode()")
                self.count(text)
                self.source.line(f"add({text})")
            case Data():
                self.source.line(f"checked_data({value})")
                self.count(value)
                self.source.line(f"add({value})")
            case Record():
                self.record(plan, value)
            case Sequence(item):
                self.count(value)
                self.items(value, item)
            case Optional(item):
                self.source.line(f"if {value} is None: add({ONE_BYTE[0]!r})")
                with self.source.block("else:"):
                    self.source.line(f"add({ONE_BYTE[1]!r})")
                    self.write(item, value)
            case Mapping():
                self.mapping(plan, value)
            case Union():
                self.union(plan, value)
            case Choice():
                self.choice(plan, value)
            case Boolean():
                self.source.line(f"add(write_boolean({value}))")
            case Real(bits):
                pack = self.source.bind(f"pack_{bits}", _REALS[bits].pack)
                self.source.line(f"add({pack}({value}))")
            case Octets(count):
                self.source.line(f"add(checked_octets({value}, {count}))")

    def integer(self, width: Integer, value: str) -> None:
        write = self.source.bind(f"write_{width.name}", _writer(width))
        if width.is_signed:
            self.source.line(f"add({write}({value}))")
        else:
            self.source.line(f"add(ONE_BYTE[{value}] if 0 <= {value} < 128 else {write}({value}))")

    def count(self, value: str) -> None:
        self.source.line(f"n = len({value})")
        write = self.source.bind(f"write_{COUNT.name}", _writer(COUNT))
        self.source.line(f"add(ONE_BYTE[n] if n < 128 else {write}(n))")

    def items(self, value: str, item: Plan) -> None:
        each = f"{self.source.variable('x')} in {value}"
        with self.source.block(f"for {each}:"), self.source.element(each):
            self.write(item, each.partition(" ")[0])

    def mapping(self, plan: Mapping, value: str) -> None:
        source, key, held = self.source, self.source.variable("x"), self.source.variable("v")
        self.count(value)
        each = f"{key} in {value}"
        with source.block(f"for {each}:"), source.element(each):
            self.write(plan.key, key)
            source.line(f"{held} = {value}[{key}]")
            self.write(plan.value, held)

    def choice(self, plan: Choice, value: str) -> None:
        source = self.source
        table = {each: varint(each.value) for each in plan.type}
        name = source.bind(plan.type.__name__, table)
        kind = source.bind(f"{plan.type.__name__}_type", plan.type)
        source.line(f"if type({value}) is not {kind}: bad_variant({value})")
        source.line(f"add({name}[{value}])")

    def union(self, plan: Union, value: str) -> None:
        source, branch = self.source, "if"
        kind = source.variable("t")
        source.line(f"{kind} = type({value})")
        for index, variant in plan.variants:
            name = source.bind(class_name(variant.type), variant.type)
            with source.block(f"{branch} {kind} is {name}:"), source.field(variant.type.__name__):
                source.line(f"add({varint(index)!r})")
                self.fields(variant, value)
            branch = "elif"
        source.line(f"else: bad_variant({value})")

    def record(self, plan: Record, value: str) -> None:
        kind = self.source.bind(class_name(plan.type), plan.type)
        self.source.line(f"if type({value}) is not {kind}: bad_variant({value})")
        self.fields(plan, value)

    def fields(self, plan: Record, value: str) -> None:
        for name, field in plan.fields:
            with self.source.field(name):
                held = self.source.variable("v")
                self.source.line(f"{held} = {value}.{name}")
                self.write(field, held)


@cache
def _writer(width: Integer) -> Writer:
    return byte_writer(width) if width.bits == 8 else integer_writer(width)


_REALS: Final = {32: Layout("<f"), 64: Layout("<d")}
