"""What would take long to decode is not decoded."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.transport.message_bounds import (
    ENTRIES_MAX,
    MEMBERS_MAX,
    SMALL_BYTES_MAX,
    bounds_problem,
)
from headrace.ids import BrokerId as NodeId
from headrace.raft.entries import Entry, EntryKind
from headrace.raft.membership import Membership
from headrace.raft.messages import Append, InstallSnapshot, Message, encode_message

ONE, TWO = NodeId(1), NodeId(2)


def problem(message: Message) -> str | None:
    return bounds_problem(memoryview(encode_message(message)))


def append(count: int, data: bytes = b"", index: int = 1) -> Append:
    entries = [Entry(index, 1, EntryKind.DATA, data)] * count
    return Append(ONE, TWO, 3, index, 2, 2**40, entries)


def snapshot(voters: int, learners: int = 0, size: int = 1 << 20) -> InstallSnapshot:
    members = tuple(map(NodeId, range(10_000)))
    membership = Membership(members[:voters], members[:learners])
    return InstallSnapshot(ONE, TWO, 3, 2**50, 2, membership, size, 7, 0, bytes(size))


def test_what_honest_nodes_send_is_decoded() -> None:
    assert problem(append(1, bytes(4 << 20))) is None
    assert problem(append(ENTRIES_MAX)) is None
    assert problem(append(100, bytes(10_000), index=2**33)) is None
    assert problem(snapshot(300, 300)) is None


def test_millions_of_values_are_not() -> None:
    assert problem(append(ENTRIES_MAX + 1)) == (
        f"a message with {ENTRIES_MAX + 1} entries, the most is {ENTRIES_MAX}"
    )
    assert "members" in (problem(snapshot(MEMBERS_MAX + 1)) or "")
    assert "members" in (problem(snapshot(1, MEMBERS_MAX + 1)) or "")
    assert bounds_problem(memoryview(b"\x93\x07" + bytes(SMALL_BYTES_MAX))) is not None


@given(st.binary(max_size=40))
def test_any_large_bytes_have_an_outcome(start: bytes) -> None:
    for filling in (b"\x01", b"\xdd", b"\x91"):
        bounds_problem(memoryview(start + filling * SMALL_BYTES_MAX))
