"""Counting the elements of a message, up to a bound."""

import pytest

from headrace.wire.elements import has_elements
from headrace.wire.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.growth.steps import assert_stays_flat, steps


def response(topics: int, partitions: int, replicas: int) -> MetadataResponse:
    partition = MetadataResponsePartition(replica_nodes=[0] * replicas)
    topic = MetadataResponseTopic(partitions=[partition] * partitions)
    return MetadataResponse(topics=[topic] * topics)


@pytest.mark.parametrize(
    ("topics", "partitions", "replicas"), [(100, 0, 0), (1, 99, 0), (1, 1, 98), (4, 4, 5)]
)
def test_elements_count_on_every_level(topics: int, partitions: int, replicas: int) -> None:
    message = response(topics, partitions, replicas)
    count = topics * (1 + partitions * (1 + replicas))
    assert has_elements(message, count)
    assert not has_elements(message, count + 1)


def test_an_array_that_is_null_holds_nothing() -> None:
    assert not has_elements(CreateTopicsResponse(topics=[CreatableTopicResult(configs=None)]), 2)


def test_the_rest_of_a_large_message_is_not_looked_at() -> None:
    assert_stays_flat(lambda size: steps(lambda: has_elements(response(size, 1, 1), 50)), 100)
