"""Parts of the core that scripts do not show."""

import pytest
from crc32c import crc32c

from headrace.config import InvalidSetting
from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind, HardState, Snapshot, SnapshotMark
from headrace.raft.entry_log import EntryLog
from headrace.raft.errors import BrokenInvariant, MembershipRefused, SnapshotTooLarge
from headrace.raft.membership import Membership, with_learner
from headrace.raft.messages import (
    Append,
    AppendAccepted,
    Heartbeat,
    HeartbeatAnswer,
    InstallSnapshot,
    PreVoteAnswer,
    Refusal,
    RequestVote,
    VoteAnswer,
)
from headrace.raft.ready import Ready, Stored
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role

ONE, TWO, THREE = map(BrokerId, range(1, 4))
MEMBERS = Membership((ONE, TWO, THREE))


def entries(first: int, count: int, term: int = 1) -> list[Entry]:
    return [Entry(first + i, term, EntryKind.DATA, b"x" * 8) for i in range(count)]


def node(stored: Stored | None = None, settings: RaftSettings | None = None) -> Raft:
    return Raft(
        ONE,
        settings=settings or RaftSettings(),
        stored=stored or Stored(Snapshot(0, 0, MEMBERS, b"")),
        jitter=lambda _: 0,
        now_ms=0,
    )


def test_the_same_inputs_give_the_same_outputs() -> None:
    outputs = []
    for _ in range(2):
        raft = node()
        raft.step(Append(TWO, ONE, 1, 0, 0, 1, entries(1, 3)), 5)
        ready = raft.ready(5)
        assert ready is not None
        raft.persisted(ready, 6)
        outputs.append((ready, raft.ready(6)))
    assert outputs[0] == outputs[1]


def test_nothing_else_is_stored_before_what_is_being_stored() -> None:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 1, entries(1, 3)), 5)
    ready = raft.ready(5)
    assert ready is not None
    raft.step(Append(TWO, ONE, 1, 3, 1, 1, entries(4, 1)), 5)
    assert raft.ready(5) is None
    with pytest.raises(AssertionError, match="another Ready"):
        raft.persisted(raft_ready_of_another(), 5)
    raft.persisted(ready, 6)
    again = raft.ready(6)
    assert again is not None
    assert again.entries == entries(4, 1)
    assert again.messages == [AppendAccepted(ONE, TWO, 1, 4)]


def test_while_entries_are_stored_only_what_promises_them_waits() -> None:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 0, entries(1, 3)), 5)
    stored = raft.ready(5)
    assert stored is not None
    raft.persisted(stored, 6)
    raft.step(Append(TWO, ONE, 1, 3, 1, 3, entries(4, 1)), 6)
    storing = raft.ready(6)
    assert storing is not None
    assert storing.messages == [AppendAccepted(ONE, TWO, 1, 4)]
    raft.step(Append(TWO, ONE, 1, 4, 1, 3, entries(5, 1)), 7)
    raft.step(Append(TWO, ONE, 1, 3, 1, 3, []), 7)
    raft.step(Heartbeat(TWO, ONE, 1, 3, 9), 7)
    meanwhile = raft.ready(7)
    assert meanwhile is not None
    assert not meanwhile.must_persist
    assert meanwhile.early_messages == [
        AppendAccepted(ONE, TWO, 1, 3),
        HeartbeatAnswer(ONE, TWO, 1, 9),
    ]
    assert raft.ready(7) is None


def test_while_a_term_is_stored_nothing_is_said_in_it() -> None:
    raft = node()
    raft.step(Heartbeat(TWO, ONE, 1, 0, 1), 5)
    storing = raft.ready(5)
    assert storing is not None
    assert (storing.early_messages, storing.hard_state) == ([], HardState(1))
    raft.step(Heartbeat(TWO, ONE, 1, 0, 2), 6)
    assert raft.ready(6) is None


def test_while_a_snapshot_is_stored_it_is_not_confirmed() -> None:
    raft = node(Stored(Snapshot(0, 0, MEMBERS, b""), HardState(1)))
    data = b"state"
    raft.step(InstallSnapshot(TWO, ONE, 1, 9, 1, MEMBERS, 5, crc32c(data), 0, data), 5)
    storing = raft.ready(5)
    assert storing is not None
    assert (storing.early_messages, storing.messages) == ([], [AppendAccepted(ONE, TWO, 1, 9)])
    raft.step(Append(TWO, ONE, 1, 9, 1, 9, []), 6)
    assert raft.ready(6) is None
    raft.persisted(storing, 7)
    after = raft.ready(7)
    assert after is not None
    assert after.early_messages == [AppendAccepted(ONE, TWO, 1, 9)]


def test_entries_that_a_new_leader_cut_off_are_not_confirmed_to_the_old_one() -> None:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 0, entries(1, 2)), 5)
    storing = raft.ready(5)
    assert storing is not None
    raft.step(Append(TWO, ONE, 1, 2, 1, 0, entries(3, 3)), 6)
    raft.step(Append(THREE, ONE, 2, 2, 1, 0, entries(3, 1, term=2)), 7)
    raft.persisted(storing, 8)
    after = raft.ready(8)
    assert after is not None
    assert [message.to for message in after.early_messages + after.messages] == [THREE]


def test_a_leader_whose_disk_is_stuck_lets_others_lead() -> None:
    settings = RaftSettings()
    raft = node(settings=settings)
    raft.tick(settings.election_timeout_ms)
    now_ms = settings.election_timeout_ms
    raft.step(PreVoteAnswer(TWO, ONE, 1, Refusal.NONE), now_ms)
    raft.persisted(require(raft.ready(now_ms)), now_ms)
    raft.step(VoteAnswer(TWO, ONE, 1, Refusal.NONE), now_ms)
    storing = require(raft.ready(now_ms))
    assert storing.entries, "the first of its term, which the disk does not store"
    deadline_ms = now_ms + settings.stuck_disk_ms
    while now_ms < deadline_ms:
        assert raft.state.role is Role.LEADER
        now_ms += settings.heartbeat_ms
        raft.step(HeartbeatAnswer(TWO, ONE, 1, 1), now_ms)
        raft.tick(now_ms)
    assert raft.state.role is Role.FOLLOWER


def require(ready: Ready | None) -> Ready:
    assert ready is not None
    return ready


def raft_ready_of_another() -> Ready:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 1, entries(1, 3)), 5)
    ready = raft.ready(5)
    assert ready is not None
    return ready


def test_entries_that_were_replaced_while_they_were_stored_do_not_count_as_durable() -> None:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 0, entries(1, 5)), 5)
    ready = raft.ready(5)
    assert ready is not None
    raft.step(Append(THREE, ONE, 2, 2, 1, 0, entries(3, 1, term=2)), 6)
    raft.persisted(ready, 7)
    assert raft.state.log.persisted < 3
    again = raft.ready(7)
    assert again is not None
    assert again.entries[-1] == Entry(3, 2, EntryKind.DATA, b"x" * 8)
    raft.persisted(again, 8)
    assert raft.state.log.persisted == 3


def test_what_is_committed_is_handed_out_once_and_only_when_durable() -> None:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 3, entries(1, 3)), 5)
    first = raft.ready(5)
    assert first is not None
    assert first.committed == []
    raft.persisted(first, 6)
    second = raft.ready(6)
    assert second is not None
    assert second.committed == entries(1, 3)
    assert raft.ready(6) is None


def test_nobody_hears_of_a_sole_voters_term_before_its_disk_knows_it() -> None:
    """Else another could lead the same term, if this node goes down and forgets it."""
    members = Membership((ONE,), (TWO,))
    raft = node(Stored(Snapshot(0, 0, members, b""), HardState(5, TWO)))
    raft.tick(1)
    assert (raft.state.role, raft.state.term) == (Role.LEADER, 6)
    storing = raft.ready(1)
    assert storing is not None
    assert (storing.early_messages, storing.committed) == ([], [])
    raft.propose(b"a", 2)
    raft.read(7, 2)
    raft.step(RequestVote(THREE, ONE, 6, 9, 9, False), 2)
    raft.tick(200)
    assert raft.ready(200) is None
    raft.persisted(storing, 201)
    done = raft.ready(201)
    assert done is not None
    assert done.early_messages != []
    assert [entry.index for entry in done.committed] == [1]


def test_time_does_not_go_back() -> None:
    raft = node()
    raft.tick(10)
    with pytest.raises(AssertionError, match="time went back"):
        raft.tick(9)


def test_a_vote_that_was_given_is_known_after_a_restart() -> None:
    raft = node(Stored(Snapshot(0, 0, MEMBERS, b""), HardState(4, TWO)))
    raft.step(RequestVote(THREE, ONE, 4, 9, 3, False), 1)
    ready = raft.ready(1)
    assert ready is not None
    assert not ready.must_persist
    assert raft.state.vote == TWO


def test_a_commit_index_beyond_the_log_breaks_the_node_not_the_quorum() -> None:
    log = EntryLog(SnapshotMark(0, 0, MEMBERS), (0, 0), entries(1, 3))
    with pytest.raises(BrokenInvariant, match="commit of 4, the log ends at 3"):
        log.commit_to(4)


def test_committed_entries_are_never_cut() -> None:
    log = EntryLog(SnapshotMark(0, 0, MEMBERS), (0, 0), entries(1, 3))
    log.commit_to(2)
    with pytest.raises(BrokenInvariant, match="entry 2 is committed"):
        log.merge(entries(2, 1, term=2))


def test_reading_gives_at_least_one_entry_and_then_only_what_fits() -> None:
    log = EntryLog(SnapshotMark(0, 0, MEMBERS), (0, 0), entries(1, 5))
    assert [entry.index for entry in log.read(2, 1)] == [2]
    assert [entry.index for entry in log.read(2, 80)] == [2, 3]
    assert log.read(6, 80) == []


def test_compaction_keeps_the_last_entries_and_the_membership() -> None:
    log = EntryLog(SnapshotMark(0, 0, MEMBERS), (0, 0), entries(1, 9))
    log.commit_to(9)
    log.take_committed(9)
    log.compact(SnapshotMark(8, 1, MEMBERS), 3)
    assert (log.base_index, log.base_term, log.last_index) == (5, 1, 9)
    assert log.membership_at(9) == MEMBERS
    assert log.term_at(4) is None


def test_a_snapshot_beyond_the_bound_is_refused_where_it_is_made() -> None:
    raft = node(settings=RaftSettings(snapshot_bytes_max=10))
    with pytest.raises(SnapshotTooLarge, match=r"11 bytes, headrace\.raft\.snapshot\.bytes\.max"):
        raft.make_snapshot(0, b"x" * 11)


def test_members_are_bounded() -> None:
    with pytest.raises(
        MembershipRefused, match=r"has 3 members, headrace\.raft\.members\.max is 3"
    ):
        with_learner(MEMBERS, BrokerId(4), 3)


def test_settings_that_do_not_fit_each_other_are_named() -> None:
    with pytest.raises(InvalidSetting, match=r"headrace\.raft\.heartbeat\.ms=60: must be at most"):
        RaftSettings(heartbeat_ms=60, election_timeout_ms=100)
    with pytest.raises(InvalidSetting, match=r"clock\.drift\.ms\.max=90: leaves no lease"):
        RaftSettings(
            heartbeat_ms=10, election_timeout_ms=100, clock_drift_ms_max=90, has_lease_reads=True
        )


def test_lease_reads_are_off_unless_asked_for() -> None:
    assert not RaftSettings().has_lease_reads
