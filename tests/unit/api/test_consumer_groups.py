"""ConsumerGroupHeartbeat and ConsumerGroupDescribe at a node."""

import asyncio
import threading
from typing import Any

import pytest
import re2

from headrace.errors import ErrorCode
from headrace.groups import assigning
from headrace.server.operations import GROUP_OPERATIONS
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from tests.unit.harness import Harness

SETTINGS = {"offsets.topic.num.partitions": "2"}
CLASSIC_ONLY = SETTINGS | {"group.coordinator.rebalance.protocols": "classic"}


@pytest.fixture
def node(harness: Harness) -> Any:
    """Have a coordinator, and a topic `in` of three partitions."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.run(_load(harness))
    harness.create_topic("in", 3)
    return harness


async def _load(harness: Harness) -> None:
    for shard in harness.broker.groups:
        await shard.loaded()


def join(node: Harness, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, topic_partitions=[], **fields
    )
    return node.ask(request, 1)


@pytest.mark.parametrize("harness", [SETTINGS], indirect=True)
def test_a_member_joins_and_is_described(node: Harness) -> None:
    joined = join(node, subscribed_topic_names=["in"])
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
    (assigned,) = joined.assignment.topic_partitions
    assert assigned.partitions == [0, 1, 2]
    described = node.ask(
        ConsumerGroupDescribeRequest(group_ids=["g", "", "no"], include_authorized_operations=True),
        1,
    )
    group, nameless, unknown = described.groups
    assert (group.group_state, group.authorized_operations) == ("Stable", GROUP_OPERATIONS)
    (member,) = group.members
    assert member.client_host.startswith("/")
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("harness", [SETTINGS], indirect=True)
def test_a_refusal_is_an_answer_with_a_code_and_a_reason(node: Harness) -> None:
    refused = join(node, subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "`(`" in refused.error_message
    assert node.ask(ConsumerGroupDescribeRequest(), 1).groups == []


@pytest.mark.parametrize("harness", [CLASSIC_ONLY], indirect=True)
def test_a_node_that_serves_no_consumer_groups_says_so(node: Harness) -> None:
    refused = join(node, subscribed_topic_names=["in"])
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("harness", [SETTINGS], indirect=True)
def test_a_large_target_is_computed_in_a_thread_and_comes_with_a_later_heartbeat(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigning, "STEPS_ON_LOOP_MAX", 0)
    joined = join(node, subscribed_topic_names=["in"])
    assert (joined.error_code, joined.assignment.topic_partitions) == (ErrorCode.NONE, [])

    async def assigned() -> Any:
        epoch = joined.member_epoch
        async with asyncio.timeout(10):
            while True:
                beat = ConsumerGroupHeartbeatRequest(
                    group_id="g", member_id="m", member_epoch=epoch, topic_partitions=[]
                )
                answer = await node.ask_async(beat, 1)
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return answer.assignment

    (row,) = node.run(assigned()).topic_partitions
    assert row.partitions == [0, 1, 2]


@pytest.mark.parametrize("harness", [SETTINGS], indirect=True)
@pytest.mark.parametrize("pattern", ["in|" + "x" * 1000, "(" * 1000])
def test_a_long_pattern_is_compiled_in_a_thread(
    node: Harness, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """It may take half a second, and longest if it is refused in the end."""
    threads: list[int] = []
    compile_now = re2.compile

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return compile_now(*arguments)

    monkeypatch.setattr(re2, "compile", noted)
    for _ in range(3):
        answer = join(node, subscribed_topic_regex=pattern)
    assert len(threads) == 1, "once, whether it is one or not"
    assert threads[0] != threading.get_ident()
    is_one = pattern[0] != "("
    expected = ErrorCode.NONE if is_one else ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_code == expected
