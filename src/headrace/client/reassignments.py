"""Which nodes keep a partition, and which of them leads: moves and elections."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.cluster import CONTROLLER, Cluster
from headrace.client.errors import raise_for, refusal
from headrace.client.leaders import by_topic
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.elect_leaders_response import ElectLeadersResponse
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from headrace.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


class Reassignment(msgspec.Struct, frozen=True):
    """A partition that is being moved."""

    replicas: tuple[int, ...]
    """The nodes that keep it now, those that come and those that go included."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter_reassignments(
    cluster: Cluster,
    replicas: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_change_replication_factor: bool = True,
) -> Outcomes[TopicPartition, None]:
    """Begin moves to these nodes, or cancel them (None); an outcome for each partition."""
    body = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.settings.request_timeout_ms,
        allow_replication_factor_change=may_change_replication_factor,
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=index,
                        replicas=_listed(replicas[TopicPartition(topic, index)]),
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(replicas).items()
        ],
    )
    answer = await cluster.ask(
        body,
        AlterPartitionReassignmentsResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: answer.error_code,
        patience_ms=body.timeout_ms,
    )
    raise_for(answer.error_code, answer.error_message, "the reassignment of partitions")
    for topic in {partition.topic for partition in replicas}:
        cluster.forget(topic)
    return {
        TopicPartition(topic.name, row.partition_index): _outcome(
            row.error_code, row.error_message, TopicPartition(topic.name, row.partition_index)
        )
        for topic in answer.responses
        for row in topic.partitions
    }


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the moves in progress, sorted by topic and partition."""
    body = ListPartitionReassignmentsRequest(
        timeout_ms=cluster.settings.request_timeout_ms,
        topics=None
        if partitions is None
        else [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ],
    )
    answer = await cluster.ask(
        body,
        ListPartitionReassignmentsResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: answer.error_code,
        patience_ms=body.timeout_ms,
    )
    raise_for(answer.error_code, answer.error_message, "the list of reassignments")
    found = {
        TopicPartition(topic.name, row.partition_index): Reassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }
    return dict(sorted(found.items()))


async def elect_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    is_unclean: bool = False,
) -> Outcomes[TopicPartition, None]:
    """Elect leaders of partitions, of all if None; an outcome for each that the broker names."""
    groups = None if partitions is None else by_topic(partitions)
    body = ElectLeadersRequest(
        election_type=_UNCLEAN if is_unclean else _PREFERRED,
        topic_partitions=None
        if groups is None
        else [
            TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in groups.items()
        ],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    answer = await cluster.ask(
        body,
        ElectLeadersResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: answer.error_code,
        patience_ms=body.timeout_ms,
    )
    raise_for(answer.error_code, None, "the election of leaders")
    for row in answer.replica_election_results:
        cluster.forget(row.topic)
    return {
        TopicPartition(topic.topic, row.partition_id): _outcome(
            row.error_code, row.error_message, TopicPartition(topic.topic, row.partition_id)
        )
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _outcome(code: int, message: str | None, partition: TopicPartition) -> KafkaError | None:
    return refusal(code, message, f"partition {partition}") if code else None
