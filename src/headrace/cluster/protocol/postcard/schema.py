"""What a message is made of: classes whose annotations say what each field takes on the wire.

| annotation | bytes |
| --- | --- |
| `U8`, `I8` | one byte |
| `U16` to `U128` | LEB128 varint: seven bits a byte, lowest first |
| `I16` to `I64` | zigzag, then varint |
| `F32`, `F64` | IEEE 754, little endian |
| `bool` | 0 or 1 |
| `str` | varint count of bytes, UTF-8 |
| `Buffer` (of `wire.schema`) | varint count, bytes; decoding returns a memoryview of the frame |
| `Annotated[bytes, Octets(4)]` | so many bytes, without a count |
| an `IntEnum` | varint: the value is the index |
| `X \\| None` | 0, or 1 and X |
| `tuple[X, ...]` | varint count, items |
| `dict[K, V]` | varint count, keys and values in the order of the dict |
| a `Form` | its fields in the order of the class |
| `A \\| B` of tagged `Form`s | varint: the class's tag; then its fields |

There are no field names, versions or optional fields: a type that changes is another message.
Types do not nest in themselves: a message's depth is known before any byte of it is read.
"""

from typing import Annotated, TypeAlias

import msgspec


class Form(msgspec.Struct, frozen=True, gc=False):
    """A group of fields. One that is a variant of an enum has its index there as `tag`.

    Messages are trees, so none needs the collector.
    """


class Integer(msgspec.Struct, frozen=True):
    """The width of an integer: `Annotated[int, Integer(32)]`."""

    bits: int
    is_signed: bool = False

    @property
    def low(self) -> int:
        return -(1 << self.bits - 1) if self.is_signed else 0

    @property
    def high(self) -> int:
        return (1 << self.bits - self.is_signed) - 1

    @property
    def name(self) -> str:
        return f"{'i' if self.is_signed else 'u'}{self.bits}"


class Real(msgspec.Struct, frozen=True):
    """The width of a float: `Annotated[float, Real(32)]`."""

    bits: int


class Octets(msgspec.Struct, frozen=True):
    """The size of an array of bytes: `Annotated[bytes, Octets(4)]`."""

    count: int


U8: TypeAlias = Annotated[int, Integer(8)]
U16: TypeAlias = Annotated[int, Integer(16)]
U32: TypeAlias = Annotated[int, Integer(32)]
U64: TypeAlias = Annotated[int, Integer(64)]
U128: TypeAlias = Annotated[int, Integer(128)]
I8: TypeAlias = Annotated[int, Integer(8, is_signed=True)]
I16: TypeAlias = Annotated[int, Integer(16, is_signed=True)]
I32: TypeAlias = Annotated[int, Integer(32, is_signed=True)]
I64: TypeAlias = Annotated[int, Integer(64, is_signed=True)]
F32: TypeAlias = Annotated[float, Real(32)]
F64: TypeAlias = Annotated[float, Real(64)]
