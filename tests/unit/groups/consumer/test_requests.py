"""Heartbeats that no group accepts, with Kafka's codes and words."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from tests.unit.groups.consumer.consumer_world import World

JOIN = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 1000}


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        (("m", 0, {}), {"group_id": "", **JOIN}, "GroupId can't be empty."),
        (("m", 0, {}), {"group_id": "  ", **JOIN}, "GroupId can't be empty."),
        (("", 0, {}), JOIN, "MemberId can't be empty."),
        (("", 3), {}, "MemberId can't be empty."),
        (("", -1), {"version": 0}, "MemberId can't be empty."),
        (("m", 0, {}), {"instance_id": "", **JOIN}, "InstanceId can't be empty."),
        (("m", 0, {}), {"rack_id": "", **JOIN}, "RackId can't be empty."),
        (
            ("m", 0, {}),
            {"subscribed_topic_names": ["t"]},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (("m", 0), JOIN, "TopicPartitions must be empty when (re-)joining."),
        (("m", 0, {"t": [1]}), JOIN, "TopicPartitions must be empty when (re-)joining."),
        (
            ("m", 0, {}),
            {"rebalance_timeout_ms": 1},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining.",
        ),
        (("m", -3), {}, "MemberEpoch is invalid."),
        (("m", -2), {}, "InstanceId can't be null."),
    ],
)
def test_a_request_that_cannot_be_is_refused(
    arguments: tuple[Any, ...], fields: dict[str, Any], message: str
) -> None:
    refused = World().refusal(*arguments, **fields)
    assert (refused.code, refused.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("name", ["foo", ""])
def test_an_assignor_that_nobody_knows_is_refused_and_the_known_ones_named(name: str) -> None:
    refused = World().refusal("m", 0, {}, server_assignor=name, **JOIN)
    assert refused.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.message.endswith("Supported assignors: uniform, range.")


def test_an_assignor_that_the_node_is_told_not_to_use_is_refused() -> None:
    world = World(group_consumer_assignors="range")
    refused = world.refusal("m", 0, {}, server_assignor="uniform", **JOIN)
    assert refused.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    world.join("m", "t")
    assert world.describe().assignor_name == "range"
