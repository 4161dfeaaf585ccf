"""Names that are too long for the loop."""

import pytest

from headrace.cluster.protocol import (
    Acks,
    ClusterErrorCode,
    RequestHeader,
    encode_request,
    requests,
)
from headrace.server.interchange.bounds import explain_long_name, has_long_names
from tests.unit.server.interchange.programs import partition

LONG = "\N{GRINNING FACE}" * 100_000


def append(source: str = "1", topic: str = "orders", records: int = 100_000) -> requests.Append:
    header = RequestHeader(correlation_id=2**63, source=source, timeout_ms=2**31)
    return requests.Append(header, partition(topic), bytes(records), Acks.ALL)


@pytest.mark.parametrize(
    ("asked", "is_long"),
    [
        (append(), False),
        (append(records=0), False),
        (append(source="x" * 256, topic="y" * 249), False),
        (append(source=LONG), True),
        (append(topic=LONG), True),
        (append(source="x" * 256, topic=LONG), True),
    ],
)
def test_a_large_frame_with_long_names_is_told_from_one_with_records(
    asked: requests.Append, is_long: bool
) -> None:
    assert has_long_names(memoryview(encode_request(asked))) is is_long


@pytest.mark.parametrize("frame", [b"\xff" * 50_000, b"\x03" + bytes(50_000), bytes(10), b""])
def test_any_bytes_can_be_looked_at(frame: bytes) -> None:
    has_long_names(memoryview(frame))


def test_long_names_are_refused_by_code() -> None:
    assert explain_long_name(append()) is None
    source, topic = explain_long_name(append(source=LONG)), explain_long_name(append(topic=LONG))
    assert source is not None
    assert topic is not None
    assert (source.code, topic.code) == (
        ClusterErrorCode.INVALID_REQUEST,
        ClusterErrorCode.UNKNOWN_TOPIC,
    )
    assert len(str(topic)) < 1000
