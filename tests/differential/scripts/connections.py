"""The first words of a connection, and words that are none."""

import struct

from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from tests.differential.conversation import Conversation
from tests.differential.requests import fetch

_CLIENT = ApiVersionsRequest(client_software_name="differential", client_software_version="1.0")

WHAT_IS_SPOKEN = ("api_keys", "supported_features", "finalized_features")
"""What the first script compares, and no other need repeat."""


def api_versions(talk: Conversation) -> None:
    talk.ask_all_versions("what the broker speaks", _CLIENT)
    for name, software, version in (
        ("no software name", "", "1"),
        ("no software version", "a", ""),
        ("a software name with a space", "my client", "1"),
        ("a software version with a slash", "client", "1/2"),
        ("a software name that ends in a dash", "client-", "1"),
        ("a software name with dots and dashes", "apache-kafka.java", "4.3.1-rc"),
    ):
        request = ApiVersionsRequest(client_software_name=software, client_software_version=version)
        for number in (3, 4):
            talk.ask(f"{name} v{number}", request, number, hide=WHAT_IS_SPOKEN)


def versions_that_do_not_exist(talk: Conversation) -> None:
    talk.ask_bytes(
        "ApiVersions v99", _frame(_header(18, 99) + b"\x00" * 8), (ApiVersionsRequest, 0)
    )
    talk.ask_bytes(
        "ApiVersions v5", _frame(_header(18, 5) + b"\x00\x02a\x021\x00"), (ApiVersionsRequest, 0)
    )
    talk.ask_bytes("ApiVersions v-1", _frame(_header(18, -1)), (ApiVersionsRequest, 0))
    for key, version in (
        *((0, 2), (0, 14), (1, 3), (1, 19), (2, 0), (2, 12), (3, -1), (3, 14), (3, 99)),
        *((19, 1), (19, 8), (20, 0), (21, 3), (22, 7), (23, 1), (32, 0), (60, 3), (75, 1)),
    ):
        talk.ask_bytes(f"API {key} v{version}", _frame(_header(key, version) + b"\x00" * 16))


def apis_that_do_not_exist(talk: Conversation) -> None:
    for key in (-1, 4, 5, 6, 7, 93, 999, 32767):
        talk.ask_bytes(f"API {key}", _frame(_header(key, 0) + b"\x00" * 8))
    for name, key, version in (
        ("Vote, which controllers take", 52, 0),
        ("AlterPartition, which controllers take", 56, 2),
        ("BrokerRegistration, which controllers take", 62, 0),
        ("Envelope, which controllers take", 58, 0),
    ):
        talk.ask_bytes(name, _frame(_header(key, version) + b"\x00" * 16))


def frames_that_are_none(talk: Conversation) -> None:
    talk.ask_bytes("a size of 0", struct.pack(">i", 0))
    talk.ask_bytes("a size of -1", struct.pack(">i", -1))
    talk.ask_bytes("a size of 2 GB", struct.pack(">i", 2**31 - 1))
    talk.ask_bytes("a size above socket.request.max.bytes", struct.pack(">i", 104_857_601))
    talk.ask_bytes("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    talk.ask_bytes("a TLS hello", bytes.fromhex("16030100c5010000c10303") + b"\x5a" * 200)
    talk.ask_bytes("two bytes", _frame(b"\x00\x12"))
    talk.ask_bytes("key and version alone", _frame(struct.pack(">hh", 18, 0)))
    talk.ask_bytes("no client id", _frame(struct.pack(">hhi", 18, 0, 7)))
    talk.ask_bytes("a client id longer than the frame", _frame(struct.pack(">hhih", 18, 0, 7, 99)))
    talk.ask_bytes("a header alone", _frame(_header(3, 1)))
    talk.ask_bytes("a body cut short", _frame(_header(3, 1) + b"\x00\x00\x00\x02\x00\x05ab"))
    talk.ask_bytes(
        "bytes behind the body",
        _frame(_header(18, 0) + b"\x00\x01\x02\x03"),
        (ApiVersionsRequest, 0),
        WHAT_IS_SPOKEN,
    )
    talk.ask_bytes(
        "an array of 2 billion topics", _frame(_header(3, 1) + struct.pack(">i", 2_000_000_000))
    )
    talk.ask_bytes(
        "an array of -2 topics", _frame(_header(3, 1) + struct.pack(">i", -2)), (MetadataRequest, 1)
    )
    talk.ask_bytes("random bytes", bytes(range(7, 256, 5)) * 8)
    talk.ask("after all this", _CLIENT, 0, hide=WHAT_IS_SPOKEN)


def header_forms(talk: Conversation) -> None:
    """What a header may have and a client library never sends."""
    body = b"\x00\x00\x00\x00"  # Metadata v1, no topics
    talk.ask_bytes(
        "null client id",
        _frame(struct.pack(">hhih", 18, 0, 7, -1)),
        (ApiVersionsRequest, 0),
        WHAT_IS_SPOKEN,
    )
    talk.ask_bytes(
        "empty client id",
        _frame(struct.pack(">hhih", 18, 0, 7, 0)),
        (ApiVersionsRequest, 0),
        WHAT_IS_SPOKEN,
    )
    talk.ask_bytes(
        "correlation id -1",
        _frame(struct.pack(">hhih", 18, 0, -1, 0)),
        (ApiVersionsRequest, 0),
        WHAT_IS_SPOKEN,
    )
    talk.ask_bytes(
        "client id of -2 bytes",
        _frame(struct.pack(">hhih", 3, 1, 7, -2) + body),
        (MetadataRequest, 1),
    )
    talk.ask_bytes(
        "a client id that is not UTF-8",
        _frame(_header(18, 0, b"\xff\xfe")),
        (ApiVersionsRequest, 0),
        WHAT_IS_SPOKEN,
    )
    tags = b"\x01\x63\x02ab"  # one tagged field, number 99
    talk.ask_bytes(
        "an unknown tagged field in the header",
        _frame(_header(18, 3) + tags + b"\x02a\x021\x00"),
        (ApiVersionsRequest, 3),
        WHAT_IS_SPOKEN,
    )
    talk.ask_bytes(
        "an unknown tagged field in the body",
        _frame(_header(18, 3) + b"\x00\x02a\x021" + tags),
        (ApiVersionsRequest, 3),
        WHAT_IS_SPOKEN,
    )
    talk.ask("no topics", MetadataRequest(topics=[]), 1)
    talk.ask("a fetch of nothing", fetch(), 4)


def _header(key: int, version: int, client: bytes = b"c") -> bytes:
    return struct.pack(">hhih", key, version, 7, len(client)) + client


def _frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


SCRIPTS = (
    api_versions,
    versions_that_do_not_exist,
    apis_that_do_not_exist,
    frames_that_are_none,
    header_forms,
)
