"""Plans carried out against a cluster that says what the test wants."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from headrace.cli.carrying_out import Done, Pace, carry_out
from headrace.client.admin import Admin
from headrace.client.metadata import Partition, Topic
from headrace.client.reassignments import Reassignment
from headrace.client.topics import TopicPartition
from headrace.cluster.balancing.terms import Move
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID


class Cluster:
    """Takes moves, refuses some a few times, and ends each at the second look."""

    def __init__(self, refusals: Mapping[int, list[ErrorCode]] | None = None) -> None:
        self.refusals = {key: list(codes) for key, codes in (refusals or {}).items()}
        self.moving: dict[TopicPartition, int] = {}
        self.most = 0
        self.cancelled: set[int] = set()
        self.stale_looks = 3
        """How often the replicas are described as they were, after moves have ended."""

    async def alter_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int]], **_: Any
    ) -> dict[TopicPartition, KafkaError | None]:
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for key in replicas:
            codes = self.refusals.get(key.partition)
            outcomes[key] = KafkaError(codes.pop(0), "no") if codes else None
            if outcomes[key] is None:
                self.moving[key] = 1
        self.most = max(self.most, len(self.moving))
        return outcomes

    async def list_reassignments(self, _: object) -> dict[TopicPartition, Reassignment]:
        listed = {
            key: Reassignment((1, 2), (2,), (1,)) for key, left in self.moving.items() if left
        }
        self.moving = {key: left - 1 for key, left in self.moving.items() if left}
        return listed

    async def describe_topics(self, names: Sequence[str]) -> dict[str, Topic]:
        is_stale = self.stale_looks > 0
        self.stale_looks -= 1
        rows = tuple(
            Partition(each, 1, 0, (1,) if is_stale or each in self.cancelled else (2,), ())
            for each in range(100)
        )
        return {name: Topic(name, ZERO_TOPIC_ID, False, rows) for name in names}


class Silence:
    def show(self, **_: int) -> None:
        pass


def run(cluster: Cluster, count: int, at_once: int = 2, looks: int = 1000) -> Done:
    left = [looks]

    def keep_going() -> bool:
        left[0] -= 1
        return left[0] >= 0

    moves = [Move("orders", each, (1,), (2,), 0, "") for each in range(count)]
    pace = Pace(at_once, poll_seconds=0)
    work = carry_out(cast(Admin, cluster), moves, pace, Silence(), keep_going)
    return asyncio.run(work)


def test_no_more_than_so_many_move_at_a_time_and_all_do() -> None:
    cluster = Cluster()
    assert run(cluster, 7).moves == 7
    assert cluster.most == 2


def test_a_partition_that_an_election_changes_is_tried_again_and_others_are_refused() -> None:
    """A node that is to leave hands over while its first replicas begin to move."""
    changed = [ErrorCode.INVALID_UPDATE_VERSION] * 3
    done = run(Cluster({0: changed, 1: [ErrorCode.INVALID_REPLICA_ASSIGNMENT]}), 3)
    assert done.moves == 2
    assert [key.partition for key in done.refused] == [1]
    always = run(Cluster({0: [ErrorCode.INVALID_UPDATE_VERSION] * 99}), 1)
    assert list(always.refused) == [TopicPartition("orders", 0)]


def test_a_move_that_was_cancelled_is_not_done() -> None:
    cluster = Cluster()
    cluster.cancelled = {1}
    done = run(cluster, 3)
    assert done.moves == 2
    assert "was cancelled" in done.refused[TopicPartition("orders", 1)].message


def test_a_topic_that_is_deleted_is_done() -> None:
    assert run(Cluster({0: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}), 1).moves == 1


def test_a_plan_that_is_taken_over_from_starts_nothing_more() -> None:
    done = run(Cluster(), 50, looks=2)
    assert done.is_stopped
    assert done.moves < 5
