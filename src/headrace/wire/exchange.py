"""Requests and responses as they cross a connection: a header, a body, a size in front.

Reading takes the bytes of one frame (`wire.frames`); writing gives the parts of one, its size
first, ready for a gathering write.
"""

from struct import Struct as Layout
from typing import Final

from headrace.wire.apis import APIS, Api
from headrace.wire.codec import Part, decode_from, encode_to, left_over
from headrace.wire.errors import WireError
from headrace.wire.messages import ApiKey
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.messages.response_header import ResponseHeader
from headrace.wire.schema import Buffer, Message

_KEY_AND_VERSION: Final = Layout(">hh")
_SIZE: Final = Layout(">i")


def read_request_header(frame: memoryview) -> tuple[Api, RequestHeader, int]:
    """Read the header of a request; give its API and the position of the body too.

    The version is not checked, so that a broker can answer one that it does not serve.
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


def response_parts(key: ApiKey, version: int, correlation_id: int, body: Message) -> list[Part]:
    """Write a response, its size first."""
    header = ResponseHeader(correlation_id)
    return _framed(header, APIS[key].response_header_version(version), body, version)


def _framed(header: Message, header_version: int, body: Message, version: int) -> list[Part]:
    parts: list[Part] = [b""]
    encode_to(parts, header, header_version)
    encode_to(parts, body, version)
    parts[0] = _SIZE.pack(sum(map(len, parts)))
    return parts
