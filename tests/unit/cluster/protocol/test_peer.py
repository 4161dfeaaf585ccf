"""The crate that defined the protocol reads what we write, and refuses what we refuse."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.cluster.protocol import ProtocolError, commands, requests
from headrace.cluster.protocol.messages import COMMANDS, REQUESTS, RESPONSES
from headrace.cluster.protocol.postcard import Codec
from tests.unit.cluster.protocol.values import any_of, from_serde
from tools.cluster_vectors import peer

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(peer.BUILD_SECONDS_MAX),
    pytest.mark.skipif(bool(peer.missing()), reason=peer.missing()),
]

CODECS: dict[str, Codec[Any]] = {"command": COMMANDS, "request": REQUESTS, "response": RESPONSES}
STRICTER = ("longer than it has to be", "is there twice", "are left over", "more elements")
"""What we refuse and the peer does not; its encoder writes none of it."""


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    peer.build()


def messages() -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Several values of any kind, as a start of the program takes longer than reading one."""
    kinds = [st.tuples(st.just(kind), any_of(codec.plan)) for kind, codec in CODECS.items()]
    return st.lists(st.one_of(kinds), min_size=1, max_size=20)


def as_peer_keeps(value: Any) -> Any:
    """Return a value without what the peer drops: the upper half of a member's last heartbeat."""
    if isinstance(value, requests.ProposeMetadata):
        return replace(value, command=as_peer_keeps(value.command))
    if isinstance(value, commands.UpdateConsumerGroup):
        members = {
            member_id: replace(member, last_heartbeat=member.last_heartbeat % 2**64)
            for member_id, member in value.group.members.items()
        }
        return replace(value, group=replace(value.group, members=members))
    return value


@settings(max_examples=300)
@given(messages())
def test_the_peer_reads_what_we_write(values: list[tuple[str, Any]]) -> None:
    told = peer.read((kind, CODECS[kind].encode(value)) for kind, value in values)
    for (kind, value), answer in zip(values, told, strict=True):
        codec = CODECS[kind]
        assert from_serde(codec.plan, answer["value"]) == as_peer_keeps(value)
        assert codec.decode(bytes.fromhex(answer["hex"])) == as_peer_keeps(value)


@settings(max_examples=500)
@given(messages(), st.data())
def test_the_peer_and_we_read_bent_messages_alike(
    values: list[tuple[str, Any]], data: st.DataObject
) -> None:
    bent = []
    for kind, value in values:
        frame = bytearray(CODECS[kind].encode(value))
        position = data.draw(st.integers(0, len(frame)))
        removed = data.draw(st.integers(0, 3))
        frame[position : position + removed] = data.draw(st.binary(max_size=12))
        bent.append((kind, bytes(frame)))
    for (kind, frame_bytes), answer in zip(bent, peer.read(bent), strict=True):
        codec = CODECS[kind]
        try:
            value = codec.decode(frame_bytes)
        except ProtocolError as error:
            reason = error.reason
        else:
            assert from_serde(codec.plan, answer["value"]) == as_peer_keeps(value)
            continue
        assert "refused" in answer or any(each in reason for each in STRICTER)


def test_the_vectors_are_what_the_peer_writes() -> None:
    """Maps of several entries come in another order each time, so lengths are compared."""
    kept = peer.VECTORS.read_text("utf-8").split("\n")
    again = peer.written().split("\n")
    assert [len(line) for line in again] == [len(line) for line in kept]
