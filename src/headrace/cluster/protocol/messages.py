"""Requests and responses to bytes and back.

Which of the two a frame holds is known from the connection: the side that opened it sends requests
and reads responses. The bytes do not show it, as many responses could be read as requests.
"""

from typing import Final, get_args

from headrace.cluster.protocol import requests, responses
from headrace.cluster.protocol.commands import MetadataCommand
from headrace.cluster.protocol.errors import ClusterErrorCode, ProtocolError
from headrace.cluster.protocol.postcard import U32, Buffer, Codec
from headrace.cluster.protocol.postcard.codec import ELEMENTS_MAX
from headrace.cluster.protocol.requests import PROTOCOL_VERSION, ClusterRequest, RequestHeader
from headrace.cluster.protocol.responses import ClusterResponse, ResponseHeader

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most that a message takes, without the four bytes of its size."""
COSTLY_FRAME_BYTES: Final = 32 * 1024
"""A frame of this size takes up to 15 ms to decode: when it is nothing but empty strings."""

REQUESTS: Final[Codec[ClusterRequest]] = Codec("ClusterRequest", ClusterRequest)
RESPONSES: Final[Codec[ClusterResponse]] = Codec("ClusterResponse", ClusterResponse)
COMMANDS: Final[Codec[MetadataCommand]] = Codec("MetadataCommand", MetadataCommand)
"""A command outside of its request."""
REQUEST_HEADERS: Final[Codec[RequestHeader]] = Codec("RequestHeader", RequestHeader)
RESPONSE_HEADERS: Final[Codec[ResponseHeader]] = Codec("ResponseHeader", ResponseHeader)
_INDEXES: Final[Codec[int]] = Codec("ClusterRequest", U32)
_KNOWN_INDEXES: Final = frozenset(
    request.__struct_config__.tag for request in get_args(ClusterRequest)
)
_INDEXES_WITH_RECORDS: Final = frozenset(
    message.__struct_config__.tag
    for message in (requests.Append, requests.Fetch, responses.Append, responses.Fetch)
)


def encode_request(request: ClusterRequest) -> bytes:
    """Write a request, without the size that a frame begins with (`frames`)."""
    return b"".join(request_parts(request))


def request_parts(request: ClusterRequest) -> list[Buffer]:
    """Write a request as buffers to send one after the other, its records uncopied."""
    parts = REQUESTS.encode_parts(request)
    _check_size(sum(map(len, parts)), f"{REQUESTS.name}.{type(request).__name__}")
    return parts


def decode_request(frame: Buffer, elements_max: int = ELEMENTS_MAX) -> ClusterRequest:
    """Read a request of our version that fills a frame; its records are views of the frame.

    If it cannot be read, the ProtocolError has the code of the response and, if the header could
    be read, its correlation id.
    """
    _check_size(len(frame), REQUESTS.name)
    try:
        request = REQUESTS.decode(frame, elements_max)
    except ProtocolError as error:
        raise _with_answer(error, frame) from None
    if request.header.version != PROTOCOL_VERSION:
        raise _unsupported(request.header)
    return request


def decode_request_header(frame: Buffer) -> tuple[int, RequestHeader]:
    """Read the index and the header of a request, whatever follows.

    It is enough to respond to a peer of another version, or to an unknown request.
    """
    view = memoryview(frame)
    index, position = _INDEXES.decode_from(view, 0)
    header, _ = REQUEST_HEADERS.decode_from(view, position)
    return index, header


def encode_response(response: ClusterResponse) -> bytes:
    """Write a response, without the size that a frame begins with (`frames`)."""
    return b"".join(response_parts(response))


def response_parts(response: ClusterResponse) -> list[Buffer]:
    """Write a response as buffers to send one after the other, its records uncopied."""
    parts = RESPONSES.encode_parts(response)
    _check_size(sum(map(len, parts)), f"{RESPONSES.name}.{type(response).__name__}")
    return parts


def decode_response(frame: Buffer, elements_max: int = ELEMENTS_MAX) -> ClusterResponse:
    """Read a response that fills a frame; its records are views of the frame."""
    _check_size(len(frame), RESPONSES.name)
    return RESPONSES.decode(frame, elements_max)


def is_costly(frame: Buffer) -> bool:
    """Return whether a frame may take long to decode, so that it belongs in a thread.

    Those with records do not, as records are not looked at.
    """
    return len(frame) > COSTLY_FRAME_BYTES and frame[0] not in _INDEXES_WITH_RECORDS


def prepare() -> None:
    """Compile what reads and writes messages, which takes milliseconds, before it is used."""
    for codec in (REQUESTS, RESPONSES, _INDEXES, REQUEST_HEADERS):
        codec.prepare()


def _check_size(size: int, message: str) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise ProtocolError(
            f"takes {size} bytes, the most is {MESSAGE_BYTES_MAX}",
            message=message,
            error_code=ClusterErrorCode.INVALID_REQUEST,
        )


def _with_answer(error: ProtocolError, frame: Buffer) -> ProtocolError:
    """Add the fields of the response to an error, as far as the frame has them."""
    try:
        index, header = decode_request_header(frame)
    except ProtocolError:
        return error
    if header.version != PROTOCOL_VERSION:
        return _unsupported(header)
    if index not in _KNOWN_INDEXES:
        error.error_code = ClusterErrorCode.INVALID_REQUEST
    error.correlation_id = header.correlation_id
    return error


def _unsupported(header: RequestHeader) -> ProtocolError:
    return ProtocolError(
        f"is {header.version}, only {PROTOCOL_VERSION} is spoken here",
        message=REQUESTS.name,
        field="header.version",
        error_code=ClusterErrorCode.UNSUPPORTED_VERSION,
        correlation_id=header.correlation_id,
    )
