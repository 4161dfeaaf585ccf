"""What else than a node may be at the other end of a connection, told by its first bytes. Pure."""

from typing import Final

from headrace.cluster.protocol import MESSAGE_BYTES_MAX
from headrace.cluster.transport.hello import MAGIC
from headrace.cluster.transport.refusals import Reason, Refused

HTTP_STARTS: Final = (
    b"HTTP",
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"OPTI",
    b"DELE",
    b"PATC",
    b"CONN",
)
TLS_STARTS: Final = (b"\x16\x03", b"\x15\x03")
CLIENT_START_BYTES: Final = 7
"""So many bytes tell a program of seed 002 from a client of Kafka."""
_FIRST_KAFKA_REQUESTS: Final = (3, 17, 18)
"""What clients of Kafka begin with: Metadata, SaslHandshake, ApiVersions."""


def foreign_refusal(received: bytearray) -> Refused | None:
    """Return what the peer is, if it is neither a node nor a program of seed 002."""
    start = bytes(received[:CLIENT_START_BYTES])
    remedy = "node ports (9093) are for nodes; Kafka's clients use 9092, HTTP 9094"
    if start.startswith(HTTP_STARTS):
        what = "speaks HTTP"
    elif start.startswith(TLS_STARTS):
        what = "speaks TLS"
        remedy += "; if it is a node, headrace.node.tls must be the same on both"
    elif len(start) == CLIENT_START_BYTES and _is_kafka(start):
        what = "speaks the protocol of Kafka's clients"
    elif len(start) >= 4 and start[:4] != MAGIC[:4] and not _is_size(start):
        what = "speaks a protocol that is not Headrace's"
    else:
        return None
    return Refused(
        Reason.NOT_HEADRACE,
        f"the other side {what}",
        remedy,
    )


def _is_size(start: bytes) -> bool:
    return 0 < int.from_bytes(start[:4]) <= MESSAGE_BYTES_MAX


def _is_kafka(start: bytes) -> bool:
    """Return whether a frame is a client's first: as seed 002 its version would be unknown."""
    return _is_size(start) and start[4] == 0 and start[5] in _FIRST_KAFKA_REQUESTS and not start[6]
