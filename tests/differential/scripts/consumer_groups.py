"""Consumer groups: heartbeats right and wrong, revocation, static members, descriptions."""

from typing import Any

from headrace.errors import ErrorCode
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
)
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from tests.differential.conversation import Conversation
from tests.differential.requests import Topic

GROUP, SET = 32, 0
Owned = dict[Topic, list[int]]


class GroupTalk:
    """Heartbeats to one group, which assigns as soon as it may."""

    def __init__(self, talk: Conversation, suffix: str) -> None:
        self.talk = talk
        self.group_id = talk.name(suffix)
        config = AlterableConfig(
            name="consumer.assignment.interval.ms", config_operation=SET, value="0"
        )
        resource = AlterConfigsResource(
            resource_type=GROUP, resource_name=self.group_id, configs=[config]
        )
        talk.quietly(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        talk.until(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id]),
            FindCoordinatorResponse,
            lambda found: found.coordinators[0].error_code == 0,
        )
        talk.until(
            ConsumerGroupDescribeRequest(group_ids=[self.group_id]),
            ConsumerGroupDescribeResponse,
            lambda found: found.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND,
        )

    def beat(
        self, name: str, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any
    ) -> None:
        version = fields.pop("version", 1)
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=topic.id, partitions=indexes)
                for topic, indexes in owned.items()
            ]
        fields.setdefault("group_id", self.group_id)
        request = ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)
        self.talk.ask_settled(name, request, version, hide=["error_message"])

    def join(self, name: str, member_id: str, *topics: Topic, **fields: Any) -> None:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        fields.setdefault("subscribed_topic_names", [topic.name for topic in topics])
        self.beat(name, member_id, 0, {}, **fields)

    def describe(self, name: str) -> None:
        request = ConsumerGroupDescribeRequest(
            group_ids=[self.group_id], include_authorized_operations=True
        )
        self.talk.ask_all_versions(name, request)


def consumer_group_refusals(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    group = GroupTalk(talk, "refusals")
    group.beat("no group", "m", 2)
    group.beat("leaving no group", "m", -1)
    group.join("no group id", "m", topic, group_id="")
    group.join("a blank group id", "m", topic, group_id=" ")
    group.join("no member id", "", topic)
    group.beat("no member id, later", "", 3)
    group.join("an empty instance", "m", topic, instance_id="")
    group.join("an empty rack", "m", topic, rack_id="")
    group.join("no timeout", "m", topic, rebalance_timeout_ms=-1)
    group.beat("no subscription", "m", 0, {}, rebalance_timeout_ms=1)
    group.beat(
        "partitions when joining",
        *("m", 0, {topic: [0]}),
        rebalance_timeout_ms=1,
        subscribed_topic_names=[topic.name],
    )
    group.beat("an impossible epoch", "m", -3)
    group.beat("a static epoch without an instance", "m", -2)
    group.join("an unknown assignor", "m", topic, server_assignor="foo")
    for pattern in ("(", r"\1", "(?<=a)b", "[", "a{2,1}"):
        group.join(f"the pattern {pattern}", "m", subscribed_topic_regex=pattern)
    group.join("one who may", "m", topic)
    group.beat("an unknown member", "x", 2)
    group.beat("an epoch too large", "m", 3)
    group.beat("an epoch too small", "m", 1)
    group.beat("an unknown instance", "m", 2, instance_id="i")
    group.describe("the group")
    talk.ask(
        "groups that are none",
        ConsumerGroupDescribeRequest(group_ids=["", talk.name("none")]),
        hide=["error_message"],
    )


def consumer_group_life(talk: Conversation) -> None:
    topic = talk.topic("four", partitions=4)
    group = GroupTalk(talk, "life")
    group.join("the first", "m", topic)
    group.beat("again", "m", 2)
    group.beat("what it reads", "m", 2, {topic: [0, 1, 2, 3]})
    group.join("the second", "n", topic)
    group.beat("the first has to give up", "m", 2)
    group.beat("it does not yet", "m", 2, {topic: [0, 1, 2, 3]})
    group.beat("the second waits", "n", 3, {})
    group.beat("the first gave up", "m", 2, {topic: [0, 1]})
    group.beat("the second gets it", "n", 3, {})
    group.describe("two members")
    group.beat("an answer was lost", "m", 2, {topic: [0, 1]})
    group.beat("and it reads too much", "m", 2, {topic: [0, 1, 2]})
    group.beat("the second leaves", "n", -1)
    group.beat("it left", "n", 3)
    group.beat("the first gets everything", "m", 3)
    group.beat("another subscription", "m", 5, subscribed_topic_names=[talk.name("not-there")])
    group.beat("nothing is read", "m", 5, {})
    group.beat("the first leaves", "m", -1)
    group.describe("an empty group")


def consumer_group_static_members(talk: Conversation) -> None:
    topic = talk.topic("four", partitions=4)
    group = GroupTalk(talk, "static")
    group.join("an instance", "m", topic, instance_id="i", rack_id="r")
    group.join("its instance is taken", "n", topic, instance_id="i")
    group.beat("another speaks for it", "n", 2, instance_id="i")
    group.beat("it goes for a while", "m", -2, instance_id="i")
    group.beat("it is away", "m", 2, instance_id="i")
    group.join("it comes back", "n", topic, instance_id="i")
    group.beat("its former self", "m", 2, instance_id="i")
    group.beat("its former self leaves", "m", -1, instance_id="i")
    group.beat("it reads", "n", 2, {topic: [0, 1, 2, 3]}, instance_id="i")
    group.describe("one static member")
    group.beat("it leaves for good", "n", -1, instance_id="i")
    group.beat("nobody has the instance", "n", -2, instance_id="i")


SCRIPTS = (consumer_group_refusals, consumer_group_life, consumer_group_static_members)
