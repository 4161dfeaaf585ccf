"""A member of a classic consumer group: what it sends, and what responses mean to it.

Pure. A generation begins when all members have joined: the leader among them distributes the
partitions (`assignors`), and every member gets its part in the response to SyncGroup. A member that
learns from a heartbeat that the group rebalances rejoins.

If all assignors are cooperative, a member keeps its partitions while it rejoins, and revokes only
what the new generation takes from it. Otherwise it revokes everything first.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final

from headrace.client.errors import refusal
from headrace.client.group.assignors import COOPERATIVE_STICKY, MemberSubscription
from headrace.client.group.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headrace.client.share.member import Next
from headrace.client.topics import TopicPartition
from headrace.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.messages.sync_group_response import SyncGroupResponse

NO_GENERATION: Final = -1
_NAMES_MEMBERS_FROM: Final = 3


class Stage(Enum):
    """How far a member is in the current generation."""

    OUTSIDE = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


class ClassicMember:
    """What this member knows of its place in the group."""

    def __init__(
        self,
        group_id: str,
        *,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        assignors: Sequence[str],
    ) -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.stage = Stage.OUTSIDE
        self.assignor = ""
        """What the group chose."""
        self.needs_join = False
        """Whether we have to rejoin."""
        self.is_lost = False
        """Whether we were removed from the group, so that other members may own our partitions."""
        self.topics: frozenset[str] = frozenset()
        self.owned: frozenset[TopicPartition] = frozenset()
        self.members: dict[str, MemberSubscription] = {}
        """The members of the generation; only the leader knows them."""
        self.leads_without_assigning = False
        """Whether the group keeps its current assignment although we are the leader."""
        self._rack = rack
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignors = tuple(assignors)

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept while we rejoin."""
        return all(name == COOPERATIVE_STICKY for name in self._assignors)

    @property
    def is_leader(self) -> bool:
        return bool(self.members)

    # What the user and the shell decide

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics; the group learns of it when we join."""
        topics = frozenset(topics)
        if topics != self.topics or self.stage is Stage.OUTSIDE:
            self.topics = topics
            self.rejoin()

    def rejoin(self) -> None:
        """Join again: something changed that the others have to know."""
        self.needs_join = True
        if self.stage is Stage.OUTSIDE:
            self.stage = Stage.JOINING

    def own(self, owned: Iterable[TopicPartition]) -> None:
        """Set the owned partitions."""
        self.owned = frozenset(owned)

    def lose(self, *, keeps_id: bool = False) -> None:
        """Be out of the group; we join again when we gave up what we have."""
        self.generation = NO_GENERATION
        self.members = {}
        if not keeps_id:
            self.member_id = ""
        self.is_lost = bool(self.owned)
        self.stage = Stage.JOINING
        self.needs_join = True

    def give_up(self) -> None:
        """Drop all owned partitions."""
        self.owned = frozenset()
        self.is_lost = False

    def leave(self) -> None:
        """Be outside."""
        self.give_up()
        self.generation, self.member_id = NO_GENERATION, ""
        self.members = {}
        self.needs_join = False
        self.topics = frozenset()
        self.stage = Stage.OUTSIDE

    # What is sent

    def join(self, reason: str = "") -> JoinGroupRequest:
        """Return the request that enters the next generation."""
        self.stage = Stage.JOINING
        self.needs_join = False
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=write_subscription(
                        self.topics,
                        self.owned,
                        self.generation,
                        self._rack,
                        is_sticky=name == COOPERATIVE_STICKY,
                    ),
                )
                for name in self._assignors
            ],
            reason=reason or None,
        )

    def sync(self, assigned: Mapping[str, Iterable[TopicPartition]]) -> SyncGroupRequest:
        """Return the request for our assignment; the leader includes everyone's."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=write_assignment(partitions)
                )
                for member_id, partitions in assigned.items()
            ],
        )

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def leaving(self, version: int, reason: str) -> LeaveGroupRequest | None:
        """Return what to send at the end; a static member says nothing, it may come back."""
        if self.instance_id is not None or not self.member_id:
            return None
        body = LeaveGroupRequest(group_id=self.group_id)
        if version >= _NAMES_MEMBERS_FROM:
            body.members = [MemberIdentity(member_id=self.member_id, reason=reason)]
        else:
            body.member_id = self.member_id
        return body

    # What responses mean

    def take_join(self, answer: JoinGroupResponse) -> Next | None:
        """Apply a response; return None if we joined, else when to rejoin."""
        code = answer.error_code
        if code == ErrorCode.NONE:
            self._enter(answer)
            return None
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return Next.AT_ONCE
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Next.AFTER_PAUSE
        return self._take_refusal(code, Next.AT_ONCE)

    def take_sync(self, answer: SyncGroupResponse) -> frozenset[TopicPartition] | Next:
        """Return what we are to have, or when to join again."""
        code = answer.error_code
        if code == ErrorCode.NONE:
            self.stage = Stage.STABLE
            return read_assignment(answer.assignment)
        return self._take_refusal(code, Next.AT_ONCE)

    def take_heartbeat(self, sent: HeartbeatRequest, answer: HeartbeatResponse) -> Next:
        """Apply a heartbeat response to the generation that it was sent for."""
        code = answer.error_code
        if sent.generation_id != self.generation or sent.member_id != self.member_id:
            return Next.AFTER_INTERVAL  # we joined another one meanwhile
        if code == ErrorCode.NONE:
            return Next.AFTER_INTERVAL
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_join = True
            return Next.AFTER_INTERVAL
        return self._take_refusal(code, Next.AFTER_INTERVAL)

    def _enter(self, answer: JoinGroupResponse) -> None:
        self.stage = Stage.SYNCING
        self.generation = answer.generation_id
        self.member_id = answer.member_id
        self.assignor = answer.protocol_name or ""
        self.leads_without_assigning = answer.skip_assignment
        self.members = {}
        if answer.leader == answer.member_id:
            self.members = {
                row.member_id: read_subscription(row.metadata, row.group_instance_id)
                for row in answer.members
            }

    def _take_refusal(self, code: int, after_loss: Next) -> Next:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.lose()
            return after_loss
        if code == ErrorCode.ILLEGAL_GENERATION:
            self.lose(keeps_id=True)
            return after_loss
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Next.AT_ONCE
        if code in COORDINATOR_MOVED:
            return Next.AFTER_FINDING
        error = refusal(code, None, f"group {self.group_id!r}")
        if error.is_retriable:
            return Next.AFTER_PAUSE
        raise self._explained(error)

    def _explained(self, error: KafkaError) -> KafkaError:
        code = error.code
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            names = ", ".join(self._assignors)
            way_out = (
                f"its members are of another type, or share no assignor with us ({names}); "
                "take another group, or assignors that they have"
            )
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            way_out = f"another member took over instance_id {self.instance_id!r}"
        elif code == ErrorCode.INVALID_SESSION_TIMEOUT:
            way_out = (
                f"a session of {self._session_timeout_ms} ms is outside of the broker's "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        else:
            return error
        return KafkaError(code, f"{error.message}; {way_out}")
