"""Events are Kafka's bytes, and nothing else is read as one."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import BrokerId
from headrace.remote.events import NoEvent, UnreadableEvent, decode_event, encode_event
from headrace.remote.segments import (
    DeleteState,
    InvalidSegment,
    MetadataEvent,
    PartitionDelete,
    RemoteSegment,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
)
from tests.unit.remote.segments import ORDERS, segment, segment_id

HEAD = "076f7264657273000000000000000000000000000000ca0000000700000000000000000000000000000000fe00"
ADDED = (
    "010000" + HEAD + "000000000000000000000000000000630000002a0000000000000064000000000000007b"
    "030000000000000000000000000000000001000000000000003200" + "00001000"
)
GOLDEN = RemoteSegment(
    partition=ORDERS,
    id=segment_id(0xFE),
    start_offset=0,
    end_offset=99,
    max_timestamp_ms=100,
    broker_id=BrokerId(42),
    event_timestamp_ms=123,
    size_bytes=4096,
    epochs=(SegmentEpoch(0, 0), SegmentEpoch(1, 50)),
)
EVENTS: dict[str, tuple[MetadataEvent, str]] = {
    "added": (GOLDEN, ADDED + "00" + "00" + "00"),
    "updated": (
        SegmentUpdate(ORDERS, segment_id(0xFE), 456, SegmentState.COPY_FINISHED, BrokerId(42)),
        "010100" + HEAD + "0000002a00000000000001c8000100",
    ),
    "deleted": (
        PartitionDelete(ORDERS, 789, DeleteState.MARKED, BrokerId(42)),
        "010200076f7264657273000000000000000000000000000000ca00000007000000002a"
        "00000000000003150000",
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_has_the_bytes_that_kafka_writes(name: str) -> None:
    event, golden = EVENTS[name]
    assert encode_event(event).hex() == golden
    assert decode_event(bytes.fromhex(golden)) == event


def test_custom_metadata_and_an_empty_transaction_index_have_kafkas_bytes() -> None:
    custom = msgspec.structs.replace(GOLDEN, custom_metadata=b"\x01\x02\x03\x04")
    assert encode_event(custom).hex() == ADDED + "0501020304" + "00" + "00"
    no_aborted = msgspec.structs.replace(GOLDEN, is_txn_index_empty=True)
    assert encode_event(no_aborted).hex() == ADDED + "00" + "00" + "01000101"
    for event in (custom, no_aborted):
        assert decode_event(encode_event(event)) == event


def test_bytes_left_over_are_refused() -> None:
    for event, _ in EVENTS.values():
        with pytest.raises(NoEvent, match="left over"):
            decode_event(encode_event(event) + b"\0")


def test_an_event_that_is_cut_off_is_refused_wherever_it_ends() -> None:
    for event, _ in EVENTS.values():
        whole = encode_event(event)
        for end in range(len(whole)):
            with pytest.raises(NoEvent):
                decode_event(whole[:end])


@pytest.mark.parametrize("junk", [b"", b"hello", b'{"a": 1}', b"\xff" * 40, b"\x01\x00\x00junk"])
def test_what_no_version_can_have_written_is_no_event(junk: bytes) -> None:
    with pytest.raises(NoEvent):
        decode_event(junk)


@pytest.mark.parametrize(
    ("head", "named"),
    [
        ("020000", "frame version 2"),
        ("010400", "type 4"),
        ("010300", "snapshot"),
        ("010001", "version 1"),
        ("ffffffffffff", "header"),
    ],
)
def test_what_is_not_known_is_named(head: str, named: str) -> None:
    with pytest.raises(UnreadableEvent, match=named) as caught:
        decode_event(bytes.fromhex(head) + bytes(40))
    assert isinstance(caught.value, NoEvent) == (
        named == "header"
    )  # others may be a later version's


def test_an_unknown_state_is_refused() -> None:
    data = bytearray(encode_event(EVENTS["updated"][0]))
    data[-2] = 9
    with pytest.raises(UnreadableEvent, match="state 9"):
        decode_event(data)


def test_a_description_that_cannot_be_true_is_not_an_unreadable_event() -> None:
    data = encode_event(segment(1, 10, 20)).replace((20).to_bytes(8, "big"), bytes(8))
    with pytest.raises(InvalidSegment):
        decode_event(data)


def test_epochs_come_in_order_whoever_wrote_them() -> None:
    data = encode_event(segment(1, 0, 9, (4, 5), (3, 0)))
    event = decode_event(data)
    assert isinstance(event, RemoteSegment)
    assert event.epochs == ((3, 0), (4, 5))


@given(st.binary(max_size=200))
def test_whatever_bytes_come_they_are_an_event_or_refused(data: bytes) -> None:
    for event in (data, b"\x01\x00\x00" + data, b"\x01\x01\x00" + data):
        with contextlib.suppress(UnreadableEvent, InvalidSegment):
            decode_event(event)
