"""Mistakes that a storm must bring to light: each is made on purpose, and some seed notices."""

from itertools import count, islice
from typing import Any

import pytest

from headrace.coordinator.shard import Shard
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.consumer import offsets as consumer_offsets
from headrace.groups.consumer.group import ConsumerGroup, ConsumerMember
from headrace.groups.offsets.store import Offsets
from tests.sim.groups_checks import Violation
from tests.sim.test_groups import play

SEEDS_MAX = 20
CLASSIC = (0, 1)
"""What is left of the seeds whose groups are so, divided by four: see `World.kind`."""
CONSUMER = (2, 3)


def is_noticed(remainders: tuple[int, ...]) -> bool:
    """Whether one of the first seeds of these kinds ends in a breach."""
    seeds = (seed for seed in count() if seed % 4 in remainders)
    for seed in islice(seeds, SEEDS_MAX):
        try:
            play(seed)
        except Violation:
            return True
    return False


def test_answers_that_do_not_wait_for_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Shard[Any]) -> None:
        while self._uncommitted:
            for reply, answer in self._uncommitted.popleft().replies:
                reply(answer)

    monkeypatch.setattr(Shard, "on_progress", hasty)
    assert is_noticed(CLASSIC + CONSUMER)


def test_partitions_that_are_given_before_they_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConsumerGroup, "is_free", lambda self, topic_id, index, member_id: True)
    assert is_noticed(CONSUMER)


def test_commits_of_former_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_generation", lambda self, generation: None)
    assert is_noticed(CLASSIC)


def test_commits_of_members_that_were_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(group: ConsumerGroup, *args: object, **options: object) -> None:
        """Let everybody commit."""

    monkeypatch.setattr(consumer_offsets, "validate_offset_commit", anybody)
    assert is_noticed(CONSUMER)


def test_owners_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerMember, "held", lambda self: iter(()))
    assert is_noticed(CONSUMER)


def test_offsets_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Offsets.put

    def forgetful(self: Offsets, group_id: str, place: Any, offset: Any, **options: Any) -> None:
        if offset.offset % 7:
            put(self, group_id, place, offset, **options)

    monkeypatch.setattr(Offsets, "put", forgetful)
    assert is_noticed(CLASSIC)
