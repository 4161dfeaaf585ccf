from enum import Enum
from typing import Any

import pytest

from headrace.cluster.protocol.postcard import U8, U32, Buffer, Form
from headrace.cluster.protocol.postcard.plan import (
    Data,
    Optional,
    Record,
    Sequence,
    Text,
    bytes_min,
    plan_of,
)
from headrace.cluster.protocol.postcard.schema import Integer
from headrace.ids import TopicName


class Empty(Form, frozen=True):
    pass


class Untagged(Form, frozen=True):
    count: U8


class One(Form, frozen=True, tag=1):
    count: U8


class AlsoOne(Form, frozen=True, tag=1):
    count: U8


class Named(Form, frozen=True, tag="one"):
    count: U8


class Endless(Form, frozen=True):
    children: "tuple[Endless, ...]"


class Colour(Enum):
    RED = "red"


def test_a_type_becomes_its_parts() -> None:
    assert plan_of(TopicName) == Text()
    assert plan_of(Buffer) == Data()
    assert plan_of(Buffer | None) == Optional(Data())
    assert plan_of(tuple[U32 | None, ...]) == Sequence(Optional(Integer(32)))
    assert plan_of(Untagged) == Record(Untagged, (("count", Integer(8)),))


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (int, "an integer needs a width"),
        (float, "has no wire form"),
        (bytes, "has no wire form"),
        (list[str], "has no wire form"),
        (tuple[str, str], "has no wire form"),
        (Colour, "has no wire form"),
        (One | Untagged, "has no tag of its own"),
        (One | AlsoOne, "has no tag of its own"),
        (One | Named, "has no tag of its own"),
        (Endless, "nests in itself"),
        (tuple[Empty, ...], "items without bytes"),
        (dict[Empty, U8], "items without bytes"),
    ],
)
def test_a_type_without_wire_form_is_refused_when_it_is_compiled(form: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        plan_of(form)


def test_a_struct_takes_what_its_fields_take() -> None:
    assert bytes_min(plan_of(Empty)) == 0
    assert bytes_min(plan_of(One)) == 1
