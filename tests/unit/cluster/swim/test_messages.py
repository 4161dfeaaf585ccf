"""The bytes of messages, honest and hostile."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.cluster.swim.claims import BOOT_EPOCH_MAX, INCARNATION_MAX, Claim, Standing
from headrace.cluster.swim.messages import (
    CLAIM_BYTES,
    MESSAGE_BYTES_MAX,
    NODE_ID_MAX,
    Ack,
    Body,
    InvalidMessage,
    Message,
    Nack,
    News,
    Ping,
    PingRequest,
    RelayedAck,
    Sync,
    decode_message,
    encode_message,
)
from headrace.ids import BrokerId as NodeId
from tests.unit.cluster.swim.members import claim, message

numbers = some.integers(0, 2**32 - 1)
nodes = some.integers(0, NODE_ID_MAX).map(NodeId)
boot_epochs = some.integers(1, BOOT_EPOCH_MAX)
incarnations = some.integers(0, INCARNATION_MAX)
bodies: some.SearchStrategy[Body] = some.one_of(
    some.builds(Ping, numbers),
    some.builds(Ack, numbers),
    some.builds(PingRequest, numbers, nodes),
    some.builds(RelayedAck, numbers, nodes, boot_epochs, incarnations),
    some.builds(Nack, numbers),
    some.builds(Sync, nodes, nodes),
    some.builds(News),
)
claims = some.builds(Claim, nodes, boot_epochs, incarnations, some.sampled_from(Standing), nodes)
messages = some.builds(
    Message,
    nodes,
    boot_epochs,
    incarnations,
    some.booleans(),
    bodies,
    some.lists(claims, max_size=45).map(tuple),
)


@given(messages)
def test_a_message_is_read_as_it_was_written(sent: Message) -> None:
    data = encode_message(sent)
    assert decode_message(data, sent.sender, sent.boot_epoch) == sent
    assert len(data) <= MESSAGE_BYTES_MAX + len(sent.claims) * CLAIM_BYTES


@given(messages, some.data())
def test_a_message_that_was_cut_short_is_refused(sent: Message, data: some.DataObject) -> None:
    whole = encode_message(sent)
    length = data.draw(some.integers(0, len(whole) - 1))
    with pytest.raises(InvalidMessage):
        decode_message(whole[:length], NodeId(1), 1)


@given(some.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read = decode_message(data, NodeId(1), 1)
    except InvalidMessage:
        return
    assert encode_message(read) == data


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\x07"),  # kind
        (1, b"\x02"),  # flags
        (2, b"\xff"),  # incarnation of the sender
        (10, b"\x02"),  # number of claims
        (15, b"\x04"),  # standing
        (16, b"\xff"),  # node
        (20, b"\xff"),  # boot epoch
        (20, bytes(8)),
        (28, b"\xff"),  # incarnation
        (36, b"\xff"),  # accuser
    ],
)
def test_values_that_nobody_sends_are_refused(at: int, value: bytes) -> None:
    data = encode_message(message(1, Ping(3), claim(2)))
    decode_message(data, NodeId(1), 1)
    with pytest.raises(InvalidMessage):
        decode_message(data[:at] + value + data[at + len(value) :], NodeId(1), 1)


def test_bytes_on_the_wire_stay_as_they_are() -> None:
    sent = message(1, PingRequest(7, NodeId(5)), claim(2, Standing.SUSPECT, accuser=3))
    assert encode_message(sent).hex() == (
        "0200000000000000000001000000070000000501000000020000000000000001000000000000000000000003"
    )
