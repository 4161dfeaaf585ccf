"""Encode and decode messages: compile on first use, and explain what fails.

Nothing tracks where a codec is; an error is located when it happens, from the failing line.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from headrace.config import DECODE_MEMORY_FLOOR_BYTES
from headrace.wire.decoding import decoder_source
from headrace.wire.encoding import encoder_source
from headrace.wire.errors import Fault, WireError
from headrace.wire.primitives import NULL_REFUSED
from headrace.wire.schema import Buffer, Message, parse_versions
from headrace.wire.source import Source

M = TypeVar("M", bound=Message)

Part: TypeAlias = Buffer
"""A piece of an encoded message; `bytes` and `records` fields are the caller's own buffers."""


def decode(message: type[M], buffer: Buffer, version: int) -> M:
    """Read a message that fills `buffer` to its end; WireError if it does not.

    `bytes` and `records` fields are memoryviews of `buffer`, not copies. The objects take at
    most four times the bytes of `buffer` and a fixed floor beyond that.
    """
    view = memoryview(buffer)
    value, position = decode_from(message, view, version, 0)
    if position != len(view):
        raise left_over(message, view, version, position)
    return value


def decode_from(
    message: type[M], buffer: memoryview, version: int, position: int, room: int = -1
) -> tuple[M, int]:
    """Decode a message that starts at `position`; return it and the position after it.

    `room` is the memory budget of its objects, by default that of such a frame.
    """
    function = _decoders.get((message, version)) or _compile_decoder(message, version)
    end = len(buffer)
    if room < 0:
        room = _MEMORY_FLOOR_BYTES + OBJECT_BYTES_PER_BYTE * end
    try:
        result: tuple[M, int] = function(buffer, position, end, room)
        return result
    except _DECODE_ERRORS as error:
        explained = _explain_decoding(error, message, version)
    raise explained


def left_over(message: type[Message], buffer: memoryview, version: int, position: int) -> WireError:
    """Return the error for trailing bytes after a message."""
    return WireError(
        f"{len(buffer) - position} bytes are left over",
        message=message.__name__,
        version=version,
        position=position,
    )


def encode(message: Message, version: int) -> bytes:
    """Write a message as one version of it; WireError names a value that has no form there."""
    return b"".join(encode_parts(message, version))


def encode_parts(message: Message, version: int) -> list[Part]:
    """Write a message as a list of buffers to send one after the other, none of them copied."""
    parts: list[Part] = []
    encode_to(parts, message, version)
    return parts


def encode_to(parts: list[Part], message: Message, version: int) -> None:
    """Append the parts of a message to a list."""
    kind = type(message)
    function = _encoders.get((kind, version)) or _compile_encoder(kind, version)
    try:
        function(message, parts.append)
        return
    except _ENCODE_ERRORS as error:
        explained = _explain_encoding(error, kind, version)
    raise explained


def prepare(request: type[Message], response: type[Message], version: int) -> None:
    """Compile what one version of an API needs, which takes milliseconds, before it is used."""
    if (request, version) not in _decoders:
        _compile_decoder(request, version)
    if (response, version) not in _encoders:
        _compile_encoder(response, version)


_Key: TypeAlias = tuple[type[Message], int]
_decoders: dict[_Key, Callable[..., Any]] = {}
_encoders: dict[_Key, Callable[..., Any]] = {}
_decoder_sources: dict[_Key, Source] = {}
_encoder_sources: dict[_Key, Source] = {}

_DECODE_ERRORS: Final = (Fault, IndexError, UnicodeDecodeError, struct.error)
_ENCODE_ERRORS: Final = (Fault, AttributeError, TypeError, ValueError, struct.error)
OBJECT_BYTES_PER_BYTE: Final = 4
"""What the objects of a decoded message may take for each of its bytes, beyond a fixed amount."""
_MEMORY_FLOOR_BYTES: Final = DECODE_MEMORY_FLOOR_BYTES.default


def _compile_decoder(message: type[Message], version: int) -> Callable[..., Any]:
    _check_version(message, version)
    source = _decoder_sources[message, version] = decoder_source(message, version)
    function = _decoders[message, version] = source.compile("decode")
    return function


def _compile_encoder(message: type[Message], version: int) -> Callable[..., Any]:
    _check_version(message, version)
    source = _encoder_sources[message, version] = encoder_source(message, version)
    function = _encoders[message, version] = source.compile("encode")
    return function


def _check_version(message: type[Message], version: int) -> None:
    versions = parse_versions(message.VERSIONS)
    if version not in versions:
        raise WireError(
            f"there is no such version, only {versions}", message=message.__name__, version=version
        )


def _explain_decoding(error: Exception, message: type[Message], version: int) -> WireError:
    field, variables = _decoder_sources[message, version].locate(error.__traceback__)
    if isinstance(error, Fault):
        reason = str(error)
    elif isinstance(error, UnicodeDecodeError):
        reason = f"invalid UTF-8: {error.reason}"
    else:
        reason = f"the frame ends at byte {len(variables['buffer'])}"
    return WireError(
        reason, message=message.__name__, version=version, field=field, position=variables["p"]
    )


def _explain_encoding(error: Exception, message: type[Message], version: int) -> WireError:
    field, _ = _encoder_sources[message, version].locate(error.__traceback__)
    is_null = isinstance(error, AttributeError | TypeError) and "NoneType" in str(error)
    return WireError(
        NULL_REFUSED if is_null else str(error),
        message=message.__name__,
        version=version,
        field=field,
    )
