"""Requests and responses as they cross a connection: a header, a body, a size in front.

Reading takes the bytes of one frame (`wire.frames`); writing gives the parts of one, its size
first, ready for a gathering write.
"""

from functools import cache
from struct import Struct as Layout
from typing import Final, NamedTuple

from headrace.wire.apis import APIS, Api
from headrace.wire.codec import Part, decode_from, encode_to, left_over
from headrace.wire.errors import WireError
from headrace.wire.messages import ApiKey
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.messages.response_header import ResponseHeader
from headrace.wire.schema import Buffer, Message

_KEY_AND_VERSION: Final = Layout(">hh")
_SIZE: Final = Layout(">i")
_SIZE_AND_ID: Final = Layout(">ii")
_SIZE_ID_AND_NO_TAGS: Final = Layout(">iiB")
_START: Final = Layout(">hhih")
_NO_TAGS: Final = 0
_PARTS_MAX: Final = 64
"""Above this small parts are joined: a transport takes a limited number at once."""
_LARGE_BYTES: Final = 4096
"""From this size on a part is not copied."""


def read_request_header(frame: memoryview) -> tuple[Api, RequestHeader, int]:
    """Read the header of a request; return its API and the position of the body too.

    The version is not checked, so that a broker can respond to an unsupported one.
    """
    if len(frame) < _KEY_AND_VERSION.size:
        raise WireError(
            f"a frame of {len(frame)} bytes holds no header", message="RequestHeader", position=0
        )
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise WireError(
            f"there is no API {key}", message="RequestHeader", field="request_api_key", position=0
        )
    header, position = decode_from(RequestHeader, frame, api.request_header_version(version), 0)
    return api, header, position


class RequestStart(NamedTuple):
    """The header of a request, as a broker needs it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_start(frame: memoryview) -> RequestStart:
    """Read what `read_request_header` does, in less time: most headers have no tagged fields."""
    if len(frame) > _START.size:
        key, version, correlation_id, id_bytes = _START.unpack_from(frame)
        position = _START.size + max(id_bytes, 0)
        api = APIS.get(key)
        if api is not None and id_bytes >= -1 and position < len(frame):
            client_id = None if id_bytes < 0 else str(frame[_START.size : position], "utf-8")
            if not _has_tags(key, version):
                return RequestStart(api, version, correlation_id, client_id, position)
            if frame[position] == _NO_TAGS:
                return RequestStart(api, version, correlation_id, client_id, position + 1)
    api, header, position = read_request_header(frame)
    return RequestStart(
        api, header.request_api_version, header.correlation_id, header.client_id, position
    )


@cache
def _has_tags(key: int, version: int) -> bool:
    return APIS[key].request_header_version(version) > 1


@cache
def _answer_has_tags(key: int, version: int) -> bool:
    return APIS[key].response_header_version(version) > 0


def read_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """Read a whole request; WireError if its version does not exist or bytes are left over."""
    view = memoryview(frame)
    api, header, position = read_request_header(view)
    return header, read_body(api.request, view, header.request_api_version, position)


def read_response(frame: Buffer, key: ApiKey, version: int) -> tuple[ResponseHeader, Message]:
    """Read a whole response to a request of that API and version."""
    view, api = memoryview(frame), APIS[key]
    header, position = decode_from(ResponseHeader, view, api.response_header_version(version), 0)
    return header, read_body(api.response, view, version, position)


def read_body(message: type[Message], frame: memoryview, version: int, position: int) -> Message:
    """Read a message that fills the frame from `position` on."""
    body, end = decode_from(message, frame, version, position)
    if end != len(frame):
        raise left_over(message, frame, version, end)
    return body


def request_parts(header: RequestHeader, body: Message) -> list[Part]:
    """Write a request, its size first."""
    api = APIS[ApiKey(header.request_api_key)]
    header_version = api.request_header_version(header.request_api_version)
    return _framed(header, header_version, body, header.request_api_version)


def response_parts(key: int, version: int, correlation_id: int, body: Message) -> list[Part]:
    """Write a response, its size first.

    The header, which is a number and in newer versions no tagged fields, is not worth a codec.
    """
    parts: list[Part] = [b""]
    encode_to(parts, body, version)
    size = sum(map(len, parts)) + _SIZE.size
    if not _answer_has_tags(key, version):
        parts[0] = _SIZE_AND_ID.pack(size, correlation_id)
    else:
        parts[0] = _SIZE_ID_AND_NO_TAGS.pack(size + 1, correlation_id, 0)
    return parts if len(parts) <= _PARTS_MAX else _join_small(parts)


def with_correlation_id(parts: list[Part], correlation_id: int) -> list[Part]:
    """Return a response that `response_parts` wrote, for another request of its version."""
    head = parts[0]
    own = correlation_id.to_bytes(4, "big", signed=True)
    return [bytes(head[:4]) + own + bytes(head[8:]), *parts[1:]]


def _framed(header: Message, header_version: int, body: Message, version: int) -> list[Part]:
    parts: list[Part] = [b""]
    encode_to(parts, header, header_version)
    encode_to(parts, body, version)
    parts[0] = _SIZE.pack(sum(map(len, parts)))
    return parts if len(parts) <= _PARTS_MAX else _join_small(parts)


def _join_small(parts: list[Part]) -> list[Part]:
    """Join what is between large parts."""
    if max(map(len, parts)) < _LARGE_BYTES:
        return [b"".join(parts)]
    joined: list[Part] = []
    start = 0
    for position, part in enumerate(parts):
        if len(part) >= _LARGE_BYTES:
            if start < position:
                joined.append(b"".join(parts[start:position]))
            joined.append(part)
            start = position + 1
    if start < len(parts):
        joined.append(b"".join(parts[start:]))
    return joined
