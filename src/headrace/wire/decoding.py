"""Compile the decoder of one version of a message.

What comes out is straight-line code with a loop per array. `p` is the position and `room` the
memory that the decoded objects may still take; every length is checked against the bytes left
before anything is made from it.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from struct import Struct as Layout
from typing import Any, Final

from headrace.wire import primitives
from headrace.wire.plan import STRUCT, FieldPlan, StructPlan, plan_message
from headrace.wire.primitives import LAYOUT_CODES, Runs, layout
from headrace.wire.schema import Message
from headrace.wire.source import Source, Variables

_HELPERS: Final = (
    primitives.bad_length,
    primitives.bad_tag_size,
    primitives.keep_tag,
    primitives.read_tags,
    primitives.read_varint,
    primitives.too_costly,
    primitives.too_many,
    primitives.too_short,
)


def decoder_source(message: type[Message], version: int) -> Source:
    """Write `decode(buffer, p, end, room) -> (message, position)`."""
    source = Source(f"decode {message.__name__} v{version}")
    for helper in _HELPERS:
        source.bind(helper.__name__, helper)
    with source.block("def decode(buffer, p, end, room):"):
        value = _Decoder(source).struct(plan_message(message, version))
        source.line(f"return {value}, p")
    return source


class _Decoder:
    """Writes the code that reads a value; each method gives the expression that holds it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.end = "end"
        """The variable that bounds what is read: the end of the frame or of a tagged field."""
        self.length_is_read = False
        """Whether `n` holds the length of the next field already."""

    def struct(self, plan: StructPlan) -> str:
        values: dict[str, str] = {}
        runs = [*plan.runs(), ()]
        for run, following in pairwise(runs):
            if run[0].is_fixed:
                values |= self.fixed(run, following)
            else:
                values[run[0].name] = self.value(run[0])
        if not plan.is_flexible:
            return self.construct(plan, values)
        return self.tagged(plan, values) if plan.tagged else self.untagged(plan, values)

    def construct(self, plan: StructPlan, values: dict[str, str]) -> str:
        """Call the class; fields after the last one that was read keep their defaults."""
        names = [field.name for field in plan.type.FIELDS]
        while names and names[-1] not in values:
            names.pop()
        defaults = plan.type()
        arguments = [values.get(name) or self.default(getattr(defaults, name)) for name in names]
        type_name = self.source.bind(plan.type.__name__, plan.type)
        value = self.source.variable("v")
        self.source.line(f"{value} = {type_name}({', '.join(arguments)})")
        return value

    def default(self, value: object) -> str:
        if value is None or isinstance(value, bool | int | float | str | bytes | list):
            return repr(value)
        return f"{self.source.bind(type(value).__name__, type(value))}()"

    def fixed(
        self, run: tuple[FieldPlan, ...], following: tuple[FieldPlan, ...] = ()
    ) -> dict[str, str]:
        """Read a run of fixed width, and with it the length of the field that follows."""
        codes = "".join(LAYOUT_CODES[field.kind] for field in run)
        values = {field.name: self.source.variable("v") for field in run}
        targets = list(values.values())
        if following and (length_code := following[0].length_code):
            codes += length_code
            targets.append("n")
            self.length_is_read = True
        text = f"{', '.join(targets)}, = {self.unpack(codes)}(buffer, p)"
        self.source.line(text, suspect=partial(_first_cut_off, (*run, *following)))
        self.source.line(f"p += {layout(codes).size}")
        return values

    def unpack(self, codes: str) -> str:
        return self.source.bind(f"unpack_{codes.replace('?', 'o')}", layout(codes).unpack_from)

    def value(self, plan: FieldPlan) -> str:
        if plan.is_fixed:
            return self.fixed((plan,))[plan.name]
        value = self.source.variable("v")
        with self.source.field(plan.name):
            if plan.kind == STRUCT and not plan.is_array:
                self.single_struct(plan, value)
            else:
                self.sized(plan, value)
        return value

    def single_struct(self, plan: FieldPlan, value: str) -> None:
        if not plan.is_nullable:
            self.source.line(f"{value} = {self.struct(plan.inner)}")
            return
        self.source.line(f"n, = {self.unpack('b')}(buffer, p)")
        self.source.line("p += 1")
        with self.source.block("if n < 0:" if plan.tag < 0 else "if n <= 0:"):
            self.source.line(f"{value} = None")
        with self.source.block("else:"):
            self.source.line(f"{value} = {self.struct(plan.inner)}")

    def sized(self, plan: FieldPlan, value: str) -> None:
        """Read what starts with a length: a string, bytes or an array.

        The length is in `n`; in the compact form it is one more, so that 0 is null.
        """
        self.length(plan)
        read = self.array if plan.is_array else self.text_or_bytes
        null = 0 if plan.is_flexible else -1
        if not plan.is_nullable:
            self.source.line(f"if n <= {null}: bad_length(n - {null + 1})")
            read(plan, value)
            return
        with self.source.block(f"if n > {null}:"):
            read(plan, value)
        with self.source.block("else:"):
            if not plan.is_flexible:
                self.source.line("if n < -1: bad_length(n)")
            self.source.line(f"{value} = None")

    def length(self, plan: FieldPlan) -> None:
        if not self.length_is_read:
            if plan.is_flexible:
                self.source.line("n = buffer[p]")
            else:
                self.source.line(f"n, = {self.unpack(plan.length_code)}(buffer, p)")
            self.source.line(f"p += {layout(plan.length_code).size}")
        self.length_is_read = False
        if plan.is_flexible:
            self.source.line("if n > 127: n, p = read_varint(buffer, p - 1)")

    def varint(self, name: str) -> None:
        self.source.line(f"{name} = buffer[p]")
        self.source.line("p += 1")
        self.source.line(f"if {name} > 127: {name}, p = read_varint(buffer, p - 1)")

    def text_or_bytes(self, plan: FieldPlan, value: str) -> None:
        if plan.is_flexible:
            self.source.line("n -= 1")
        self.source.line("q = p + n")
        self.source.line(f"if q > {self.end}: too_short(n, {self.end} - p)")
        if plan.kind == "string":
            read = self.source.bind("read_text", _TEXT_READERS)
            self.source.line(f"{value} = {read}[n](buffer, p)[0].decode()")
        else:
            self.source.line(f"{value} = buffer[p:q]")
        self.source.line("p = q")

    def array(self, plan: FieldPlan, value: str) -> None:
        if plan.is_flexible:
            self.source.line("n -= 1")
        left = f"{self.end} - p"
        fewest = plan.element_bytes_min
        holds = f"({left}) // {fewest}" if fewest > 1 else left
        self.source.line(f"if n > {holds}: too_many(n, {left})")
        self.source.line(f"room -= n * {8 + plan.element_memory_bytes}")
        self.source.line("if room < 0: too_costly(n)")
        if plan.kind in LAYOUT_CODES:
            self.numbers(plan, value)
            return
        index = self.source.variable("i")
        self.source.line(f"{value} = []")
        with self.source.block(f"for {index} in range(n):"), self.source.element(index):
            self.source.line(f"{value}.append({self.element(plan)})")

    def element(self, plan: FieldPlan) -> str:
        if plan.kind == STRUCT:
            return self.struct(plan.inner)
        value = self.source.variable("v")
        self.sized(plan.element(), value)
        return value

    def numbers(self, plan: FieldPlan, value: str) -> None:
        read = self.source.bind(f"read_{plan.kind}s", _NUMBER_READERS[plan.kind])
        self.source.line(f"{value} = list({read}[n](buffer, p))")
        self.source.line(f"p += n * {plan.element_bytes_min}")

    def untagged(self, plan: StructPlan, values: dict[str, str]) -> str:
        """Read the tagged section of a struct of which no tag is known."""
        value = self.construct(plan, values)
        with self.source.field("tags"):
            read = f"read_tags(buffer, p, {self.end}, room)"
            self.source.line(f"if buffer[p]: {value}.unknown_tags, p, room = {read}")
            self.source.line("else: p += 1")
        return value

    def tagged(self, plan: StructPlan, values: dict[str, str]) -> str:
        """Read the tagged section; fields that are not there get their defaults."""
        source, unknown = self.source, self.source.variable("t")
        for field in plan.tagged:
            values[field.name] = source.variable("v")
            source.line(f"{values[field.name]} = {self.default(field.default)}")
        source.line(f"{unknown} = None")
        with source.field("tags"):
            self.varint("n")
        with source.block("for _ in range(n):"):
            self.tag(plan, values, unknown)
        value = self.construct(plan, values)
        source.line(f"if {unknown}: {value}.unknown_tags = {unknown}")
        return value

    def tag(self, plan: StructPlan, values: dict[str, str], unknown: str) -> None:
        source, size, end = self.source, self.source.variable("s"), self.source.variable("e")
        with source.field("tags"):
            self.varint("tag")
            self.varint(size)
            source.line(f"{end} = p + {size}")
            source.line(f"if {end} > {self.end}: too_short({size}, {self.end} - p)")
        outer, self.end = self.end, end
        for field in plan.tagged:
            with source.block(f"if tag == {field.tag}:"):
                source.line(f"{values[field.name]} = {self.value(field)}")
                with source.field(field.name):
                    source.line(f"if p != {end}: bad_tag_size({size}, p - {end} + {size})")
                source.line("continue")
        self.end = outer
        with source.field("tags"):
            source.line(f"{unknown}, p, room = keep_tag({unknown}, tag, buffer[p:{end}], p, room)")


def _first_cut_off(run: tuple[FieldPlan, ...], variables: Variables) -> str:
    """Name the field of a run whose bytes are not all there, and move the position to it."""
    for field in run[:-1]:
        if variables["p"] + field.wire_bytes_min > len(variables["buffer"]):
            return field.name
        variables["p"] += field.wire_bytes_min
    return run[-1].name


_NUMBER_READERS: Final = {
    kind: Runs(code, lambda layout: layout.unpack_from) for kind, code in LAYOUT_CODES.items()
}


def _text_reader(text: Layout) -> Callable[..., Any]:
    # Made once for each length that is frequent, so that the limit costs nothing.
    if text.size > primitives.STRING_BYTES_MAX:
        primitives.string_too_long(text.size)
    return text.unpack_from


_TEXT_READERS: Final = Runs("s", _text_reader)
"""Quicker than a slice for a name, as no view of it is made."""
