"""A consumer of KIP-848."""

from typing import TYPE_CHECKING, Any, Final

from headrace.errors import ErrorCode
from headrace.groups.consumer.heartbeat import heartbeat
from headrace.groups.heartbeats import LEAVING_EPOCH, STATIC_LEAVING_EPOCH, Sender
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tests.sim.groups_clients import GROUP, REBALANCE_MS, TOPIC, TOPIC_ID, Client, code_of

if TYPE_CHECKING:
    from tests.sim.groups_world import World


REFUSALS_MAX: Final = 5
"""More than the session of one that died lasts."""


class ConsumerClient(Client):
    """A consumer of KIP-848: it is told what to read, and says when it has given up the rest."""

    def __init__(
        self, world: "World", name: str, instance_id: str | None = None, *, assignor: str
    ) -> None:
        super().__init__(world, name, instance_id)
        self.assignor = assignor
        self.member_id = name
        self.generation = 0
        self.target: set[int] | None = None
        """What it should read, as far as it was told."""
        self._is_full = True
        """Whether the next heartbeat says everything."""
        self._refusals = 0
        """How often in a row another was said to have its instance id."""

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
            self._is_full = True  # it has reached what it was told, and says so
            await self._beat()

    async def _beat(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=self.generation,
        )
        if self._is_full or self.generation == 0:
            owned = sorted(self.positions)
            rows = [TopicPartitions(topic_id=TOPIC_ID, partitions=owned)] if owned else []
            request.topic_partitions = rows
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [TOPIC]
            request.server_assignor = self.assignor
        sender = Sender(self.name, "/host", version=1)
        answer = await self.ask(
            lambda state, now_ms, reply: heartbeat(state, request, sender, now_ms, reply)
        )
        code = code_of(answer)
        self._refusals = self._refusals + 1 if code is ErrorCode.UNRELEASED_INSTANCE_ID else 0
        if code is ErrorCode.NONE:
            self._is_full = False
            if self.generation != answer.member_epoch:
                self.note(f"is at epoch {answer.member_epoch}")
            self.enter(answer.member_epoch)
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                self.target = {index for row in rows for index in row.partitions}
                self.note(f"should have {sorted(self.target)}")
        elif code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.note(f"is fenced: {code.name}")
            self.generation, self.target = 0, None
            self.positions.clear()
        elif code is ErrorCode.FENCED_INSTANCE_ID or (
            self._refusals > REFUSALS_MAX and not self.world.is_calm
        ):
            self.target = None
            self.end_fenced()
        else:
            self._is_full = True  # it does not know what the coordinator has heard of it

    async def leave(self, *, is_static: bool) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=STATIC_LEAVING_EPOCH if is_static else LEAVING_EPOCH,
        )
        sender = Sender(self.name, "/host", version=1)
        await self.ask(
            lambda state, now_ms, reply: heartbeat(state, request, sender, now_ms, reply)
        )
