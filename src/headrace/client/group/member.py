"""A member of a KIP-848 consumer group: what it sends, and what responses mean to it.

Pure. The id is the member's own choice, made once. Epoch 0 joins, -1 leaves, -2 leaves for a while
and keeps the partitions of a static member. The coordinator says which partitions to have; the
member gives up what is not among them, takes what is new, and then says what it has.

    OUTSIDE --join--> JOINING --accepted--> MEMBER --fenced--> LOST --gave up--> JOINING
                                                 `--left--> OUTSIDE
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from headrace.client.errors import refusal
from headrace.client.group.subscription import Subscription
from headrace.client.share.member import Next
from headrace.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2

_PUT_OUT: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Standing(Enum):
    """The membership states."""

    OUTSIDE = auto()
    JOINING = auto()
    MEMBER = auto()
    LOST = auto()
    """We were removed from the group, and others may own our partitions. We rejoin once we dropped
    them."""


class TopicIdPartition(NamedTuple):
    """A partition as a coordinator names it."""

    topic_id: TopicId
    partition: int


class _Told(msgspec.Struct, frozen=True):
    """What the coordinator has heard from us."""

    subscription: Subscription
    owned: frozenset[TopicIdPartition]


class ConsumerMember:
    """What this member knows of its place in the group."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        instance_id: str | None = None,
        rack: str | None = None,
        rebalance_timeout_ms: int,
        assignor: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.standing = Standing.OUTSIDE
        self.epoch = JOINING_EPOCH
        self.interval_ms = 0
        """The heartbeat interval."""
        self.subscription = Subscription()
        self.target: frozenset[TopicIdPartition] | None = None
        """What we are to have; None before the coordinator said so."""
        self.owned: frozenset[TopicIdPartition] = frozenset()
        """What we have."""
        self._rack = rack
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignor = assignor
        self._told: _Told | None = None
        self._in_flight: _Told | None = None

    @property
    def is_due(self) -> bool:
        """Whether a heartbeat is due before the interval is over."""
        if self.standing is Standing.JOINING:
            return True
        return self.standing is Standing.MEMBER and self._told != self._telling()

    @property
    def is_unsettled(self) -> bool:
        """Whether owned partitions differ from the target."""
        if self.standing is Standing.LOST:
            return True
        return (
            self.standing is Standing.MEMBER
            and self.target is not None
            and self.target != self.owned
        )

    # What the user and the shell decide

    def subscribe(self, subscription: Subscription) -> None:
        """Want other topics; joins if we are outside."""
        self.subscription = subscription
        if self.standing is Standing.OUTSIDE:
            self._start_over()

    def own(self, owned: Iterable[TopicIdPartition]) -> None:
        """Set the owned partitions."""
        self.owned = frozenset(owned)

    def lose(self) -> None:
        """Be out of the group; we join again when we gave up what we have."""
        self.epoch = JOINING_EPOCH
        self.target = self._told = None
        self.standing = Standing.LOST if self.owned else Standing.JOINING

    def step_out(self) -> None:
        """Be out of the group until `give_up`, even with nothing to give up."""
        self.lose()
        self.standing = Standing.LOST

    def give_up(self) -> None:
        """Drop all partitions, and rejoin."""
        self.owned = frozenset()
        self._start_over()

    def leave(self) -> None:
        """Be outside."""
        self.owned = frozenset()
        self.epoch = JOINING_EPOCH
        self.target = self._told = None
        self.standing = Standing.OUTSIDE

    def _start_over(self) -> None:
        self.epoch = JOINING_EPOCH
        self.target = self._told = None
        self.standing = Standing.JOINING

    # What is sent

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, without fields that the coordinator already knows."""
        assert self.standing in (Standing.JOINING, Standing.MEMBER), self.standing
        is_joining = self.standing is Standing.JOINING
        told, telling = self._told, self._telling()
        body = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        if told is None:
            body.rack_id = self._rack
            body.rebalance_timeout_ms = self._rebalance_timeout_ms
            body.server_assignor = self._assignor
        if told is None or told.subscription != self.subscription:
            body.subscribed_topic_names = list(self.subscription.topics)
            body.subscribed_topic_regex = self.subscription.pattern
            if told is not None and self.subscription.pattern is None:
                body.subscribed_topic_regex = ""  # null would leave the old one
        if is_joining:
            body.topic_partitions = []
        elif told is None or told.owned != self.owned:
            body.topic_partitions = _rows(self.owned)
        self._in_flight = telling
        return body

    def leaving(self) -> ConsumerGroupHeartbeatRequest:
        """Return what to send at the end."""
        is_static = self.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=STATIC_LEAVING_EPOCH if is_static else LEAVING_EPOCH,
        )

    def _telling(self) -> _Told:
        return _Told(self.subscription, self.owned)

    # What responses mean

    def miss(self) -> None:
        """Record that a heartbeat got no response: the next one repeats all fields."""
        self._told = None

    def take(
        self, sent: ConsumerGroupHeartbeatRequest, answer: ConsumerGroupHeartbeatResponse
    ) -> Next:
        """Apply a response; raise KafkaError if it ends the membership for good."""
        if self.standing not in (Standing.JOINING, Standing.MEMBER):
            return Next.AFTER_INTERVAL  # we left, or gave up, while it was on its way
        if sent.member_epoch != self.epoch:
            return Next.AT_ONCE
        code = answer.error_code
        if code == ErrorCode.NONE:
            self._take_place(answer)
            return Next.AT_ONCE if self.is_due else Next.AFTER_INTERVAL
        self._told = None
        if code in _PUT_OUT:
            was_joining = self.standing is Standing.JOINING
            self.lose()
            return Next.AFTER_PAUSE if was_joining else Next.AT_ONCE
        if code in COORDINATOR_MOVED:
            return Next.AFTER_FINDING
        error = refusal(code, answer.error_message, f"group {self.group_id!r}")
        if error.is_retriable:
            return Next.AFTER_PAUSE
        raise self._explained(error)

    def _take_place(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.standing = Standing.MEMBER
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        self._told = self._in_flight
        if answer.assignment is not None:
            self.target = frozenset(
                TopicIdPartition(TopicId(row.topic_id), index)
                for row in answer.assignment.topic_partitions
                for index in row.partitions
            )

    def _explained(self, error: KafkaError) -> KafkaError:
        code, name = error.code, self.group_id
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            way_out = (
                f"group {name!r} is of another type and in use; take another group, stop its "
                'members, or join with protocol="classic" if they speak the classic protocol'
            )
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID:
            way_out = (
                f"group {name!r} has a live member with instance_id {self.instance_id!r}; "
                "close that one, or wait until its session times out"
            )
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            way_out = f"another member took over instance_id {self.instance_id!r}"
        elif code == ErrorCode.UNSUPPORTED_VERSION:
            way_out = 'the cluster has no KIP-848 groups; join with protocol="classic"'
        else:
            return error
        return KafkaError(code, f"{error.message}; {way_out}")


def _rows(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return [
        TopicPartitions(topic_id=topic_id, partitions=rows) for topic_id, rows in by_topic.items()
    ]
