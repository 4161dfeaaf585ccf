import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.protocol import (
    MESSAGE_BYTES_MAX,
    Acks,
    ClusterErrorCode,
    PartitionName,
    ProtocolError,
    RequestHeader,
    ResponseHeader,
    commands,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    is_costly,
    prepare,
    request_parts,
    requests,
    response_parts,
    responses,
)
from headrace.cluster.protocol.messages import COMMANDS, REQUESTS, RESPONSES
from headrace.cluster.protocol.postcard import Codec
from headrace.ids import PartitionIndex, TopicName
from tests.unit.cluster.protocol.values import any_of

HEADER = RequestHeader(correlation_id=42, source="1")
OK = ResponseHeader(42)
FIRST = PartitionName(TopicName("orders"), PartitionIndex(0))


@given(any_of(REQUESTS.plan))
def test_any_request_is_read_as_it_was_written(request: requests.ClusterRequest) -> None:
    assert REQUESTS.decode(REQUESTS.encode(request)) == request


@given(any_of(RESPONSES.plan))
def test_any_response_is_read_as_it_was_written(response: responses.ClusterResponse) -> None:
    assert decode_response(encode_response(response)) == response


@given(any_of(COMMANDS.plan))
def test_any_command_is_read_as_it_was_written(command: commands.MetadataCommand) -> None:
    assert COMMANDS.decode(COMMANDS.encode(command)) == command


@pytest.mark.parametrize("codec", [REQUESTS, RESPONSES, COMMANDS], ids=lambda codec: codec.name)
@given(data=st.data())
def test_any_bytes_are_a_message_that_has_no_other_bytes_or_refused(
    codec: Codec[object], data: st.DataObject
) -> None:
    frame = bytearray(codec.encode(data.draw(any_of(codec.plan))))
    position = data.draw(st.integers(0, len(frame)))
    removed = data.draw(st.integers(0, 3))
    frame[position : position + removed] = data.draw(st.binary(max_size=12))
    assert_read_or_refused(codec, bytes(frame))


@pytest.mark.parametrize("codec", [REQUESTS, RESPONSES, COMMANDS], ids=lambda codec: codec.name)
@given(frame=st.binary())
def test_noise_is_a_message_that_has_no_other_bytes_or_refused(
    codec: Codec[object], frame: bytes
) -> None:
    assert_read_or_refused(codec, frame)


def assert_read_or_refused(codec: Codec[object], frame: bytes) -> None:
    try:
        assert codec.encode(codec.decode(frame)) == frame
        return
    except ProtocolError as caught:
        error = caught
    assert error.message.startswith(codec.name)
    assert error.reason
    assert error.position is not None
    assert 0 <= error.position <= len(frame)


def test_records_are_neither_copied_when_read_nor_when_written() -> None:
    records = bytes(100_000)
    append = requests.Append(HEADER, FIRST, records, Acks.ALL)
    assert any(part is records for part in request_parts(append))
    frame = encode_request(append)
    read = decode_request(frame)
    assert isinstance(read, requests.Append)
    assert isinstance(read.records, memoryview)
    assert read.records.obj is frame
    fetched = responses.Fetch(OK, FIRST, 0, 0, memoryview(records))
    assert any(part is fetched.records for part in response_parts(fetched))
    answer = decode_response(encode_response(fetched))
    assert isinstance(answer, responses.Fetch)
    assert answer.records == records


def test_a_request_that_breaks_off_behind_its_header_can_be_answered() -> None:
    frame = encode_request(requests.Fetch(HEADER, FIRST, 1000, 1 << 20))
    with pytest.raises(ProtocolError) as caught:
        decode_request(frame[:-1])
    error = caught.value
    assert (error.error_code, error.correlation_id) == (ClusterErrorCode.CORRUPT_MESSAGE, 42)
    assert str(error) == "ClusterRequest.Fetch, max_bytes at byte 19: the message ends at byte 20"
    with pytest.raises(ProtocolError) as caught:
        decode_request(frame[:2])
    assert caught.value.correlation_id is None


def test_a_request_of_another_version_is_refused_by_that_name_whatever_it_looks_like() -> None:
    header = RequestHeader(version=2, correlation_id=42, source="1")
    frame = encode_request(requests.Fetch(header, FIRST, 1000, 1 << 20))
    for other in (frame, frame[:-1], frame + b"more", b"\x63" + frame[1:]):
        with pytest.raises(ProtocolError, match="is 2, only 1 is spoken here") as caught:
            decode_request(other)
        assert caught.value.error_code is ClusterErrorCode.UNSUPPORTED_VERSION
        assert caught.value.correlation_id == 42


def test_an_unknown_request_is_answered_as_invalid() -> None:
    frame = b"\x63" + encode_request(requests.Heartbeat(HEADER, ()))[1:]
    assert decode_request_header(frame) == (0x63, HEADER)
    with pytest.raises(ProtocolError, match="there is no variant 99") as caught:
        decode_request(frame)
    assert caught.value.error_code is ClusterErrorCode.INVALID_REQUEST
    assert caught.value.correlation_id == 42


def test_an_unknown_command_is_no_unknown_request() -> None:
    frame = encode_request(requests.ProposeMetadata(HEADER, commands.Noop()))
    with pytest.raises(ProtocolError, match="there is no variant 14") as caught:
        decode_request(frame[:-1] + b"\x0e")
    assert caught.value.error_code is ClusterErrorCode.CORRUPT_MESSAGE
    assert caught.value.message == "ClusterRequest.ProposeMetadata"
    assert caught.value.field == "command"


def test_messages_above_the_limit_are_neither_written_nor_read() -> None:
    records = bytes(MESSAGE_BYTES_MAX)
    with pytest.raises(ProtocolError, match=r"ClusterRequest\.Append: takes 167772\d+ bytes"):
        encode_request(requests.Append(HEADER, FIRST, records, Acks.ALL))
    with pytest.raises(ProtocolError, match=r"ClusterResponse\.Fetch: takes 167772\d+ bytes"):
        encode_response(responses.Fetch(OK, FIRST, 0, 0, records))
    for decode in (decode_request, decode_response):
        with pytest.raises(ProtocolError, match="takes 16777217 bytes, the most is 16777216"):
            decode(records + b"\0")
    room = MESSAGE_BYTES_MAX - len(encode_response(responses.Fetch(OK, FIRST, 0, 0, b""))) - 3
    assert len(encode_response(responses.Fetch(OK, FIRST, 0, 0, bytes(room)))) == MESSAGE_BYTES_MAX


def test_a_frame_of_nothing_but_elements_is_refused_before_they_are_made() -> None:
    count = 10_000_000
    start = encode_request(requests.FetchMetadata(HEADER, None))[:-1]
    frame = start + b"\x01" + b"\x80\xad\xe2\x04" + bytes(count)
    with pytest.raises(ProtocolError, match="10000000, a message has more elements than it may"):
        decode_request(frame)


def test_the_caller_may_allow_more_elements() -> None:
    frame = encode_request(requests.FetchMetadata(HEADER, ("a", "b", "c")))
    assert decode_request(frame, elements_max=3).header == HEADER
    with pytest.raises(ProtocolError, match=r"FetchMetadata, topics at byte .* more elements"):
        decode_request(frame, elements_max=2)


def test_elements_of_all_depths_count() -> None:
    command = commands.AddPartitions(TopicName("t"), (("a", "b"), ("c",), ()))
    assert COMMANDS.decode(COMMANDS.encode(command), elements_max=6) == command
    with pytest.raises(ProtocolError, match=r"new_assignments\[1\]"):
        COMMANDS.decode(COMMANDS.encode(command), elements_max=5)


def test_a_large_frame_is_costly_unless_it_is_large_with_records() -> None:
    records = bytes(100_000)
    assert not is_costly(encode_request(requests.Append(HEADER, FIRST, records, Acks.ALL)))
    assert not is_costly(encode_response(responses.Fetch(OK, FIRST, 0, 0, records)))
    topics = tuple(f"topic-{number}" for number in range(10_000))
    assert is_costly(encode_request(requests.FetchMetadata(HEADER, topics)))
    assert not is_costly(encode_request(requests.FetchMetadata(HEADER, topics[:100])))
    assert not is_costly(b"")


def test_codecs_can_be_compiled_before_they_are_needed() -> None:
    prepare()
    assert decode_request(encode_request(requests.Heartbeat(HEADER, ()))).header == HEADER
