"""Postcard, the serialization that seed 002 and its SWIM use: types in, an encoder and decoder out.

    class Ping(Form, frozen=True, tag=0):
        source: str
        incarnation: U64

    PINGS: Codec[Ping | Ack] = Codec("SwimMessage", Ping | Ack)
    data = PINGS.encode(Ping("1", 7))
    again = PINGS.decode(data)

Read `schema` for what a type may be made of, `plan` for what it becomes, `decoding` and
`encoding` for the code that is written from it, `codec` for errors.
"""

from headrace.cluster.protocol.postcard.codec import Codec
from headrace.cluster.protocol.postcard.schema import (
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
    Form,
    Integer,
    Octets,
)
from headrace.wire.schema import Buffer

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "U128",
    "Buffer",
    "Codec",
    "Form",
    "Integer",
    "Octets",
]
