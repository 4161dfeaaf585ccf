"""Messages become bytes and bytes messages, in every version, and what cannot says why."""

from random import Random

import pytest

from headrace.wire import WireError, codec, decode, encode, encode_parts, message_type
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue,
)
from headrace.wire.messages.fetch_request import FetchRequest, ReplicaState
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.schema import Message
from tests.message_values import MESSAGE_NAMES, Rolled, make_message, versions_of


@pytest.mark.parametrize("name", MESSAGE_NAMES)
def test_a_message_survives_the_wire_in_every_version(name: str) -> None:
    message, choices = message_type(name), Rolled(Random(name))
    for version in versions_of(name):
        for _ in range(5):
            value = make_message(message, version, choices)
            encoded = encode(value, version)
            again = decode(message, encoded, version)
            assert again == value
            assert encode(again, version) == encoded


@pytest.mark.parametrize("name", MESSAGE_NAMES)
def test_defaults_survive_the_wire_in_every_version(name: str) -> None:
    message = message_type(name)
    for version in versions_of(name):
        assert decode(message, encode(message(), version), version) == message()


def produce_request(records: bytes | None = b"records") -> ProduceRequest:
    partition = PartitionProduceData(3, records)
    return ProduceRequest(None, -1, 1500, [TopicProduceData("t", partition_data=[partition])])


def test_known_bytes_of_a_produce_request() -> None:
    body = b"\xff\xff\x00\x00\x05\xdc"
    assert encode(produce_request(), 8) == (
        b"\xff\xff" + body + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01"
        b"\x00\x00\x00\x03\x00\x00\x00\x07records"
    )
    assert encode(produce_request(), 9) == (
        b"\x00" + body + b"\x02\x02t\x02\x00\x00\x00\x03\x08records\x00\x00\x00"
    )


def test_records_are_views_of_the_frame_and_parts_of_the_answer() -> None:
    frame = bytearray(encode(produce_request(), 9))
    records = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    frame[-10:-3] = b"patched"
    assert bytes(records) == b"patched"
    parts = encode_parts(produce_request(own := b"x" * 1000), 9)
    assert any(part is own for part in parts)


def test_an_empty_list_is_not_null() -> None:
    for version in (9, 10, 12, 13):
        assert decode(MetadataRequest, encode(MetadataRequest([]), version), version).topics == []
        nothing = decode(MetadataRequest, encode(MetadataRequest(None), version), version)
        assert nothing.topics is None


def test_unknown_tagged_fields_are_kept_and_written_in_order() -> None:
    value = ApiVersionsRequest("name", "1", unknown_tags={300: b"later", 7: b""})
    encoded = encode(value, 3)
    assert encoded.endswith(b"\x02\x07\x00\xac\x02\x05later")
    assert decode(ApiVersionsRequest, encoded, 3) == value


def test_known_and_unknown_tagged_fields_share_a_section() -> None:
    value = FetchRequest(cluster_id="c", replica_state=ReplicaState(1, 2), unknown_tags={9: b"x"})
    again = decode(FetchRequest, encode(value, 15), 15)
    assert again == value
    assert again.unknown_tags == {9: b"x"}


def test_a_tagged_field_with_its_default_is_not_written() -> None:
    plain = encode(FetchRequest(), 15)
    assert encode(FetchRequest(replica_state=ReplicaState(-1, -1)), 15) == plain
    assert len(encode(FetchRequest(cluster_id=""), 15)) > len(plain)


def test_a_nullable_struct_has_a_marker() -> None:
    absent = encode(ConsumerGroupHeartbeatResponse(), 0)
    present = encode(ConsumerGroupHeartbeatResponse(assignment=Assignment()), 0)
    assert absent.endswith(b"\xff\x00")
    assert present.endswith(b"\x01\x01\x00\x00")


def test_a_tagged_struct_that_is_null_has_the_marker_that_kafka_writes() -> None:
    """Taken from the `__consumer_offsets` of a broker of version 4.3.1."""
    written = b"\x00\x00\rdifferential\x0b/127.0.0.1\x02\x02a\x01\x00\x00u0\x00\x01\x00\x01\x00"
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="differential",
        client_host="/127.0.0.1",
        subscribed_topic_names=["a"],
        rebalance_timeout_ms=30_000,
        server_assignor=None,
        classic_member_metadata=None,
    )
    assert encode(member, 0) == written
    assert decode(ConsumerGroupMemberMetadataValue, written, 0) == member


def test_an_ignorable_value_is_dropped_by_versions_without_the_field() -> None:
    request = ApiVersionsRequest("headrace", "1.0")
    assert encode(request, 0) == b""


@pytest.mark.parametrize(
    ("value", "version", "complaint"),
    [
        (FindCoordinatorRequest(key_type=1), 0, "FindCoordinatorRequest v0, key_type: is 1, which"),
        (
            MetadataRequest([MetadataRequestTopic(name=None)]),
            9,
            "MetadataRequest v9, topics[0].name: null",
        ),
        (MetadataRequest(None), 0, "MetadataRequest v0, topics: null"),
        (ProduceRequest(acks=40000), 9, "ProduceRequest v9, acks:"),
        (ProduceRequest(timeout_ms=2**31), 9, "ProduceRequest v9, timeout_ms:"),
        (ProduceRequest("x" * 32768), 9, "transactional_id: a string takes 32768 bytes"),
        (ProduceRequest("x" * 32768), 8, "transactional_id: a string takes 32768 bytes"),
        (ProduceRequest("\udc00"), 9, "ProduceRequest v9, transactional_id:"),
        (ProduceRequest(unknown_tags={1: b""}), 8, "ProduceRequest v8, tags: is {1: b''}, which"),
        (
            FetchRequest(cluster_id="c", unknown_tags={0: b""}),
            12,
            "FetchRequest v12, tags: unknown",
        ),
        (MetadataRequest([MetadataRequestTopic(b"short", "t")]), 12, "topics[0].topic_id: is b's"),
        (ProduceRequest(), 2, "ProduceRequest v2: there is no such version, only 3-13"),
        (ProduceRequest(), 14, "ProduceRequest v14: there is no such version, only 3-13"),
    ],
)
def test_a_value_without_wire_form_is_refused_by_name(
    value: Message, version: int, complaint: str
) -> None:
    with pytest.raises(WireError) as refusal:
        encode(value, version)
    assert complaint in str(refusal.value)


def test_an_error_names_the_element_of_an_array() -> None:
    topics = [TopicProduceData("a"), TopicProduceData("b", partition_data=[])]
    topics[1].partition_data = [PartitionProduceData(0), PartitionProduceData(2**40)]
    with pytest.raises(WireError) as refusal:
        encode(ProduceRequest(topic_data=topics), 9)
    assert refusal.value.field == "topic_data[1].partition_data[1].index"


def test_every_prefix_of_a_frame_is_refused_with_its_place() -> None:
    for version in (8, 9, 13):
        frame = encode(produce_request(), version)
        for length in range(len(frame)):
            with pytest.raises(WireError) as refusal:
                decode(ProduceRequest, frame[:length], version)
            error = refusal.value
            assert (error.message, error.version) == ("ProduceRequest", version)
            assert error.field
            assert error.position is not None
            assert error.position <= length


@pytest.mark.parametrize(
    ("frame", "field", "reason"),
    [
        (b"\x00\xff\xff\x00\x00\x05\xdc\x00\x00", "topic_data", "null, which"),
        (b"\x00\xff\xff\x00\x00\x05\xdc\xff\xff\xff\xff\x07", "topic_data", "2147483646 elements"),
        (b"\x00\xff\xff\x00\x00\x05\xdc\xff\xff\xff\xff\xff\x01", "topic_data", "a varint is long"),
        (b"\xff", "transactional_id", "the frame ends"),
        (b"\x03\xc3\x28\x00\x00\x00\x00\x00\x00\x01\x00", "transactional_id", "invalid UTF-8"),
        (b"\x7f", "transactional_id", "126 bytes are announced, 0 are left"),
        (b"\x00\xff\xff\x00\x00\x05\xdc\x01\x01\x09\x05", "tags", "5 bytes are announced, 0"),
        (b"\x00\xff\xff\x00\x00\x05\xdc\x01\x00\x00\x00", "", "2 bytes are left over"),
    ],
)
def test_hostile_lengths_are_refused_with_field_and_reason(
    frame: bytes, field: str, reason: str
) -> None:
    with pytest.raises(WireError) as refusal:
        decode(ProduceRequest, frame, 9)
    assert refusal.value.field == field
    assert reason in refusal.value.reason


def test_negative_lengths_of_old_versions_are_refused() -> None:
    with pytest.raises(WireError, match="transactional_id at byte 2: a length of -2"):
        decode(ProduceRequest, b"\xff\xfe" + bytes(10), 8)
    with pytest.raises(WireError, match="topic_data at byte 12: null"):
        decode(ProduceRequest, b"\xff\xff" + bytes(6) + b"\xff\xff\xff\xff", 8)


def test_a_tagged_field_must_fill_its_size() -> None:
    frame = bytearray(encode(FetchRequest(cluster_id="abc"), 12))
    assert frame.endswith(b"\x01\x00\x04\x04abc")
    frame[-6:] = b"\x00\x05\x04abcd"
    with pytest.raises(
        WireError, match=r"cluster_id .*: a tagged field of 5 bytes has a value of 4"
    ):
        decode(FetchRequest, frame, 12)


def test_an_error_keeps_no_hold_of_the_frame() -> None:
    with pytest.raises(WireError) as refusal:
        decode(ProduceRequest, b"\x7f", 9)
    assert refusal.value.__context__ is None


def test_codecs_are_compiled_once() -> None:
    encode(produce_request(), 9)
    first = codec._encoders[ProduceRequest, 9]
    encode(produce_request(), 9)
    assert codec._encoders[ProduceRequest, 9] is first
