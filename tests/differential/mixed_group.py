"""One group of members of both protocols (KIP-848): what is said to it, and what it writes."""

from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.wire import encode
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from headrace.wire.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedPartitions,
)
from headrace.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import MemberIdentity
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from tests.differential.consumer_requests import consumer_beat
from tests.differential.conversation import Conversation
from tests.differential.group_log import in_order, written
from tests.differential.group_requests import (
    commit,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.differential.requests import Topic

NEWEST: Final = 3
Member = tuple[str, int]
"""Its id and its generation."""


def subscribed(
    *topics: str,
    owned: tuple[str, list[int]] | None = None,
    version: int = NEWEST,
    generation: int = -1,
    rack: str | None = None,
) -> bytes:
    """What a consumer tells of itself, in a version of the embedded format."""
    rows = [] if owned is None else [TopicPartition(topic=owned[0], partitions=owned[1])]
    said = ConsumerProtocolSubscription(
        topics=list(topics), owned_partitions=rows, generation_id=generation, rack_id=rack
    )
    return version.to_bytes(2) + encode(said, version)


def assigned(topic: str, *partitions: int, version: int = NEWEST) -> bytes:
    row = AssignedPartitions(topic=topic, partitions=[*partitions])
    return version.to_bytes(2) + encode(
        ConsumerProtocolAssignment(assigned_partitions=[row]), version
    )


class MixedGroup:
    """A group, its topic, and what is said to it."""

    def __init__(self, talk: Conversation, suffix: str, topic: Topic) -> None:
        self.talk, self.suffix, self.topic = talk, suffix, topic
        self.group = talk.name(suffix)
        self.seen = 0

    def classic(
        self, *protocols: tuple[str, bytes], count: int = 1, **options: Any
    ) -> list[Member]:
        """Make a stable classic group of one or two, in as many generations."""
        protocols = protocols or (("range", subscribed(self.topic.name)),)
        ids: list[str] = []
        for _ in range(count):
            request = join(self.group, "", *protocols, **options)
            given = self.talk.quietly(request, JoinGroupResponse, 9)
            self.talk.plain(given)  # numbers its id, whatever the next answers say
            ids.append(given.member_id)
            pending = self.talk.begin("", join(self.group, ids[-1], *protocols, **options), 9)
            for id_ in ids[:-1]:
                self.talk.until(
                    heartbeat(self.group, len(ids) - 1, id_),
                    HeartbeatResponse,
                    lambda m: m.error_code == ErrorCode.REBALANCE_IN_PROGRESS,
                )
                self.talk.quietly(
                    join(self.group, id_, *protocols, **options), JoinGroupResponse, 9
                )
            pending.finish()
            self.talk.exchanges.pop()
            rows = [
                (id_, assigned(self.topic.name, *range(n, 4, len(ids))))
                for n, id_ in enumerate(ids)
            ]
            for id_ in ids:
                assigning = sync(self.group, len(ids), id_, *(rows if id_ == ids[0] else ()))
                got = self.talk.quietly(assigning, SyncGroupResponse, 4)
                assert got.error_code == 0, got
        return [(id_, count) for id_ in ids]

    def beat(self, name: str, member: str, epoch: int, **options: Any) -> Member:
        if epoch == 0:
            options = {"topics": [self.topic.name], "owned": {}, **options}
        if isinstance(owned := options.get("owned"), list):
            options["owned"] = {self.topic.id: owned} if owned else {}
        request = consumer_beat(self.group, member, epoch, **options)
        answer = self.talk.ask(self._name(name), request)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return member, answer.member_epoch

    def join(
        self,
        name: str,
        member: str,
        owned: list[int] | None = None,
        *,
        version: int = 9,
        protocol: str = "range",
        embedded: int = NEWEST,
        **options: Any,
    ) -> Member:
        said = subscribed(
            self.topic.name,
            owned=None if owned is None else (self.topic.name, owned),
            version=embedded,
        )
        answer = self.talk.ask(
            self._name(name), join(self.group, member, (protocol, said), **options), version
        )
        assert isinstance(answer, JoinGroupResponse)
        return answer.member_id, answer.generation_id

    def sync(self, name: str, member: Member, **options: Any) -> None:
        options = {"protocol_type": "consumer", "protocol": "range", **options}
        self.talk.ask(self._name(name), sync(self.group, member[1], member[0], **options))

    def heartbeat(self, name: str, member: Member, **options: Any) -> None:
        request: HeartbeatRequest = heartbeat(self.group, member[1], member[0], **options)
        self.talk.ask(self._name(name), request)

    def leave(self, name: str, *members: tuple[str, str | None]) -> None:
        rows = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        self.talk.ask(self._name(name), leave(self.group, *rows))

    def commit(self, name: str, member: Member, version: int = 10) -> None:
        self.talk.ask(
            self._name(name), commit(self.group, self.topic, (0, 5), member=member), version
        )

    def fetch(self, name: str, member: Member) -> None:
        row = OffsetFetchRequestTopics(name=self.topic.name, partition_indexes=[0])
        asked = OffsetFetchRequestGroup(
            group_id=self.group, member_id=member[0], member_epoch=member[1], topics=[row]
        )
        self.talk.ask(self._name(name), OffsetFetchRequest(groups=[asked]), 9)

    def describe(self, name: str) -> None:
        self.talk.ask(
            self._name(f"{name}, described"), ConsumerGroupDescribeRequest(group_ids=[self.group])
        )
        self.talk.ask(
            self._name(f"{name}, described as a classic group"),
            DescribeGroupsRequest(groups=[self.group]),
        )
        self.talk.ask(self._name(f"{name}, listed"), ListGroupsRequest())

    def log(self, name: str) -> None:
        """Keep the records of the group that were written since the last time."""
        rows = written(self.talk, self.group)
        rows, self.seen = in_order(rows[self.seen :]), len(rows)
        self.talk.keep(self._name(name), ListGroupsRequest(), 0, rows)

    def _name(self, name: str) -> str:
        return f"{self.suffix}: {name}"
