"""Requests and responses with their headers."""

import pytest

from headrace.wire import (
    APIS,
    ApiKey,
    FrameReader,
    WireError,
    read_request,
    read_request_header,
    read_request_start,
    read_response,
    request_parts,
    response_parts,
)
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.request_header import RequestHeader


def frame_of(parts: list[bytes | bytearray | memoryview]) -> memoryview:
    (frame,) = FrameReader().feed(b"".join(parts))
    return frame


@pytest.mark.parametrize("key", sorted(APIS))
def test_requests_and_responses_of_every_api_and_version_come_back(key: int) -> None:
    api = APIS[key]
    for version in range(api.versions.first, api.versions.last + 1):
        header = RequestHeader(key, version, 77, "client")
        frame = frame_of(request_parts(header, api.request()))
        assert read_request(frame) == (header, api.request())
        answer = frame_of(response_parts(api.key, version, 77, api.response()))
        response_header, body = read_response(answer, api.key, version)
        assert (response_header.correlation_id, body) == (77, api.response())


def test_the_client_id_is_never_compact() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 3, 1, "me")
    data = b"".join(request_parts(header, ApiVersionsRequest("a", "b")))
    assert data == b"\x00\x00\x00\x12\x00\x12\x00\x03\x00\x00\x00\x01\x00\x02me\x00\x02a\x02b\x00"


def test_the_answer_to_api_versions_has_the_oldest_header() -> None:
    data = b"".join(response_parts(ApiKey.API_VERSIONS, 3, 5, ApiVersionsResponse()))
    assert data[:10] == b"\x00\x00\x00\x0c\x00\x00\x00\x05\x00\x00"
    flexible = b"".join(response_parts(ApiKey.HEARTBEAT, 4, 5, HeartbeatResponse()))
    assert flexible[4:9] == b"\x00\x00\x00\x05\x00"


def test_the_header_of_a_version_that_does_not_exist_can_be_read() -> None:
    for version, tags in ((99, b"\x00"), (-1, b"")):
        frame = b"\x00\x12" + version.to_bytes(2, signed=True) + b"\x00\x00\x00\x09\xff\xff" + tags
        api, header, position = read_request_header(memoryview(frame))
        assert (api.name, header.correlation_id, header.client_id) == ("ApiVersions", 9, None)
        assert position == len(frame)
        with pytest.raises(WireError, match="there is no such version, only 0-4"):
            read_request(frame)


def test_an_api_that_does_not_exist_is_refused_by_its_number() -> None:
    with pytest.raises(WireError, match="request_api_key at byte 0: there is no API 4"):
        read_request(b"\x00\x04\x00\x00\x00\x00\x00\x00\xff\xff")


@pytest.mark.parametrize("length", range(4))
def test_a_frame_too_short_for_a_header_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"a frame of {length} bytes holds no header"):
        read_request(bytes(length))


def test_bytes_behind_a_request_are_refused() -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 1, "c")
    frame = bytes(frame_of(request_parts(header, HeartbeatRequest("g", 1, "m"))))
    with pytest.raises(WireError, match="3 bytes are left over"):
        read_request(frame + b"abc")


@pytest.mark.parametrize("client_id", [None, "", "client", "größe"])
@pytest.mark.parametrize("tags", [None, {7: b"unknown"}])
def test_the_quick_way_reads_the_header_that_the_other_reads(
    client_id: str | None, tags: dict[int, bytes] | None
) -> None:
    for api in APIS.values():
        for version in (api.versions.first, api.versions.last):
            is_flexible = api.request_header_version(version) > 1
            header = RequestHeader(api.key, version, 77, client_id)
            if is_flexible and tags:
                header.unknown_tags = tags
            frame = frame_of(request_parts(header, api.request()))
            start = read_request_start(frame)
            _, slow, position = read_request_header(frame)
            assert start.api is api
            assert (start.version, start.correlation_id) == (version, 77)
            assert (start.client_id, start.body_position) == (slow.client_id, position)


@pytest.mark.parametrize("length", range(12))
def test_a_header_that_is_cut_off_is_refused_by_both(length: int) -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 77, "client")
    frame = frame_of(request_parts(header, HeartbeatRequest()))[:length]
    with pytest.raises(WireError):
        read_request_start(frame)
