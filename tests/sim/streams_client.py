"""An instance of a Kafka Streams application (KIP-1071), whose tasks read a partition each."""

from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.heartbeats import LEAVING_EPOCH, Sender
from headrace.groups.streams.heartbeat import heartbeat
from headrace.groups.streams.responses import HeartbeatAnswer
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.sim.groups_clients import GROUP, REBALANCE_MS, TOPIC, Client, code_of

if TYPE_CHECKING:
    from tests.sim.groups_world import World

PART: Final = "0"
"""The one subtopology."""
STATELESS: Final = Topology(0, [Subtopology(PART, source_topics=[TOPIC])])
STATEFUL: Final = Topology(
    0,
    [
        Subtopology(
            PART, source_topics=[TOPIC], state_changelog_topics=[TopicInfo(f"{GROUP}-changelog")]
        )
    ],
)


class StreamsClient(Client):
    """It says what it has with every heartbeat, and is told of what it should have."""

    def __init__(self, world: "World", name: str, *, topology: Topology) -> None:
        super().__init__(world, name)
        self.topology = topology
        self.member_id = name
        self.generation = 0
        self.target: set[int] | None = None
        """What it should read, as far as it was told."""
        self.copies: set[int] = set()
        """Of what it keeps a copy."""

    def _identity(self) -> dict[str, Any]:
        return {"member_id": self.member_id, "member_epoch": self.generation}

    async def follow(self) -> None:
        await self._beat()
        target = self.target
        if target is None:
            return
        if revoked := self.positions.keys() - target:
            await self.commit({each: self.positions[each] for each in revoked})
            for each in revoked:
                del self.positions[each]
        if await self.take(target):
            self.target = None
            await self._beat()

    async def _beat(self) -> None:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.generation
        )
        is_new = self.generation == 0
        request.active_tasks = _rows(() if is_new else self.positions)
        request.standby_tasks = _rows(() if is_new else self.copies)
        request.warmup_tasks = []
        if is_new:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.topology = self.topology
            request.process_id = self.name
        answer = await self._send(request)
        if not isinstance(answer, KafkaError):
            self._follow(answer)
            return
        code = code_of(answer)
        if code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.note(f"is fenced: {code.name}")
            self.generation = 0
            self.positions.clear()
            self.copies.clear()
        # What it was told before may not hold any more, and the answer that says so be the one that
        # was lost. Who says that it has something else than it should is told again.
        self.target = None

    def _follow(self, answer: HeartbeatAnswer) -> None:
        response = answer.response
        if self.generation != response.member_epoch:
            self.note(f"is at epoch {response.member_epoch}")
        self.enter(response.member_epoch)
        for topic in answer.to_create:
            self.world.create(topic)
        if response.active_tasks is not None:
            self.target = _partitions(response.active_tasks)
            self.copies = _partitions(response.standby_tasks)
            self.note(f"should run {sorted(self.target)} and copy {sorted(self.copies)}")
            self.world.checks.on_copied(self.name, self.target, self.copies)

    async def leave(self, *, is_static: bool) -> None:
        await self._send(
            StreamsGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=LEAVING_EPOCH
            )
        )

    async def _send(self, request: StreamsGroupHeartbeatRequest) -> Any:
        sender = Sender(self.name, "/host")
        return await self.ask(
            lambda state, now_ms, reply: heartbeat(state, request, sender, now_ms, reply)
        )


def _rows(partitions: Any) -> list[TaskIds]:
    return [TaskIds(PART, sorted(partitions))] if partitions else []


def _partitions(rows: Any) -> set[int]:
    return {index for row in rows or () for index in row.partitions}
