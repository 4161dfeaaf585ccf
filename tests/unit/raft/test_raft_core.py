"""Parts of the core that scripts do not show."""

import pytest

from headrace.config import InvalidSetting
from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind, HardState, Snapshot
from headrace.raft.entry_log import EntryLog
from headrace.raft.errors import BrokenInvariant, MembershipRefused, SnapshotTooLarge
from headrace.raft.membership import Membership, with_learner
from headrace.raft.messages import Append, RequestVote
from headrace.raft.ready import Ready, Stored
from headrace.raft.settings import RaftSettings

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


def test_the_next_ready_waits_for_the_one_before() -> None:
    raft = node()
    raft.step(Append(TWO, ONE, 1, 0, 0, 1, entries(1, 3)), 5)
    ready = raft.ready(5)
    assert ready is not None
    with pytest.raises(AssertionError, match="not persisted"):
        raft.ready(5)
    with pytest.raises(AssertionError, match="another Ready"):
        raft.persisted(raft_ready_of_another(), 5)


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
    raft.persisted(second, 6)
    assert raft.ready(6) is None


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
    log = EntryLog(Snapshot(0, 0, MEMBERS, b""), (0, 0), entries(1, 3))
    with pytest.raises(BrokenInvariant, match="commit of 4, the log ends at 3"):
        log.commit_to(4)


def test_committed_entries_are_never_cut() -> None:
    log = EntryLog(Snapshot(0, 0, MEMBERS, b""), (0, 0), entries(1, 3))
    log.commit_to(2)
    with pytest.raises(BrokenInvariant, match="entry 2 is committed"):
        log.merge(entries(2, 1, term=2))


def test_reading_gives_at_least_one_entry_and_then_only_what_fits() -> None:
    log = EntryLog(Snapshot(0, 0, MEMBERS, b""), (0, 0), entries(1, 5))
    assert [entry.index for entry in log.read(2, 1)] == [2]
    assert [entry.index for entry in log.read(2, 80)] == [2, 3]
    assert log.read(6, 80) == []


def test_compaction_keeps_the_last_entries_and_the_membership() -> None:
    log = EntryLog(Snapshot(0, 0, MEMBERS, b""), (0, 0), entries(1, 9))
    log.commit_to(9)
    log.take_committed()
    log.compact(Snapshot(8, 1, MEMBERS, b"state"), 3)
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
