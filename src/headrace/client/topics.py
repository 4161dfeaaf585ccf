"""Topics and partitions, as an administrator names, creates and describes them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.client.cluster import CONTROLLER, Cluster
from headrace.client.errors import refusal
from headrace.client.outcomes import Outcomes
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.wire import ApiKey
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_partitions_response import CreatePartitionsResponse
from headrace.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import DeleteTopicsResponse

BROKERS_DEFAULT: Final = -1
_DELETES_BY_STATE_FROM: Final = 6


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. Counts of -1 leave them to the broker's settings.

    `assignments` names the replicas of each partition by node id; the counts stay -1 then.
    """

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = msgspec.field(default_factory=dict)


class CreatedTopic(msgspec.Struct, frozen=True):
    """A topic as the broker made it. Counts are -1 where the broker is too old to say."""

    name: str
    topic_id: TopicId
    partitions: int
    replication_factor: int


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool
) -> Outcomes[str, CreatedTopic]:
    """Create topics; an outcome for each, as one may be refused and the others not."""
    body = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=cluster.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    answer = await cluster.ask(
        body,
        CreateTopicsResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: _controller_code(row.error_code for row in answer.topics),
        patience_ms=body.timeout_ms,
    )
    return {row.name: _created(row) for row in answer.topics}


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> Outcomes[str, None]:
    """Delete topics with everything in them."""
    body = DeleteTopicsRequest(timeout_ms=cluster.settings.request_timeout_ms)
    body.topics = [DeleteTopicState(name=name) for name in names]
    connection = await cluster.reach(CONTROLLER)
    if connection.version_of(ApiKey.DELETE_TOPICS) < _DELETES_BY_STATE_FROM:
        body.topics, body.topic_names = [], list(names)
    answer = await cluster.ask(
        body,
        DeleteTopicsResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: _controller_code(row.error_code for row in answer.responses),
        patience_ms=body.timeout_ms,
    )
    for name in names:
        cluster.forget(name)
    return {
        row.name or "": refusal(row.error_code, row.error_message, f"topic {row.name!r}")
        if row.error_code
        else None
        for row in answer.responses
    }


async def add_partitions(
    cluster: Cluster, totals: Mapping[str, int], *, validate_only: bool
) -> Outcomes[str, None]:
    """Grow topics to these numbers of partitions."""
    body = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=total, assignments=None)
            for name, total in totals.items()
        ],
        timeout_ms=cluster.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    answer = await cluster.ask(
        body,
        CreatePartitionsResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: _controller_code(row.error_code for row in answer.results),
        patience_ms=body.timeout_ms,
    )
    for name in totals:
        cluster.forget(name)
    return {
        row.name: refusal(row.error_code, row.error_message, f"topic {row.name!r}")
        if row.error_code
        else None
        for row in answer.results
    }


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(row: CreatableTopicResult) -> CreatedTopic | KafkaError:
    if row.error_code:
        return refusal(row.error_code, row.error_message, f"topic {row.name!r}")
    return CreatedTopic(row.name, TopicId(row.topic_id), row.num_partitions, row.replication_factor)


def _controller_code(codes: Iterable[int]) -> int:
    """Return the error code by which the whole request must go to another node."""
    is_elsewhere = ErrorCode.NOT_CONTROLLER in codes
    return ErrorCode.NOT_CONTROLLER if is_elsewhere else ErrorCode.NONE
