"""The rules of postcard, form by form: https://postcard.jamesmunns.com/wire-format."""

import math
from enum import IntEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import field

from headrace.cluster.protocol.errors import ProtocolError
from headrace.cluster.protocol.postcard import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    U128,
    Buffer,
    Codec,
    Form,
    Octets,
)
from tests.unit.cluster.protocol.values import any_of


class Colour(IntEnum):
    RED = 0
    GREEN = 1
    OURS = 200


class Nothing(Form, frozen=True, tag=0):
    pass


class Something(Form, frozen=True, tag=3):
    count: U16


class Ours(Form, frozen=True, tag=300):
    names: tuple[str, ...]


class Everything(Form, frozen=True, kw_only=True):
    small: U8
    signed: I8
    short: I16 = 0
    word: I32 = 0
    long: I64 = 0
    single: F32 = 0.0
    double: F64 = 0.0
    huge: U128 = 0
    is_on: bool = False
    text: str = ""
    data: Buffer = b""
    pair: Annotated[bytes, Octets(2)] = b"\0\0"
    colour: Colour = Colour.RED
    maybe: Something | None = None
    many: tuple[tuple[U32, ...], ...] = ()
    table: dict[str, dict[U32, bool]] = field(default_factory=dict)
    variant: Nothing | Something | Ours = Nothing()


EVERYTHING: Codec[Everything] = Codec("Everything", Everything)
VARIANTS: Codec[Nothing | Something | Ours] = Codec("Variant", Nothing | Something | Ours)
U16S: Codec[int] = Codec("Number", U16)
U64S: Codec[int] = Codec("Number", U64)
TABLES: Codec[dict[U32, str]] = Codec("Table", dict[U32, str])


@given(any_of(EVERYTHING.plan))
def test_any_value_is_read_as_it_was_written(value: Everything) -> None:
    assert EVERYTHING.decode(EVERYTHING.encode(value)) == value


@pytest.mark.parametrize(
    ("form", "value", "written"),
    [
        (U8, 255, "ff"),
        (I8, -1, "ff"),
        (I8, -128, "80"),
        (U16, 0, "00"),
        (U16, 127, "7f"),
        (U16, 128, "8001"),
        (U16, 65535, "ffff03"),
        (U32, 2**32 - 1, "ffffffff0f"),
        (U64, 2**64 - 1, "ffffffffffffffffff01"),
        (U128, 2**128 - 1, "ffffffffffffffffffffffffffffffffffff03"),
        (I16, -1, "01"),
        (I16, 1, "02"),
        (I16, 63, "7e"),
        (I16, -64, "7f"),
        (I16, 64, "8001"),
        (I16, 32767, "feff03"),
        (I16, -32768, "ffff03"),
        (I32, -(2**31), "ffffffff0f"),
        (I64, 2**63 - 1, "feffffffffffffffff01"),
        (F32, -32.005859375, "000600c2"),
        (F64, -32.005859375, "00000000c00040c0"),
        (bool, True, "01"),
        (str, "é", "02c3a9"),
        (Buffer, b"\0\xff", "0200ff"),
        (Annotated[bytes, Octets(2)], b"\x80\x01", "8001"),
        (Colour, Colour.GREEN, "01"),
        (Colour, Colour.OURS, "c801"),
        (U8 | None, None, "00"),
        (U8 | None, 0, "0100"),
        (tuple[U16, ...], (1, 128), "02018001"),
        (dict[U8, str], {7: "", 1: "a"}, "0207000101" + "61"),
    ],
)
def test_each_form_has_the_bytes_of_the_specification(form: Any, value: Any, written: str) -> None:
    codec: Codec[Any] = Codec("Value", form)
    assert codec.encode(value).hex() == written
    assert codec.decode(bytes.fromhex(written)) == value


def test_variants_have_the_index_of_their_tag_with_gaps_and_above_127() -> None:
    assert VARIANTS.encode(Nothing()).hex() == "00"
    assert VARIANTS.encode(Something(5)).hex() == "0305"
    assert VARIANTS.encode(Ours(("a",))).hex() == "ac02" + "010161"
    for value in (Nothing(), Something(5), Ours(("a",))):
        assert VARIANTS.decode(VARIANTS.encode(value)) == value
    with pytest.raises(ProtocolError, match="Variant at byte 1: there is no variant 1"):
        VARIANTS.decode(b"\x01")


@pytest.mark.parametrize(
    ("form", "data", "reason"),
    [
        (U16, "80", "the message ends at byte 1"),
        (U16, "ffff04", "a varint is above 65535, the most of u16"),
        (U16, "ffff83", "a varint is above 65535, the most of u16"),
        (U16, "808080", "a varint is above 65535, the most of u16"),
        (U64, "ffffffffffffffffff02", "a varint is above 18446744073709551615, the most of u64"),
        (U64, "80" * 1000, "a varint is above 18446744073709551615, the most of u64"),
        (U16, "8000", "a varint is longer than it has to be"),
        (U64, "ff8000", "a varint is longer than it has to be"),
        (bool, "02", "is 2, neither 0 (false) nor 1 (true)"),
        (U8 | None, "02", "is 2, neither 0 (none) nor 1 (some)"),
        (str, "05" + "61" * 4, "5 bytes are announced, 4 are left"),
        (str, "ffffffffffffffffff01", "18446744073709551615 bytes are announced, 0 are left"),
        (str, "01ff", "invalid UTF-8: invalid start byte"),
        (str, "03eda080", "invalid UTF-8: invalid continuation byte"),
        (Buffer, "0100"[:2], "1 bytes are announced, 0 are left"),
        (F32, "000000", "4 bytes are announced, 3 are left"),
        (F64, "", "8 bytes are announced, 0 are left"),
        (Annotated[bytes, Octets(2)], "00", "2 bytes are announced, 1 are left"),
        (Colour, "02", "there is no variant 2"),
        (tuple[U8, ...], "03" + "0000", "3 elements are announced, which 2 bytes cannot hold"),
        (dict[U8, U8], "02" + "000000", "2 elements are announced, which 3 bytes cannot hold"),
        (dict[U8, U8], "0201000100", "the key 1 is there twice"),
        (U8, "0000", "1 bytes are left over"),
    ],
)
def test_what_is_not_a_value_is_refused_with_the_reason(form: Any, data: str, reason: str) -> None:
    codec: Codec[Any] = Codec("Value", form)
    with pytest.raises(ProtocolError) as caught:
        codec.decode(bytes.fromhex(data))
    assert caught.value.reason == reason
    assert caught.value.message == "Value"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"small": 256}, "small: is 256, which is not from 0 to 255"),
        ({"small": -1}, "small: is -1, which is not from 0 to 255"),
        ({"signed": 128}, "signed: is 128, which is not from -128 to 127"),
        ({"short": 2**15}, "short: is 32768, which is not from -32768 to 32767"),
        ({"long": -(2**63) - 1}, "long: is -9223372036854775809, which is not from"),
        ({"huge": 10**5000}, "huge: is an integer of 16610 bits, which is not from"),
        ({"small": "1"}, "small: '<=' not supported"),
        ({"small": 1.0}, "small: list indices must be integers"),
        ({"is_on": 1}, "is_on: is 1, neither true nor false"),
        ({"text": b"a"}, "text: 'bytes' object has no attribute 'encode'"),
        ({"text": "\ud800"}, "text: 'utf-8' codec can't encode"),
        ({"data": "text"}, "data: is 'text', not bytes"),
        ({"data": memoryview(b"abcd")[::2]}, "data: is a view of something that is not bytes"),
        ({"data": memoryview(b"abcd").cast("I")}, "data: is a view of something that is not"),
        ({"data": memoryview(b"abcd").cast("B", (2, 2))}, "data: is a view of something that"),
        ({"pair": b"abc"}, "pair: has 3 bytes, not 2"),
        ({"colour": 1}, "colour: is 1, which is none of the variants"),
        ({"single": 1e39}, "single: float too large to pack"),
        ({"maybe": Nothing()}, r"maybe: is Nothing\(\), which is none of the variants"),
        ({"maybe": Something(-1)}, "maybe.count: is -1, which is not from 0 to 65535"),
        ({"many": ((), (1, 2**32))}, r"many\[1\]\[1\]: is 4294967296, which is not from 0"),
        ({"table": {"a": {}, "b": {-1: True}}}, r"table\[1\]\[0\]: is -1, which is not from 0"),
        ({"variant": Ours((None,))}, r"variant\.Ours\.names\[0\]: 'NoneType' object"),  # type: ignore[arg-type]
        ({"variant": None}, "variant: is None, which is none of the variants"),
    ],
)
def test_a_value_without_wire_form_is_refused_with_its_field(change: Any, reason: str) -> None:
    value = Everything(**{"small": 0, "signed": 0, **change})
    with pytest.raises(ProtocolError, match=f"^Everything, {reason}"):
        EVERYTHING.encode(value)


def test_a_fault_inside_a_message_is_named_with_its_place() -> None:
    value = Everything(small=1, signed=1, many=((1,), (2, 3)), table={"a": {7: True}})
    data = EVERYTHING.encode(value)
    position = data.index(b"\x01a\x01\x07\x01") + 4
    with pytest.raises(ProtocolError, match="is 5, neither 0") as caught:
        EVERYTHING.decode(data[:position] + b"\x05" + data[position + 1 :])
    assert caught.value.field == "table[0][0]"
    assert caught.value.position == position + 1


def test_errors_carry_no_other_exception_with_them() -> None:
    with pytest.raises(ProtocolError) as caught:
        U16S.decode(b"")
    assert caught.value.__context__ is None


@given(st.integers(0, 2**64 - 1))
def test_a_varint_is_as_short_as_can_be(value: int) -> None:
    data = U64S.encode(value)
    assert len(data) == max(1, math.ceil(value.bit_length() / 7))
    with pytest.raises(ProtocolError):
        U64S.decode(data[:-1] + bytes([data[-1] | 128]) + b"\0")


def test_a_map_keeps_the_order_it_came_in() -> None:
    data = TABLES.encode({9: "a", 1: "b", 5: "c"})
    assert list(TABLES.decode(data)) == [9, 1, 5]
    assert TABLES.encode(TABLES.decode(data)) == data


def test_a_value_may_be_followed_by_others() -> None:
    view = memoryview(b"\x01\x80\x01\x05")
    assert U16S.decode_from(view, 1) == (128, 3)
    assert U16S.decode_from(view, 3) == (5, 4)
    with pytest.raises(ProtocolError, match="Number at byte 4: the message ends at byte 4"):
        U16S.decode_from(view, 4)
