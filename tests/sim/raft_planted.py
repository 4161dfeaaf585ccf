"""Bugs that were in the product once (but for the last), planted again."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from headrace.metadata import quorum
from headrace.metadata.image import Image
from headrace.metadata.snapshot import load_snapshot
from headrace.raft import elections, reads, replication
from headrace.raft.opening import _Opening
from headrace.raft.state import State
from headrace.raft.storage import RaftStorage, file_name
from headrace.raft.waiting import Waiting
from tests.sim.raft_scenarios import (
    Burning,
    FullDisks,
    Installs,
    LateMessages,
    Leases,
    Members,
    RealImage,
)
from tests.sim.raft_world import World

Patch = pytest.MonkeyPatch


def stand_by_the_commit_index(patch: Patch) -> None:
    """Ask the members at the commit index, which a restart takes back, who may stand."""

    def may_stand(self: State) -> bool:
        log = self.log
        return self.is_voter or (
            log.membership_index > log.commit and self.node in log.membership_at(log.commit).voters
        )

    patch.setattr(State, "may_stand", property(may_stand))


def store_a_snapshot_before_its_term(patch: Patch) -> None:
    patch.setattr(RaftStorage, "_store_hard_state", lambda self, hard_state: None)


def number_reads_from_one(patch: Patch) -> None:
    real = Waiting.__init__

    def init(self: Waiting, node: object, read_origin: int) -> None:
        real(self, node, 0)  # type: ignore[arg-type]

    patch.setattr(Waiting, "__init__", init)


def change_voters_unasked(patch: Patch) -> None:
    """Take a change of voters that they cannot commit."""
    patch.setattr(replication, "_check_majority_answers", lambda state, membership: None)


def stop_at_a_late_roll(patch: Patch) -> None:
    """Take a leftover that cannot be removed for want of room for the end."""
    real = RaftStorage._roll

    def roll(self: RaftStorage) -> None:
        if self._is_roll_late:
            with suppress(FileNotFoundError):
                self._disk.remove(self._path(file_name(self._number + 1)))
        real(self)

    patch.setattr(RaftStorage, "_roll", roll)


def believe_a_file_that_was_never_begun(patch: Patch) -> None:
    """Take a torn write for damage, as a file follows in which there is nothing."""
    real = _Opening._read_file

    def read_file(self: _Opening, name: str, *, is_last: bool) -> None:
        real(self, name, is_last=is_last and not self._empty)

    patch.setattr(_Opening, "_read_file", read_file)


def trust_a_lease_to_the_leaders_settings(patch: Patch) -> None:
    def lengthen(state: State, confirmed: int, began_ms: int) -> None:
        state.lease_until_ms = began_ms + state.settings.lease_ms

    patch.setattr(reads, "_lengthen_lease", lengthen)


def forget_a_promise(patch: Patch) -> None:
    """Start as if nothing had been promised to a leader."""
    real = State.__init__

    def init(self: State, *args: object, **kwargs: object) -> None:
        real(self, *args, **kwargs)  # type: ignore[arg-type]
        self.hold_until_ms = self.now_ms

    patch.setattr(State, "__init__", init)


def stand_while_held(patch: Patch) -> None:
    """Keep a promise to a leader when others ask for a vote, but not for oneself."""
    real = elections.start_pre_vote

    def start(state: State) -> None:
        held, state.hold_until_ms = state.hold_until_ms, state.now_ms
        real(state)
        state.hold_until_ms = held

    patch.setattr(elections, "start_pre_vote", start)


def lose_configs_in_a_snapshot(patch: Patch) -> None:
    def load(data: bytes) -> Image:
        state = load_snapshot(data).state
        state.configs = {}
        return Image(state)

    patch.setattr(quorum, "load_snapshot", load)


ONCE_HERE: list[tuple[Callable[[Patch], None], type[World], int]] = [
    (stand_by_the_commit_index, Members, 42),
    (store_a_snapshot_before_its_term, Installs, 12),
    (number_reads_from_one, LateMessages, 1),
    (change_voters_unasked, Burning, 10),
    (stop_at_a_late_roll, FullDisks, 1),
    (believe_a_file_that_was_never_begun, FullDisks, 102),
    (trust_a_lease_to_the_leaders_settings, Leases, 3),
    (forget_a_promise, Leases, 16),
    (stand_while_held, Leases, 52),
    (lose_configs_in_a_snapshot, RealImage, 1),
]
"""Each with the scenario that notices it, and a seed at which that was so."""
