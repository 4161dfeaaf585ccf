"""A consumer of the classic protocol, eager or cooperative, with its part as a leader."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import ErrorCode
from headrace.groups.classic.embedded_protocol import read_subscription
from headrace.groups.classic.heartbeat import heartbeat as classic_heartbeat
from headrace.groups.classic.join import Joiner, join
from headrace.groups.classic.leave import leave
from headrace.groups.classic.sync import sync
from headrace.groups.state import GroupsState
from headrace.wire import encode
from headrace.wire.messages import consumer_protocol_subscription as subscription
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.groups_clients import (
    GROUP,
    JOIN_TIMEOUT_SECONDS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Client,
    code_of,
)
from tests.unit.groups.mixed_world import assigned, read_assigned

if TYPE_CHECKING:
    from tests.sim.groups_world import World

VERSION_WITH_GENERATION: Final = 2
"""Of what a consumer says to the leader: it has the generation of what it owns."""


class ClassicClient(Client):
    """A consumer of the classic protocol; a cooperative one keeps reading what stays its own."""

    def __init__(
        self,
        world: "World",
        name: str,
        instance_id: str | None = None,
        *,
        is_cooperative: bool,
    ) -> None:
        super().__init__(world, name, instance_id)
        self.is_cooperative = is_cooperative
        self.has_joined = False
        self.assigned: set[int] = set()
        self._heard_at = 0.0

    async def follow(self) -> None:
        if self.has_joined:
            request = HeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                generation_id=self.generation,
            )
            answer = await self.ask(
                lambda state, now_ms, reply: classic_heartbeat(state, request, now_ms, reply)
            )
            await self._on_code(code_of(answer))
        while not (self.has_joined or self.wants_to_leave or self.is_fenced):
            await self._stall()
            if not await self._join():
                await asyncio.sleep(0.2)
        await self.take(self.assigned)

    async def _on_code(self, code: ErrorCode) -> None:
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_at = self.world.loop.time()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.has_joined = False
            if not self.is_cooperative:
                await self._give_up(set(self.positions))
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.has_joined, self.generation = False, -1
            self.positions.clear()
            self.assigned = set()
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.assigned = set()
            self.end_fenced()

    async def _give_up(self, partitions: set[int]) -> None:
        await self.commit({each: self.positions[each] for each in partitions})
        for each in partitions:
            self.positions.pop(each, None)
        self.assigned -= partitions

    async def _join(self) -> bool:
        """Join and get an assignment; whether there is no need to do so again."""
        if not self.is_cooperative or self._was_gone():
            self.positions.clear()
        answer = await self.ask(self._join_request(), JOIN_TIMEOUT_SECONDS)
        code = code_of(answer)
        if code is not ErrorCode.NONE:
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                await self._on_code(code)
            return code is ErrorCode.MEMBER_ID_REQUIRED
        self.member_id = answer.member_id
        return await self._sync(answer)

    def _was_gone(self) -> bool:
        """Whether it must take what it reads for lost.

        A consumer group takes a classic member back under any id (Kafka's does, too). So only the
        client itself can know that others had its partitions meanwhile, and must not commit them.
        """
        silent_seconds = self.world.loop.time() - self._heard_at
        return self.world.is_migrating and silent_seconds > SESSION_MS / 1000

    def enter(self, generation: int) -> None:
        super().enter(generation)
        if self.instance_id is not None:
            self.world.checks.on_entered(self.instance_id, _number(self.member_id))

    def check_is_latest(self, member_id: str) -> None:
        if self.instance_id is not None:
            self.world.checks.check_is_latest(self.instance_id, _number(member_id))

    def _join_request(self) -> Callable[[GroupsState, int, Reply[Any]], Outcome]:
        owned = sorted(self.positions) if self.is_cooperative else []
        said = ConsumerProtocolSubscription(
            topics=[TOPIC],
            owned_partitions=[subscription.TopicPartition(topic=TOPIC, partitions=owned)],
            generation_id=self.generation,
        )
        version = VERSION_WITH_GENERATION
        metadata = version.to_bytes(2, "big") + encode(said, version)
        protocol = "cooperative" if self.is_cooperative else "range"
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )
        joiner = Joiner(self.name, "/host")
        return lambda state, now_ms, reply: join(state, request, joiner, now_ms, reply)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        generation = joined.generation_id
        assignments: dict[str, list[int]] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = self._assign(joined)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assigned({TOPIC: partitions}))
                for each, partitions in assignments.items()
            ],
        )
        answer = await self.ask(
            lambda state, now_ms, reply: sync(state, request, now_ms, reply), JOIN_TIMEOUT_SECONDS
        )
        if (code := code_of(answer)) is not ErrorCode.NONE:
            await self._on_code(code)
            return False
        self.has_joined = True
        self._heard_at = self.world.loop.time()
        self.enter(generation)
        self.assigned = _read(bytes(answer.assignment))
        self.note(f"has {sorted(self.assigned)} in {generation}")
        self.own(self.assigned)
        if revoked := self.positions.keys() - self.assigned:
            await self._give_up(revoked)
            self.has_joined = False  # so that somebody else gets them
        return True

    def _assign(self, joined: JoinGroupResponse) -> dict[str, list[int]]:
        """Give every partition to a member, if nobody else would have to give it up first."""
        members = sorted(each.member_id for each in joined.members)
        count = len(self.world.ends)
        if not self.is_cooperative:
            return {
                each: list(range(count * i // len(members), count * (i + 1) // len(members)))
                for i, each in enumerate(members)
            }
        owners = _owners(joined)
        given: dict[str, list[int]] = {each: [] for each in members}
        most, free = -(-count // len(members)), []
        for partition in range(count):
            owner = owners.get(partition)
            if owner is not None and len(given[owner]) < most:
                given[owner].append(partition)
            elif owner is None:
                free.append(partition)
        # What is taken from somebody has no owner in this generation.
        for partition in free:
            given[min(given, key=lambda each: (len(given[each]), each))].append(partition)
        return given

    async def leave(self, *, is_static: bool) -> None:
        if is_static:
            return  # it says nothing, and has as long as its session lasts
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[member])
        await self.ask(lambda state, now_ms, reply: leave(state, request, now_ms, reply))


def _number(member_id: str) -> int:
    """Give the number that is in an id which the coordinator chose: later ones have higher ones."""
    return int(member_id.rpartition("-")[2])


def _read(assignment: bytes) -> set[int]:
    """Give the partitions of an assignment; nothing is none."""
    return set(read_assigned(assignment).get(TOPIC, ())) if assignment else set()


def _owners(joined: JoinGroupResponse) -> dict[int, str]:
    """Say who has which partition: the latest generation is right where two say so."""
    claims: dict[int, tuple[int, str]] = {}
    for each in joined.members:
        said = read_subscription(bytes(each.metadata))
        assert said is not None
        for row in said.owned_partitions:
            for partition in row.partitions:
                claim = said.generation_id, each.member_id
                claims[partition] = max(claim, claims.get(partition, claim))
    return {partition: member_id for partition, (_, member_id) in claims.items()}
