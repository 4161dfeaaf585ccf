"""What members of a classic group write for each other."""

import pytest

from headrace.client.group.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headrace.client.topics import TopicPartition
from headrace.wire import WireError, encode
from headrace.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from headrace.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedRow

ZERO, ONE = TopicPartition("a", 0), TopicPartition("a", 1)


def test_what_is_written_is_read() -> None:
    data = write_subscription(["b", "a"], [ONE, ZERO], 7, "rack", is_sticky=True)
    row = read_subscription(data, "till")
    assert row.topics == {"a", "b"}
    assert row.owned == {ZERO, ONE}
    assert (row.generation, row.instance_id) == (7, "till")
    assert read_assignment(write_assignment([ONE, ZERO])) == {ZERO, ONE}


def test_older_clients_have_their_generation_in_the_user_data() -> None:
    body = ConsumerProtocolSubscription(
        topics=["a"],
        user_data=(5).to_bytes(4, "big"),
        owned_partitions=[OwnedRow(topic="a", partitions=[1])],
    )
    data = b"\0\1" + bytes(encode(body, 1))
    row = read_subscription(data, None)
    assert row.owned == {ONE}
    assert row.generation == 5


def test_a_newer_version_is_read_as_far_as_we_know_it() -> None:
    data = bytearray(write_subscription(["a"], [], 7, None, is_sticky=False))
    data[:2] = b"\0\x09"
    assert read_subscription(bytes(data) + b"more", None).topics == {"a"}


def test_no_assignment_is_an_empty_one_and_half_a_one_is_an_error() -> None:
    assert read_assignment(b"") == frozenset()
    with pytest.raises(WireError):
        read_assignment(b"\0")
