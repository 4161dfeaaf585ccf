"""The Kafka protocol: frames, headers, and every message in every version.

    request = ProduceRequest(acks=-1, topic_data=[...])    # headrace.wire.messages.produce_request
    data = encode(request, version=9)
    again = decode(ProduceRequest, data, version=9)

Sans-io: nothing here opens a socket or knows a clock. Message classes are generated and load
one by one; codecs are compiled on first use. Read `schema` for what a definition says, `plan`,
`decoding` and `encoding` for how it becomes code, `exchange` for requests and responses.
"""

from headrace.wire.apis import APIS, Api, message_type
from headrace.wire.codec import decode, decode_from, encode, encode_parts
from headrace.wire.errors import WireError
from headrace.wire.exchange import (
    read_request,
    read_request_header,
    read_request_start,
    read_response,
    request_parts,
    response_parts,
    with_correlation_id,
)
from headrace.wire.frames import FrameReader
from headrace.wire.messages import ApiKey

__all__ = [
    "APIS",
    "Api",
    "ApiKey",
    "FrameReader",
    "WireError",
    "decode",
    "decode_from",
    "encode",
    "encode_parts",
    "message_type",
    "read_request",
    "read_request_header",
    "read_request_start",
    "read_response",
    "request_parts",
    "response_parts",
    "with_correlation_id",
]
