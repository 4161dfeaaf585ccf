"""Consumers as they should be, in few lines: what the three kinds of clients share.

A consumer is one task: it reads a little, commits, sends a heartbeat and follows what it is told.
It begins where the group has committed, gives up partitions only after it has committed what it
read of them, and does not notice that it stalls. One with an instance id (KIP-345) goes away for a
while rather than leave, and ends for good when another process has its instance.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.kinds import Committer
from headrace.groups.offsets.commits import Commit, TopicOffsets, commit_offsets
from headrace.groups.offsets.fetches import OffsetQuery, fetch_offsets
from headrace.groups.state import GroupsState
from headrace.wire.messages.offset_commit_request import OffsetCommitRequestPartition

if TYPE_CHECKING:
    from tests.sim.groups_world import World

GROUP: Final = "g"
TOPIC: Final = "t"
TOPIC_ID: Final = b"t" * 16
SESSION_MS: Final = 6000
REBALANCE_MS: Final = 10_000
BEAT_SECONDS: Final = 3.0
TIMEOUT_SECONDS: Final = 1.0
JOIN_TIMEOUT_SECONDS: Final = REBALANCE_MS / 1000 + 5
AWAY: Final = 0.7
"""How often a static member that goes means to come back."""
AT_ONCE_MAX: Final = 200
"""How many records of a partition are read between two heartbeats."""

Answer = Any
"""A response, or the KafkaError that stands for one."""


class Client(ABC):
    """What all kinds have: a life, positions, and commits."""

    def __init__(self, world: "World", name: str, instance_id: str | None = None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        """Or the member epoch."""
        self.era = 0
        """Of the group that the generation is of; see `World.send`."""
        self._answer_era = 0
        self.positions: dict[int, int] = {}
        """By partition that it reads: what comes next."""
        self._committed: dict[int, int] = {}
        """What it knows to be committed, of what it reads."""
        self.wants_to_leave = False
        self.is_fenced = False
        """Whether another process has its instance id."""
        self.stall_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self.world.loop.create_task(self._run())
        self._task.add_done_callback(self._on_end)

    def die(self) -> None:
        """Be gone, and tell nobody."""
        if self._task is not None:
            self._task.cancel()

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.world.fail(task.exception())

    async def _run(self) -> None:
        while not self.wants_to_leave and not self.is_fenced:
            await self.follow()
            await self._stall()
            self._read()
            await self.commit(self.positions)
            await asyncio.sleep(BEAT_SECONDS)
        if not self.is_fenced:
            await self.commit(self.positions)
            # A static member that goes away for a while is expected back.
            is_static = self.instance_id is not None and self.world.random.random() < AWAY
            self.note("goes away" if is_static else "leaves")
            await self.leave(is_static=is_static)
        if self in self.world.clients:
            self.world.clients.remove(self)

    def end_fenced(self) -> None:
        """Stop where it is: another process has its instance id."""
        self.note("is fenced for good")
        self.world.checks.fenced += 1
        self.is_fenced = True
        self.positions.clear()

    @property
    def owner(self) -> str:
        """Who partitions are granted to: processes of one instance follow each other."""
        return self.instance_id or self.name

    async def _stall(self) -> None:
        seconds, self.stall_seconds = self.stall_seconds, 0.0
        if seconds and not self.world.is_calm:
            self.note(f"stalls for {seconds}")
            await asyncio.sleep(seconds)

    @abstractmethod
    async def follow(self) -> None:
        """Do what the protocol wants of a member by now."""

    @abstractmethod
    async def leave(self, *, is_static: bool) -> None:
        """Say that it goes, for a while if it `is_static`."""

    # Reading

    def _read(self) -> None:
        world = self.world
        self.own(self.positions)
        for partition, position in self.positions.items():
            end = min(world.ends[partition], position + AT_ONCE_MAX)
            if end > position:
                world.checks.on_read(partition, position, end)
                self.positions[partition] = end

    def enter(self, generation: int) -> None:
        """Be of the generation that the last answer was about."""
        self.era, self.generation = self._answer_era, generation

    def check_is_latest(self, member_id: str) -> None:
        """Check that one that commits is what its instance id belongs to, if that can be known."""
        del member_id

    def own(self, partitions: Iterable[int]) -> None:
        self.world.checks.on_owned(self.owner, (self.era, self.generation), partitions)

    async def take(self, partitions: Iterable[int]) -> bool:
        """Begin to read partitions where the group has committed; whether that worked."""
        new = sorted(set(partitions) - self.positions.keys())
        if not new:
            return True
        query = OffsetQuery(GROUP, [(TOPIC, new)], **self._identity())

        def ask(state: GroupsState, now_ms: int, reply: Reply[Any]) -> Outcome:
            return fetch_offsets(state, query, self._watched(reply, self._on_fetched))

        answer = await self.ask(ask)
        if isinstance(answer, KafkaError):
            return False
        for _, rows in answer:
            for row in rows:
                self.positions[row.partition] = row.committed.offset if row.committed else 0
                self._committed[row.partition] = self.positions[row.partition]
        return True

    def _identity(self) -> dict[str, Any]:
        """Say who asks for offsets: nobody is asked of a classic group."""
        return {}

    def _on_fetched(self, answer: Answer) -> None:
        for _, rows in answer:
            for row in rows:
                if row.committed is not None:
                    self.world.checks.on_fetched(row.partition, row.committed.offset)

    async def commit(self, positions: dict[int, int]) -> None:
        """Commit how far it has read; a refusal is left for the next heartbeat to explain."""
        known = self._committed
        committed = {each: at for each, at in positions.items() if known.get(each) != at}
        if not committed:
            return
        rows = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=offset)
            for each, offset in committed.items()
        ]
        committer = Committer(self.member_id, self.instance_id, self.generation, version=9)
        commit = Commit(GROUP, [TopicOffsets(TOPIC, TOPIC_ID, rows)], committer)

        member_id = self.member_id

        def on_committed(_: Answer) -> None:
            self.check_is_latest(member_id)
            for partition, offset in committed.items():
                self.world.checks.on_committed(partition, offset)

        def ask(state: GroupsState, now_ms: int, reply: Reply[Any]) -> Outcome:
            return commit_offsets(state, commit, now_ms, self._watched(reply, on_committed))

        if isinstance(await self.ask(ask), KafkaError):
            self.world.checks.refusals += 1
        else:
            known.update(committed)

    # Requests

    def _watched(self, reply: Reply[Any], watch: Callable[[Answer], None]) -> Reply[Any]:
        """Have an answer looked at when it leaves the coordinator."""

        def watched(answer: Answer) -> None:
            if not isinstance(answer, KafkaError):
                watch(answer)
            reply(answer)

        return watched

    async def ask(
        self,
        operation: Callable[[GroupsState, int, Reply[Any]], Outcome],
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Answer:
        """Ask the coordinator; the answer may be that nothing was heard."""
        answer: asyncio.Future[Answer] = self.world.loop.create_future()

        def answered(what: Answer, era: int) -> None:
            if not answer.done():
                self._answer_era = era
                answer.set_result(what)

        self.world.send(operation, answered, timeout_seconds)
        return await answer

    def note(self, what: str) -> None:
        self.world.note(f"{self.name} {what}")


def code_of(answer: Answer) -> ErrorCode:
    return answer.code if isinstance(answer, KafkaError) else ErrorCode(answer.error_code)
