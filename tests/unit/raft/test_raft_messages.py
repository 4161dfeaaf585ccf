"""Messages as bytes, and messages that no correct node sends."""

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import BrokerId
from headrace.raft import entries, snapshots
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind, Snapshot
from headrace.raft.errors import InvalidMessage
from headrace.raft.membership import Membership, encode_membership
from headrace.raft.messages import (
    Append,
    AppendAccepted,
    Heartbeat,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteAnswer,
    ReadAnswer,
    Refusal,
    RequestVote,
    SnapshotProgress,
    TimeoutNow,
    VoteAnswer,
    decode_message,
    encode_message,
)
from headrace.raft.ready import Stored
from headrace.raft.settings import RaftSettings

ONE, TWO, THREE = map(BrokerId, range(1, 4))
MEMBERS = Membership((ONE, TWO, THREE))
SETTINGS = RaftSettings(snapshot_bytes_max=1024)

EXAMPLES: list[Message] = [
    PreVote(ONE, TWO, 3, 4, 2),
    PreVoteAnswer(ONE, TWO, 3, Refusal.HAS_LEADER),
    RequestVote(ONE, TWO, 3, 4, 2, True),
    VoteAnswer(ONE, TWO, 3, Refusal.NONE),
    Append(ONE, TWO, 3, 4, 2, 1, [Entry(5, 3, EntryKind.DATA, b"x")]),
    InstallSnapshot(ONE, TWO, 3, 4, 2, MEMBERS, 10, 7, 2, b"data"),
    TimeoutNow(ONE, TWO, 3),
    ReadAnswer(ONE, TWO, 3, 9, 4),
]


def follower() -> Raft:
    stored = Stored(Snapshot(0, 0, MEMBERS, b""))
    return Raft(ONE, settings=SETTINGS, stored=stored, jitter=lambda _: 0, now_ms=0)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_message_is_what_it_was_after_a_journey(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


def test_a_heartbeat_is_a_few_bytes() -> None:
    assert len(encode_message(Heartbeat(ONE, TWO, 3, 4, 5))) == 7


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error_of_ours(data: bytes) -> None:
    with suppress(InvalidMessage):
        assert decode_message(data).term >= 0


@given(st.data())
def test_a_damaged_message_changes_nothing_that_must_not_change(data: st.DataObject) -> None:
    raw = bytearray(encode_message(data.draw(st.sampled_from(EXAMPLES))))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raft = follower()
    try:
        raft.step(decode_message(raw), 1)
    except InvalidMessage:
        assert raft.state.log.last_index == 0


def test_a_message_for_another_node_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="from 2 to 3 at 1"):
        follower().step(Heartbeat(TWO, THREE, 1, 0, 1), 1)


@pytest.mark.parametrize(
    "sent",
    [
        [Entry(2, 1, EntryKind.DATA, b"")],
        [Entry(1, 2, EntryKind.DATA, b"")],
        [Entry(1, 1, EntryKind.DATA, b""), Entry(3, 1, EntryKind.DATA, b"")],
        [Entry(1, 1, EntryKind.MEMBERSHIP, b"junk")],
        [Entry(1, 1, EntryKind.MEMBERSHIP, encode_membership(Membership((ONE, ONE))))],
        [Entry(1, 1, EntryKind.MEMBERSHIP, encode_membership(Membership()))],
    ],
)
def test_entries_that_no_leader_sends_are_refused_whole(sent: list[Entry]) -> None:
    raft = follower()
    with pytest.raises(InvalidMessage):
        raft.step(Append(TWO, ONE, 1, 0, 0, 0, sent), 1)
    assert raft.state.log.last_index == 0


def test_two_leaders_of_a_term_are_refused() -> None:
    raft = follower()
    raft.step(Heartbeat(TWO, ONE, 1, 0, 1), 1)
    with pytest.raises(InvalidMessage, match="node 3 leads term 1, and so does 2"):
        raft.step(Heartbeat(THREE, ONE, 1, 0, 1), 1)


@pytest.mark.parametrize(
    "piece",
    [
        InstallSnapshot(TWO, ONE, 1, 5, 1, MEMBERS, 4096, 0, 0, b""),
        InstallSnapshot(TWO, ONE, 1, 5, 1, MEMBERS, -1, 0, 0, b""),
        InstallSnapshot(TWO, ONE, 1, 5, 1, MEMBERS, 10, 0, 8, b"abc"),
        InstallSnapshot(TWO, ONE, 1, 5, 1, MEMBERS, 10, 0, -1, b"abc"),
        InstallSnapshot(TWO, ONE, 1, 5, 2, MEMBERS, 0, 0, 0, b""),
        InstallSnapshot(TWO, ONE, 1, 5, 1, Membership(), 0, 0, 0, b""),
        InstallSnapshot(TWO, ONE, 1, 5, 1, Membership((ONE,), (ONE,)), 0, 0, 0, b""),
    ],
)
def test_pieces_that_fit_no_snapshot_are_refused(piece: InstallSnapshot) -> None:
    with pytest.raises(InvalidMessage):
        follower().step(piece, 1)


def test_a_snapshot_is_checksummed_once_on_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pieces it has: nobody may hold up the loop for all of it at each."""
    summed: list[int] = []

    def counting(data: bytes, value: int = 0) -> int:
        summed.append(len(data))
        return crc32c(data, value)

    for module in (entries, snapshots):
        monkeypatch.setattr(module, "crc32c", counting)
    data = bytes(1000)
    snapshot = Snapshot(5, 1, MEMBERS, data)
    raft = follower()
    for at in range(0, 1000, 10):
        piece = data[at : at + 10]
        checksum = snapshot.checksum
        raft.step(InstallSnapshot(TWO, ONE, 1, 5, 1, MEMBERS, 1000, checksum, at, piece), 1)
    assert raft.state.snapshot.index == 5
    assert sum(summed) == 2 * len(data)


def test_a_snapshot_that_was_damaged_on_the_way_is_asked_for_again() -> None:
    raft = follower()
    raft.step(InstallSnapshot(TWO, ONE, 1, 5, 1, MEMBERS, 4, 0xBAD, 0, b"data"), 1)
    ready = raft.ready(1)
    assert ready is not None
    assert ready.snapshot is None
    assert ready.messages == [SnapshotProgress(ONE, TWO, 1, 5, 0)]


def test_an_answer_beyond_the_leaders_log_is_refused() -> None:
    stored = Stored(Snapshot(0, 0, Membership((ONE,), (TWO,)), b""))
    raft = Raft(ONE, settings=SETTINGS, stored=stored, jitter=lambda _: 0, now_ms=0)
    raft.tick(0)
    with pytest.raises(InvalidMessage, match="node 2 has entry 9 of term 1"):
        raft.step(AppendAccepted(TWO, ONE, 1, 9), 1)
