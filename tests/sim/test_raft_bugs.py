"""Bugs planted into the product, each of which the simulation must notice.

A bug is a patch of a small piece. What notices may be the view from above or the core's own
checks; that something does, within a bounded number of seeds, is what gives a clean run weight.
"""

from collections.abc import Callable
from functools import partial

import pytest

from headrace.ids import BrokerId as NodeId
from headrace.raft import dispatch, elections, reads, replication
from headrace.raft.core import Raft
from headrace.raft.driver import RaftDriver
from headrace.raft.entries import Entry, HardState
from headrace.raft.entry_log import EntryLog
from headrace.raft.errors import DiskFull
from headrace.raft.full_disk import OutOfSpace, naming_lack_of_space
from headrace.raft.membership import Membership
from headrace.raft.messages import Append, Message, Refusal, RequestVote, VoteAnswer
from headrace.raft.ready import Ready
from headrace.raft.state import PendingRead, State
from headrace.raft.storage import RaftStorage
from headrace.raft.waiting import Waiting
from headrace.testing.disk import SimulatedFile
from tests.sim.raft_checks import Violation
from tests.sim.raft_planted import ONCE_HERE
from tests.sim.raft_world import World
from tests.sim.test_raft import play

SEEDS_MAX = 200
Patch = pytest.MonkeyPatch


def skip_fsync(patch: Patch) -> None:
    def sync(self: RaftStorage) -> None:
        assert self._file is not None
        self._synced_bytes = self._file.size

    patch.setattr(RaftStorage, "sync", sync)


def forget_the_term_check(patch: Patch) -> None:
    real = dispatch.is_of_this_term

    def is_of_this_term(state: State, message: Message) -> bool:
        return message.term < state.term or real(state, message)

    patch.setattr(dispatch, "is_of_this_term", is_of_this_term)


def commit_an_old_terms_entry(patch: Patch) -> None:
    def advance_commit(state: State) -> None:
        matches = {member: progress.match_index for member, progress in state.progress.items()}
        if not state.log.commit_to(state.quorum_value(state.log.persisted, matches)):
            return
        reads.release_early(state)
        if not state.is_voter and state.log.membership_index <= state.log.commit:
            state.follow(state.term, None)

    patch.setattr(replication, "advance_commit", advance_commit)


def vote_twice(patch: Patch) -> None:
    def handle(state: State, message: RequestVote) -> None:
        if state.log.is_covered_by(message.last_index, message.last_term):
            state.outbox.append(VoteAnswer(state.node, message.sender, state.term, Refusal.NONE))

    patch.setitem(dispatch.HANDLERS, RequestVote, handle)


def apply_an_entry_twice(patch: Patch) -> None:
    real = EntryLog.take_committed

    def take_committed(self: EntryLog, count_max: int) -> list[Entry]:
        taken = real(self, count_max)
        return [*taken, taken[-1]] if len(taken) > 3 else taken

    patch.setattr(EntryLog, "take_committed", take_committed)


def answer_before_the_disk(patch: Patch) -> None:
    def sort_outbox(self: Raft) -> tuple[list[Message], list[Message]]:
        return self.state.outbox, []

    patch.setattr(Raft, "_sort_outbox", sort_outbox)


def vote_for_any_log(patch: Patch) -> None:
    patch.setattr(EntryLog, "is_covered_by", lambda self, last_index, last_term: True)


def keep_conflicting_entries(patch: Patch) -> None:
    def merge(self: EntryLog, entries: list[Entry]) -> None:
        self.append([entry for entry in entries if entry.index > self.last_index])

    patch.setattr(EntryLog, "merge", merge)


def let_old_appends_cut(patch: Patch) -> None:
    def merge(self: EntryLog, entries: list[Entry]) -> None:
        if entries and entries[0].index <= self.last_index:
            self._cut(entries[0].index)
        self.append(entries)

    patch.setattr(EntryLog, "merge", merge)


def read_without_asking(patch: Patch) -> None:
    def begin(state: State, read: PendingRead) -> None:
        read.index = state.log.commit
        reads._serve(state, read)

    patch.setattr(reads, "_begin", begin)


def lease_without_end(patch: Patch) -> None:
    patch.setattr(reads, "has_lease", lambda state: state.has_committed_in_term)


def read_before_the_first_commit(patch: Patch) -> None:
    def begin(state: State, read: PendingRead) -> None:
        read.index, read.round = state.log.commit, state.round + 1
        state.reads.append(read)
        state.is_round_wanted = True

    patch.setattr(reads, "_begin", begin)


def count_half_as_a_majority(patch: Patch) -> None:
    patch.setattr(Membership, "quorum", property(lambda self: max(1, len(self.voters) // 2)))


def forget_the_vote(patch: Patch) -> None:
    real = RaftStorage.store

    def store(self: RaftStorage, ready: Ready) -> None:
        real(self, ready)
        self.hard_state = HardState(self.hard_state.term)

    patch.setattr(RaftStorage, "store", store)


def count_the_leader_before_its_disk(patch: Patch) -> None:
    real = State.quorum_value

    def quorum_value(self: State, own: int, others: dict[NodeId, int]) -> int:
        return real(self, self.log.last_index if own == self.log.persisted else own, others)

    patch.setattr(State, "quorum_value", quorum_value)


def commit_what_the_leader_says(patch: Patch) -> None:
    real = replication.handle_append

    def handle(state: State, message: Append) -> None:
        real(state, message)
        state.log.commit_to(min(message.commit, state.log.last_index))

    patch.setitem(dispatch.HANDLERS, Append, handle)


def change_many_members_at_once(patch: Patch) -> None:
    def change(state: State, membership: Membership) -> int:
        before = state.log.memberships[-1]
        state.log.memberships[-1] = (0, before[1])  # looks as if it were long committed
        count = len(state.log.memberships)
        try:
            return real(state, membership)
        finally:
            state.log.memberships[count - 1] = before

    real = replication.change_membership
    patch.setattr(replication, "change_membership", change)


def keep_a_torn_tail(patch: Patch) -> None:
    """Open without cutting off what was never confirmed: it comes between good frames."""
    patch.setattr(SimulatedFile, "truncate", lambda self, size: None)


def go_on_before_the_disk(patch: Patch) -> None:
    """Take what a thread has only begun for done."""

    def store(self: RaftDriver, ready: Ready) -> None:
        self._log_worker.run(partial(self._storage.store, ready), lambda error: None)
        self._note_stored(ready)
        self._wake()

    patch.setattr(RaftDriver, "_store", store)


def confirm_what_had_no_room(patch: Patch) -> None:
    def note_tried(self: RaftDriver, ready: Ready, error: BaseException | None) -> None:
        is_full = isinstance(error, OutOfSpace)
        self._finish(partial(self._note_stored, ready), None if is_full else error)

    patch.setattr(RaftDriver, "_note_tried", note_tried)


def call_lost_what_is_tried_again(patch: Patch) -> None:
    def refuse_unstored(self: Waiting, persisted_index: int, refusal: DiskFull) -> None:
        self.fail_all(refusal)

    patch.setattr(Waiting, "refuse_unstored", refuse_unstored)


def leave_what_was_written_in_part(patch: Patch) -> None:
    patch.setattr(RaftStorage, "_cut_back", lambda self, file: None)


def sync_again_what_failed_to_sync(patch: Patch) -> None:
    real = RaftStorage.sync

    def sync(self: RaftStorage) -> None:
        with naming_lack_of_space():
            real(self)

    patch.setattr(RaftStorage, "sync", sync)


BUGS: dict[Callable[[Patch], None], int] = {
    skip_fsync: 0,
    forget_the_term_check: 2,
    commit_an_old_terms_entry: 1,
    vote_twice: 2,
    apply_an_entry_twice: 0,
    answer_before_the_disk: 0,
    vote_for_any_log: 2,
    keep_conflicting_entries: 0,
    let_old_appends_cut: 1,
    read_without_asking: 2,
    lease_without_end: 71,
    read_before_the_first_commit: 0,
    count_half_as_a_majority: 0,
    forget_the_vote: 0,
    count_the_leader_before_its_disk: 3,
    commit_what_the_leader_says: 5,
    change_many_members_at_once: 17,
    keep_a_torn_tail: 2,
    go_on_before_the_disk: 0,
}
"""Each with a seed that noticed it when somebody last looked, to be tried first."""
FULL_DISK_BUGS: dict[Callable[[Patch], None], int] = {
    confirm_what_had_no_room: 0,
    call_lost_what_is_tried_again: 0,
    leave_what_was_written_in_part: 5,
    sync_again_what_failed_to_sync: 21,
}


@pytest.mark.parametrize("bug", [*BUGS, *FULL_DISK_BUGS], ids=lambda bug: bug.__name__)
def test_bug_is_caught(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    # Without room less happens, so other bugs are found later.
    is_cramped = bug in FULL_DISK_BUGS
    bug(monkeypatch)
    check_is_caught(bug, (BUGS | FULL_DISK_BUGS)[bug], partial(play, is_cramped=is_cramped))


@pytest.mark.parametrize(
    ("bug", "scenario", "seed"), ONCE_HERE, ids=[bug.__name__ for bug, _, _ in ONCE_HERE]
)
def test_bug_that_was_here_is_caught(
    bug: Callable[[Patch], None], scenario: type[World], seed: int, monkeypatch: Patch
) -> None:
    play(seed, scenario)
    bug(monkeypatch)
    check_is_caught(bug, seed, partial(play, scenario=scenario))


def check_is_caught(
    bug: Callable[[Patch], None], first_seed: int, play_seed: Callable[[int], World]
) -> None:
    for seed in (first_seed, *range(SEEDS_MAX)):
        try:
            play_seed(seed)
        except Violation as caught:
            print(f"{bug.__name__}: seed {seed}: {str(caught).splitlines()[0]}")
            return
    pytest.fail(f"{SEEDS_MAX} seeds, and nobody noticed")


def test_without_a_bug_nothing_is_caught() -> None:
    assert elections.handle_request_vote is dispatch.HANDLERS[RequestVote]
    play(0)
