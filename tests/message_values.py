"""Values for any message in any version, from a source of choices.

One generator serves two kinds of test: hypothesis, which shrinks what it draws, and a seeded
Random, which is fast enough to fill every message for a comparison with another codec.
"""

import math
from random import Random
from typing import Any, Protocol

from hypothesis import strategies as st

from headrace.wire import message_type
from headrace.wire.messages import MODULES
from headrace.wire.plan import STRUCT, FieldPlan, StructPlan, plan_message
from headrace.wire.schema import Message, parse_versions

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

MESSAGE_NAMES = sorted(MODULES)


def versions_of(name: str) -> range:
    versions = parse_versions(message_type(name).VERSIONS)
    return range(versions.first, versions.last + 1)


class Choices(Protocol):
    def boolean(self) -> bool: ...
    def integer(self, low: int, high: int) -> int: ...
    def real(self) -> float: ...
    def text(self) -> str: ...
    def data(self) -> bytes: ...
    def uuid(self) -> bytes: ...


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def boolean(self) -> bool:
        return self._draw(st.booleans())

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def real(self) -> float:
        return self._draw(st.floats(allow_nan=False))

    def text(self) -> str:
        return self._draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))

    def data(self) -> bytes:
        return self._draw(st.binary(max_size=200))

    def uuid(self) -> bytes:
        return self._draw(st.binary(min_size=16, max_size=16))


class Rolled:
    """Choices of a seeded Random; lengths around the edges of one-byte varints are frequent."""

    LENGTHS: tuple[int, ...] = (0, 1, 2, 3, 7, 40, 126, 127, 128, 300)
    ALPHABET = 'abcXYZ-._09 éß漢\U0001f600\n\\"'

    def __init__(self, random: Random) -> None:
        self.random = random

    def boolean(self) -> bool:
        return self.random.random() < 0.5

    def integer(self, low: int, high: int) -> int:
        near = (low, high, max(low, -1), min(high, 1), self.random.randint(low, high))
        return self.random.choice(near)

    def real(self) -> float:
        return self.random.choice((0.0, -1.5, 1e300, math.inf, self.random.random()))

    def text(self) -> str:
        return "".join(self.random.choices(self.ALPHABET, k=self.random.choice(self.LENGTHS)))

    def data(self) -> bytes:
        return self.random.randbytes(self.random.choice(self.LENGTHS))

    def uuid(self) -> bytes:
        return self.random.randbytes(16)


class Filled(Rolled):
    """Choices of a seeded Random that leave nothing out: two of each list, no null, no zero."""

    ALPHABET = "abcdefgh"
    LENGTHS = (5, 6)

    def boolean(self) -> bool:
        return True

    def integer(self, low: int, high: int) -> int:
        if (low, high) == (0, 3):  # how many elements a list has
            return 2
        return self.random.randint(1, min(high, 99))


def make_message(message: type[Message], version: int, choices: Choices) -> Message:
    """Fill the fields that the version has; the others keep their defaults."""
    made = make_struct(plan_message(message, version), choices)
    assert isinstance(made, message)
    return made


def make_struct(plan: StructPlan, choices: Choices) -> Any:
    values = {field.name: make_value(field, choices) for field in plan.present}
    values |= {field.name: make_value(field, choices) for field in plan.tagged if choices.boolean()}
    return plan.type(**values)


def make_value(plan: FieldPlan, choices: Choices) -> Any:
    if plan.is_nullable and choices.integer(0, 4) == 0:
        return None
    if plan.is_array:
        return [make_single(plan, choices) for _ in range(choices.integer(0, 3))]
    return make_single(plan, choices)


def make_single(plan: FieldPlan, choices: Choices) -> Any:
    if plan.kind == STRUCT:
        return make_struct(plan.inner, choices)
    if plan.kind in INTEGERS:
        return choices.integer(*INTEGERS[plan.kind])
    makers = {
        "bool": choices.boolean,
        "float64": choices.real,
        "string": choices.text,
        "bytes": choices.data,
        "records": choices.data,
        "uuid": choices.uuid,
    }
    return makers[plan.kind]()
