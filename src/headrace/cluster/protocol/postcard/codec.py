"""Encode and decode values of a type: compile on first use, and explain what fails.

Nothing tracks where a codec is; an error is located when it happens, from the failing line.
"""

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from headrace.cluster.protocol.errors import ProtocolError
from headrace.cluster.protocol.postcard.decoding import decoder_source
from headrace.cluster.protocol.postcard.encoding import encoder_source
from headrace.cluster.protocol.postcard.plan import Plan, Union, plan_of
from headrace.wire.errors import Fault
from headrace.wire.schema import Buffer
from headrace.wire.source import Source

T = TypeVar("T")

ELEMENTS_MAX: Final = 256 * 1024
"""How many items all tuples and dicts of one message may have together.

The metadata of 37,000 partitions with three replicas. A hostile frame of 16 MiB could hold 16
million, which would take seconds to decode.
"""


class Codec(Generic[T]):
    """What reads and writes one type; `name` is what errors call it."""

    def __init__(self, name: str, form: Any) -> None:
        self.name = name
        self._form = form

    def decode(self, buffer: Buffer, elements_max: int = ELEMENTS_MAX) -> T:
        """Read a value that fills `buffer` to its end; ProtocolError if it does not.

        `Buffer` fields are memoryviews of `buffer`, not copies.
        """
        view = memoryview(buffer)
        value, position = self.decode_from(view, 0, elements_max)
        if position != len(view):
            raise ProtocolError(
                f"{len(view) - position} bytes are left over", message=self.name, position=position
            )
        return value

    def decode_from(
        self, view: memoryview, position: int, elements_max: int = ELEMENTS_MAX
    ) -> tuple[T, int]:
        """Decode a value that starts at `position`; return it and the position after it."""
        try:
            result: tuple[T, int] = self._decode(view, position, len(view), elements_max)
            return result
        except _DECODE_ERRORS as error:
            explained = self._explain_decoding(error)
        raise explained

    def encode(self, value: T) -> bytes:
        """Write a value; ProtocolError names a field that has no wire form."""
        return b"".join(self.encode_parts(value))

    def encode_parts(self, value: T) -> list[Buffer]:
        """Write a value as buffers to send one after the other; `Buffer` fields are not copied."""
        parts: list[Buffer] = []
        try:
            self._encode(value, parts.append)
            return parts
        except _ENCODE_ERRORS as error:
            explained = self._explain_encoding(error)
        raise explained

    def prepare(self) -> None:
        """Compile now, which takes milliseconds, and not when the first message comes."""
        _ = self._decode, self._encode

    @cached_property
    def plan(self) -> Plan:
        """What the type is on the wire."""
        return plan_of(self._form)

    @cached_property
    def _decoder_source(self) -> Source:
        return decoder_source(self.name, self.plan)

    @cached_property
    def _encoder_source(self) -> Source:
        return encoder_source(self.name, self.plan)

    @cached_property
    def _decode(self) -> Callable[..., Any]:
        return self._decoder_source.compile("decode")

    @cached_property
    def _encode(self) -> Callable[..., Any]:
        return self._encoder_source.compile("encode")

    def _explain_decoding(self, error: Exception) -> ProtocolError:
        path, variables = self._decoder_source.locate(error.__traceback__)
        if isinstance(error, Fault):
            reason = str(error)
        elif isinstance(error, UnicodeDecodeError):
            reason = f"invalid UTF-8: {error.reason}"
        else:
            reason = f"the message ends at byte {variables['end']}"
        message, field = self._named(path)
        return ProtocolError(reason, message=message, field=field, position=variables["p"])

    def _explain_encoding(self, error: Exception) -> ProtocolError:
        path, _ = self._encoder_source.locate(error.__traceback__)
        message, field = self._named(path)
        return ProtocolError(str(error), message=message, field=field)

    def _named(self, path: str) -> tuple[str, str]:
        """Split a path into the message, with its variant if it has any, and the field."""
        if not path or not isinstance(self.plan, Union):
            return self.name, path
        variant, _, field = path.partition(".")
        return f"{self.name}.{variant}", field


_DECODE_ERRORS: Final = (Fault, IndexError, UnicodeDecodeError)
_ENCODE_ERRORS: Final = (
    Fault,
    AttributeError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)
