"""Requests of members of consumer groups, in few words."""

from typing import Final

from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_groups_response import DeleteGroupsResponse
from tests.differential.conversation import Conversation
from tests.differential.requests import Topic

REBALANCE_TIMEOUT_MS: Final = 60_000
LEFT: Final = -1
"""The epoch of a member that leaves."""


def consumer_beat(
    group: str,
    member: str,
    epoch: int,
    *,
    topics: list[str] | None = None,
    owned: dict[bytes, list[int]] | None = None,
    regex: str | None = None,
    instance: str | None = None,
    assignor: str | None = None,
    rebalance_ms: int | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; what is left out has not changed. One that joins says its rebalance timeout."""
    if rebalance_ms is None:
        rebalance_ms = REBALANCE_TIMEOUT_MS if epoch == 0 else -1
    rows = None
    if owned is not None:
        rows = [TopicPartitions(topic_id=id_, partitions=p) for id_, p in owned.items()]
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=rows,
    )


def topic_of_groups(talk: Conversation, suffix: str, partitions: int = 1) -> Topic:
    """Create a topic and wait until groups know it too: Kafka's hear of it behind the rest."""
    topic = talk.topic(suffix, partitions)
    probe = talk.name(f"probe-{suffix}")
    talk.until(
        consumer_beat(probe, "probe", 0, topics=[topic.name], owned={}),
        ConsumerGroupHeartbeatResponse,
        lambda m: m.assignment is not None and bool(m.assignment.topic_partitions),
    )
    talk.quietly(consumer_beat(probe, "probe", LEFT), ConsumerGroupHeartbeatResponse)
    talk.until(
        DeleteGroupsRequest(groups_names=[probe]),
        DeleteGroupsResponse,
        lambda m: m.results[0].error_code == 0,
    )
    return topic


def ask_beat(
    talk: Conversation, name: str, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    answer = talk.ask(name, request, version)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def describe(talk: Conversation, name: str, group: str) -> None:
    talk.ask(name, ConsumerGroupDescribeRequest(group_ids=[group]))
