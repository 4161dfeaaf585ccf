"""Compile the decoder of a type: straight-line Python that reads each field in its turn.

Announced counts are not trusted: none may be larger than the rest of the frame can hold, and all
counts of a message together are at most `room`, as an object takes more memory and time than the
byte that may encode it.
"""

from functools import cache
from struct import Struct as Layout
from typing import Final

from headrace.cluster.protocol.postcard import primitives
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
    bytes_min,
)
from headrace.cluster.protocol.postcard.primitives import Reader, varint_reader
from headrace.cluster.protocol.postcard.schema import Form, Integer, Octets, Real
from headrace.wire.primitives import too_many, too_short
from headrace.wire.source import Source

COUNT: Final = Integer(64)
"""The width of counts."""
INDEX: Final = Integer(32)
"""The width of an enum's index."""
_HELPERS: Final = (
    primitives.bad_boolean,
    primitives.bad_index,
    primitives.bad_option,
    primitives.repeated_key,
    primitives.too_costly,
    too_many,
    too_short,
)


def decoder_source(name: str, plan: Plan) -> Source:
    """Write `decode(buffer, p, end, room)`, which returns the value and the position after it."""
    source = Source(f"decode postcard {name}")
    for helper in _HELPERS:
        source.bind(helper.__name__, helper)
    with source.block("def decode(buffer, p, end, room):"):
        value = _Decoder(source).value(plan)
        source.line(f"return {value}, p")
    return source


class _Decoder:
    """Writes the code that reads a value, and names the variable that holds it."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def value(self, plan: Plan) -> str:
        value = self.source.variable("v")
        self.read(plan, value)
        return value

    def read(self, plan: Plan, value: str) -> None:
        match plan:
            case Integer():
                self.integer(plan, value)
            case Text():
                self.sized(value)
                self.source.line(f"{value} = str({value}, 'utf-8')")
            case Data():
                self.sized(value)
            case Record():
                self.record(plan, value)
            case Sequence(item):
                self.sequence(item, value)
            case Optional(item):
                self.optional(item, value)
            case Mapping():
                self.mapping(plan, value)
            case Union():
                self.union(plan, value)
            case Choice():
                self.choice(plan, value)
            case Boolean():
                self.byte(value)
                self.source.line(f"if {value} > 1: bad_boolean({value})")
                self.source.line(f"{value} = {value} == 1")
            case Real(bits):
                unpack = self.source.bind(f"unpack_{bits}", _REALS[bits].unpack_from)
                self.source.line(f"if {bits // 8} > end - p: too_short({bits // 8}, end - p)")
                self.source.line(f"{value} = {unpack}(buffer, p)[0]")
                self.source.line(f"p += {bits // 8}")
            case Octets(count):
                self.source.line(f"if {count} > end - p: too_short({count}, end - p)")
                self.source.line(f"{value} = bytes(buffer[p:p + {count}])")
                self.source.line(f"p += {count}")

    def byte(self, value: str) -> None:
        self.source.line(f"{value} = buffer[p]")
        self.source.line("p += 1")

    def integer(self, width: Integer, value: str) -> None:
        self.byte(value)
        if width.bits == 8:
            if width.is_signed:
                self.source.line(f"if {value} > 127: {value} -= 256")
            return
        read = self.source.bind(f"read_u{width.bits}", _reader(width.bits))
        self.source.line(f"if {value} > 127: {value}, p = {read}(buffer, p, {value})")
        if width.is_signed:
            self.source.line(f"{value} = {value} >> 1 ^ -({value} & 1)")

    def sized(self, value: str) -> None:
        """Read a count and that many bytes, as a view of them."""
        self.integer(COUNT, "n")
        self.source.line("if n > end - p: too_short(n, end - p)")
        self.source.line(f"{value} = buffer[p:p + n]")
        self.source.line("p += n")

    def count(self, count: str, each_bytes: int) -> None:
        """Read how many items follow; each of them takes at least `each_bytes`."""
        self.integer(COUNT, count)
        needed = count if each_bytes == 1 else f"{count} * {each_bytes}"
        self.source.line(f"if {needed} > end - p: too_many({count}, end - p)")
        self.source.line(f"room -= {count}")
        self.source.line(f"if room < 0: too_costly({count})")

    def sequence(self, item: Plan, value: str) -> None:
        source, items, index = self.source, self.source.variable("v"), self.source.variable("i")
        self.count("n", bytes_min(item))
        source.line(f"{items} = []")
        with source.block(f"for {index} in range(n):"), source.element(index):
            source.line(f"{items}.append({self.value(item)})")
        source.line(f"{value} = tuple({items})")

    def mapping(self, plan: Mapping, value: str) -> None:
        source, index = self.source, self.source.variable("i")
        self.count("n", bytes_min(plan.key) + bytes_min(plan.value))
        source.line(f"{value} = {{}}")
        with source.block(f"for {index} in range(n):"), source.element(index):
            key = self.value(plan.key)
            source.line(f"if {key} in {value}: repeated_key({key})")
            source.line(f"{value}[{key}] = {self.value(plan.value)}")

    def optional(self, item: Plan, value: str) -> None:
        self.byte(value)
        self.source.line(f"if {value} > 1: bad_option({value})")
        with self.source.block(f"if {value}:"):
            self.read(item, value)
        self.source.line(f"else: {value} = None")

    def choice(self, plan: Choice, value: str) -> None:
        table = self.source.bind(plan.type.__name__, {each.value: each for each in plan.type})
        self.integer(INDEX, "n")
        self.source.line(f"if n not in {table}: bad_index(n)")
        self.source.line(f"{value} = {table}[n]")

    def union(self, plan: Union, value: str) -> None:
        source, branch = self.source, "if"
        self.integer(INDEX, "n")
        for index, variant in plan.variants:
            with source.block(f"{branch} n == {index}:"), source.field(variant.type.__name__):
                self.record(variant, value)
            branch = "elif"
        source.line("else: bad_index(n)")

    def record(self, plan: Record, value: str) -> None:
        arguments = []
        for name, field in plan.fields:
            with self.source.field(name):
                arguments.append(f"{name}={self.value(field)}")
        construct = self.source.bind(class_name(plan.type), plan.type)
        self.source.line(f"{value} = {construct}({', '.join(arguments)})")


def class_name(form: type[Form]) -> str:
    """Return a name for a class in compiled code: two modules may have one of the same name."""
    return f"{form.__module__}.{form.__qualname__}".replace(".", "_")


@cache
def _reader(bits: int) -> Reader:
    return varint_reader(bits)


_REALS: Final = {32: Layout("<f"), 64: Layout("<d")}
