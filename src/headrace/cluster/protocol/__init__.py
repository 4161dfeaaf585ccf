"""The node-to-node protocol (seed 002), byte for byte: messages, their bytes, frames. No I/O.

    request = requests.Fetch(RequestHeader(correlation_id=7, source="1"), partition, 0, 1 << 20)
    parts = frame_parts(request_parts(request))            # to a socket, records uncopied
    for frame in reader.feed(received):                    # FrameReader
        response = decode_response(frame)                  # ProtocolError if it is none

`requests`, `responses` and `commands` have one class per variant, named as in the seed, whose
tag is its number on the wire. `postcard` compiles codecs for these classes. A connection has a
direction: the side that opened it sends requests, and a frame does not say which of the two it is.
"""

from headrace.cluster.protocol import commands, requests, responses
from headrace.cluster.protocol.commands import MetadataCommand
from headrace.cluster.protocol.errors import RETRIABLE, ClusterErrorCode, ProtocolError
from headrace.cluster.protocol.frames import FrameReader, frame_parts
from headrace.cluster.protocol.messages import (
    MESSAGE_BYTES_MAX,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    is_costly,
    prepare,
    request_parts,
    response_parts,
)
from headrace.cluster.protocol.names import NodeId, PartitionName, node_id_of, numbered_broker
from headrace.cluster.protocol.requests import PROTOCOL_VERSION, Acks, ClusterRequest, RequestHeader
from headrace.cluster.protocol.responses import ClusterResponse, ResponseHeader

__all__ = [
    "MESSAGE_BYTES_MAX",
    "PROTOCOL_VERSION",
    "RETRIABLE",
    "Acks",
    "ClusterErrorCode",
    "ClusterRequest",
    "ClusterResponse",
    "FrameReader",
    "MetadataCommand",
    "NodeId",
    "PartitionName",
    "ProtocolError",
    "RequestHeader",
    "ResponseHeader",
    "commands",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "frame_parts",
    "is_costly",
    "node_id_of",
    "numbered_broker",
    "prepare",
    "request_parts",
    "requests",
    "response_parts",
    "responses",
]
