"""Mistakes that a storm must bring to light: each is made on purpose, and some seed notices."""

from itertools import count, islice
from typing import Any

import pytest

from headrace.config import INT64_MAX
from headrace.coordinator.answering import Answering
from headrace.groups import migration
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.consumer import membership
from headrace.groups.consumer import offsets as consumer_offsets
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.offsets.store import Offsets
from headrace.groups.state import MemberId
from headrace.groups.streams import offsets as streams_offsets
from headrace.groups.streams import target
from headrace.groups.streams.assignor import assign
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.tasks import Tasks
from tests.sim.groups_checks import Violation
from tests.sim.groups_world import KINDS
from tests.sim.test_groups import play

SEEDS_MAX = 40
CLASSIC = ("eager", "cooperative")
CONSUMER = ("range", "uniform")
MIGRATING = ("migrating eager", "migrating cooperative")


def is_noticed(*kinds: str, first: int = 0) -> bool:
    """Whether one of the seeds of these kinds, from a `first` one that once did, is a breach."""
    seeds = (seed for seed in count(first) if KINDS[seed % len(KINDS)] in kinds)
    for seed in islice(seeds, SEEDS_MAX):
        try:
            play(seed)
        except Violation:
            return True
    return False


def test_answers_that_do_not_wait_for_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Answering) -> None:
        for reply, answer in self._uncommitted.take(INT64_MAX, INT64_MAX):
            reply(answer)

    monkeypatch.setattr(Answering, "on_progress", hasty)
    assert is_noticed(*CLASSIC)


def test_partitions_that_are_given_before_they_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConsumerGroup, "is_free", lambda self, topic_id, index, member_id: True)
    assert is_noticed(*CONSUMER, first=8)


def test_commits_of_former_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_generation", lambda self, generation: None)
    assert is_noticed(*CLASSIC, first=84)


def test_commits_of_members_that_were_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(group: ConsumerGroup, *args: object, **options: object) -> None:
        """Let everybody commit."""

    monkeypatch.setattr(consumer_offsets, "validate_offset_commit", anybody)
    assert is_noticed(*CONSUMER)


def test_owners_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerMember, "held", lambda self: iter(()))
    assert is_noticed(*CONSUMER, first=8)


def test_offsets_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Offsets.put

    def forgetful(self: Offsets, group_id: str, place: Any, offset: Any, **options: Any) -> None:
        if offset.offset % 7:
            put(self, group_id, place, offset, **options)

    monkeypatch.setattr(Offsets, "put", forgetful)
    assert is_noticed(*CLASSIC)


# Static members


def test_static_members_that_are_replaced_and_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(self: ClassicGroup, member_id: str, instance_id: str | None) -> ClassicMember:
        """Take whoever names the instance for its member."""
        owner = self.static_members.get(instance_id or "", MemberId(member_id))
        if owner not in self.members:
            raise self.unknown(member_id)
        return self.members[owner]

    monkeypatch.setattr(ClassicGroup, "find_member", lenient)
    assert is_noticed(*CLASSIC, first=63)


def test_static_consumers_that_stay_under_their_former_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "member_tombstones", lambda group_id, member_id: ())
    assert is_noticed(*CONSUMER, first=36)


# Streams groups


def test_tasks_that_are_given_before_they_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamsGroup, "releasable", lambda self, wanted, process_id: wanted)
    assert is_noticed("streams", first=226)


def test_commits_of_streams_members_that_were_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_offsets, "validate_offset_commit", lambda *args: None)
    assert is_noticed("streams", first=16)


def test_copies_beside_the_task_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(*args: Any) -> dict[MemberId, Tasks]:
        return {each: Tasks(t.active, t.active) for each, t in assign(*args).items()}

    monkeypatch.setattr(target, "assign", doubled)
    assert is_noticed("streams")


# Groups that change their kind


def test_generations_that_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(*args: Any, **options: Any) -> ClassicGroup:
        return ClassicGroup(*args, **options | {"generation": 1})

    monkeypatch.setattr(migration, "ClassicGroup", forgetful)
    assert is_noticed(*MIGRATING)
