"""Carrying out a plan: moves in batches, under a rate limit, with progress, until all are done.

    done = await carry_out(admin, plan.moves, settings, progress)

The moves are the cluster's as soon as they have begun: they go on if this process ends, and the
next one finds them. Nothing is remembered here that the cluster does not know.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from headrace.cli.placement_facts import sizes_of
from headrace.client.admin import Admin
from headrace.client.metadata import Topic
from headrace.client.reassignments import Reassignment
from headrace.client.topics import TopicPartition
from headrace.cluster.balancing.terms import Move
from headrace.errors import ErrorCode, KafkaError

POLL_SECONDS: Final = 0.5
AT_ONCE: Final = 20
"""How many partitions are on the move at a time."""
TRIES_MAX: Final = 20
"""How often a move is started again whose partition changes meanwhile, by an election for one."""
LOOKS_MAX: Final = 10
"""How often it is looked whether a move that is over has been done."""
ELECTED_AT_ONCE: Final = 500
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
_CHANGED: Final = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.REQUEST_TIMED_OUT)
_NO_MATTER: Final = (
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Progress(Protocol):
    """Where progress is shown."""

    def show(self, *, moves: int, copied_bytes: int, moving: int) -> None:
        """Show how many moves are done, what was copied, and how many are in progress."""


class Pace(Struct, frozen=True):
    """How fast a plan is carried out."""

    at_once: int = AT_ONCE
    may_shrink: bool = False
    poll_seconds: float = POLL_SECONDS


class Done(Struct):
    """What became of the moves."""

    moves: int = 0
    copied_bytes: int = 0
    refused: dict[TopicPartition, KafkaError] = {}
    is_stopped: bool = False
    """Whether it ended early, as another plan takes over."""


async def carry_out(
    admin: Admin,
    moves: Sequence[Move],
    pace: Pace,
    progress: Progress,
    keep_going: Callable[[], bool] = lambda: True,
) -> Done:
    """Start moves, a few at a time, and return when all are over.

    It ends early once `keep_going` says so, and leaves moves in progress to whoever takes over. A
    topic that is deleted meanwhile is done.
    """
    work = _Work(admin, pace, progress)
    waiting = deque(moves)
    while (waiting or work.moving) and keep_going():
        room = pace.at_once - len(work.moving)
        if waiting and room > 0:
            some = [waiting.popleft() for _ in range(min(room, len(waiting)))]
            waiting.extend(await work.start(some))
        await work.look()
        if work.moving or waiting:
            await asyncio.sleep(pace.poll_seconds)
    work.done.is_stopped = bool(waiting or work.moving)
    return work.done


class _Work:
    """The moves in progress."""

    def __init__(self, admin: Admin, pace: Pace, progress: Progress) -> None:
        self._admin = admin
        self._pace = pace
        self._progress = progress
        self.moving: dict[TopicPartition, Move] = {}
        self.done = Done(refused={})
        self._tries: dict[TopicPartition, int] = {}
        self._looks: dict[TopicPartition, int] = {}

    async def start(self, moves: Iterable[Move]) -> list[Move]:
        """Start moves; return those whose partitions have just changed, to be started again."""
        asked = {TopicPartition(move.topic, move.partition): move for move in moves}
        outcomes = await self._admin.alter_reassignments(
            {key: move.after for key, move in asked.items()},
            may_change_replication_factor=self._pace.may_shrink,
        )
        again: list[Move] = []
        for key, move in asked.items():
            error = outcomes.get(key)
            if error is None:
                self.moving[key] = move
            elif error.code in _CHANGED and self._tries.get(key, 0) < TRIES_MAX:
                self._tries[key] = self._tries.get(key, 0) + 1
                again.append(move)
            elif error.code in _GONE:
                self.done.moves += 1
            else:
                self.done.refused[key] = error
        return again

    async def look(self) -> None:
        """Find out which moves are over, and how far the others are."""
        if not self.moving:
            return
        listed = await self._admin.list_reassignments(self.moving)
        await self._end([each for each in self.moving if each not in listed])
        underway = await self._copied(listed)
        self._progress.show(
            moves=self.done.moves,
            copied_bytes=self.done.copied_bytes + underway,
            moving=len(self.moving),
        )

    async def _end(self, keys: Sequence[TopicPartition]) -> None:
        """Count moves that are over: done where the replicas are the planned ones, else cancelled.

        The node that is asked may not have heard of the end yet, so it is asked a few times.
        """
        if not keys:
            return
        found = await self._admin.describe_topics(sorted({key.topic for key in keys}))
        for key in keys:
            topic, move = found[key.topic], self.moving[key]
            reached = _replicas(topic, key.partition)
            is_gone = isinstance(topic, KafkaError) and topic.code in _GONE
            if is_gone or reached == set(move.after):
                self.done.moves += 1
                self.done.copied_bytes += move.copied_bytes
            elif self._looks.get(key, 0) < LOOKS_MAX:
                self._looks[key] = self._looks.get(key, 0) + 1
                continue
            else:
                nodes = ", ".join(map(str, sorted(reached))) or "unknown"
                self.done.refused[key] = KafkaError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                    f"its move was cancelled: it is on nodes {nodes}",
                )
            del self.moving[key]

    async def _copied(self, listed: dict[TopicPartition, Reassignment]) -> int:
        """Return how many bytes the new replicas of moves in progress have."""
        wanted: dict[int, list[TopicPartition]] = {}
        for key, move in self.moving.items():
            if key in listed and move.size_bytes:
                for node_id in move.adding:
                    wanted.setdefault(node_id, []).append(key)
        sizes = await sizes_of(self._admin, wanted)
        return sum(
            min(size, self.moving[key].size_bytes)
            for key, of_nodes in sizes.items()
            if key in self.moving
            for node_id, size in of_nodes.items()
            if node_id in self.moving[key].adding
        )


def _replicas(topic: Topic | KafkaError, partition: int) -> set[int]:
    """Return the nodes of a partition; none if they are not known."""
    if isinstance(topic, KafkaError) or partition >= len(topic.partitions):
        return set()
    return set(topic.partitions[partition].replicas)


async def elect_preferred(admin: Admin, moves: Iterable[Move]) -> None:
    """Make the first replicas of moved partitions their leaders."""
    keys = [TopicPartition(move.topic, move.partition) for move in moves]
    for first in range(0, len(keys), ELECTED_AT_ONCE):
        outcomes = await admin.elect_leaders(keys[first : first + ELECTED_AT_ONCE])
        for error in outcomes.values():
            if error is not None and error.code not in _NO_MATTER:
                raise error


async def cancel_moves(
    admin: Admin, is_wanted: Callable[[Reassignment], bool]
) -> dict[TopicPartition, KafkaError | None]:
    """Cancel moves in progress; return the outcome of each."""
    listed = await admin.list_reassignments()
    keys = [key for key, move in listed.items() if is_wanted(move)]
    if not keys:
        return {}
    outcomes = await admin.cancel_reassignments(keys)
    return {
        key: None if error is not None and error.code in _GONE else error
        for key, error in outcomes.items()
    }


async def until(
    is_so: Callable[[], Awaitable[bool]], seconds: float, poll_seconds: float = 0.2
) -> bool:
    """Poll until something is so; return whether it is so in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await is_so():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(poll_seconds)
    return True
