"""The metadata commands that Kafka's admin requests do as well: the request for each."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from headrace.cluster.protocol import ClusterErrorCode, ClusterResponse, MetadataCommand, commands
from headrace.ids import BrokerId
from headrace.loop.slices import Slice, Slices
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.server.interchange.bounds import require_short
from headrace.server.interchange.call import Forwarded
from headrace.server.interchange.nodes import numbered
from headrace.server.interchange.refusals import Refusal, check, require_partition, shown
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.schema import Message

PARTITIONS_MAX: Final = 10_000
"""How many partitions one command may create: Kafka's limit for a request."""
CONFIGS_MAX: Final = 500
"""More than Kafka's requests may set of one resource, so that they refuse the rest."""
CONFIG_CHARACTERS_MAX: Final = 2**15 - 1
"""Kafka's limit of a string."""
PLACED_BY_CLIENT: Final = -1

Done = Callable[[], ClusterResponse]
"""Makes the response to a command that was done."""


def kafka_request(  # noqa: PLR0911  a table
    image: Image, command: MetadataCommand, timeout_ms: int, done: Done
) -> Slices[Forwarded | None]:
    """Return Kafka's request for a command, or None if Kafka has none.

    Raise Refusal or KafkaError if there is no such request: it names unknown nodes or topics. It
    takes several slices if there are very many partitions.
    """
    match command:
        case commands.CreateTopic():
            require_short(command.config.name)
            forwarded = yield from _create_topic(image, command, timeout_ms, done)
            return forwarded
        case commands.DeleteTopic(name):
            require_short(name)
            body: Message = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name)], timeout_ms=timeout_ms
            )
            return Forwarded(body, 6, _of_row(lambda answer: answer.responses[0], done))
        case commands.AddPartitions():
            require_short(command.topic)
            forwarded = yield from _add_partitions(image, command, timeout_ms, done)
            return forwarded
        case commands.ReassignPartition():
            return _reassign(image, command, timeout_ms, done)
        case commands.UpdateTopicConfig(name, configs):
            require_short(name)
            return _set_configs(ResourceType.TOPIC, name, configs, done)
        case commands.UpdateClusterConfig(configs):
            return _set_configs(ResourceType.BROKER, "", configs, done)
        case _:
            return None


def _create_topic(
    image: Image, command: commands.CreateTopic, timeout_ms: int, done: Done
) -> Slices[Forwarded]:
    config, assignments = command.config, command.partition_assignments
    if len(assignments) != config.partitions:
        raise Refusal(
            ClusterErrorCode.INVALID_PARTITION,
            f"topic {shown(config.name)} is to have {config.partitions} partitions, but "
            f"{len(assignments)} are assigned",
        )
    _require_few(len(assignments), config.name)
    if not assignments:
        raise Refusal(ClusterErrorCode.INVALID_PARTITION, "a topic has at least one partition")
    _require_replicas(image, assignments, config.replication_factor, config.name)
    numbers = yield from _numbers(image, assignments)
    topic = CreatableTopic(
        name=config.name,
        num_partitions=PLACED_BY_CLIENT,
        replication_factor=PLACED_BY_CLIENT,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(numbers)
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value)
            for name, value in {
                "retention.ms": str(config.retention_ms),
                "segment.bytes": str(config.segment_bytes),
                "min.insync.replicas": str(config.min_isr),
                **_some(config.config),
            }.items()
        ],
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    return Forwarded(body, 7, _of_row(lambda answer: answer.topics[0], done))


def _add_partitions(
    image: Image, command: commands.AddPartitions, timeout_ms: int, done: Done
) -> Slices[Forwarded]:
    topic, new = image.topic(command.topic), command.new_assignments
    if topic is None:
        raise Refusal(ClusterErrorCode.UNKNOWN_TOPIC, f"there is no topic {shown(command.topic)}")
    _require_few(len(new), topic.name)
    _require_replicas(image, new, len(topic.partitions[0].replicas), topic.name)
    numbers = yield from _numbers(image, new)
    asked = CreatePartitionsTopic(
        name=topic.name,
        count=len(topic.partitions) + len(new),
        assignments=[CreatePartitionsAssignment(broker_ids=replicas) for replicas in numbers],
    )
    body = CreatePartitionsRequest(topics=[asked], timeout_ms=timeout_ms)
    return Forwarded(body, 3, _of_row(lambda answer: answer.results[0], done))


def _reassign(
    image: Image, command: commands.ReassignPartition, timeout_ms: int, done: Done
) -> Forwarded:
    name, replicas = command.partition, command.replicas
    require_partition(image, name)
    _require_replicas(image, (replicas,), len(replicas), name.topic)
    partition = ReassignablePartition(
        partition_index=name.partition, replicas=[numbered(image, node) for node in replicas]
    )
    body = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[ReassignableTopic(name=name.topic, partitions=[partition])],
    )

    def translate(answer: Any) -> ClusterResponse:
        check(answer.error_code, answer.error_message)
        row = answer.responses[0].partitions[0]
        check(row.error_code, row.error_message)
        return done()

    return Forwarded(body, 1, translate)


def _set_configs(
    resource_type: ResourceType, name: str, configs: dict[str, str], done: Done
) -> Forwarded:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in _some(configs).items()],
    )
    body = IncrementalAlterConfigsRequest(resources=[resource])
    return Forwarded(body, 1, _of_row(lambda answer: answer.responses[0], done))


def _of_row(row_of: Callable[[Any], Any], done: Done) -> Callable[[Any], ClusterResponse]:
    def translate(answer: Any) -> ClusterResponse:
        row = row_of(answer)
        check(row.error_code, row.error_message)
        return done()

    return translate


def _numbers(image: Image, assignments: Iterable[tuple[str, ...]]) -> Slices[list[list[int]]]:
    """Return the numbers of nodes; each is looked up once."""
    found: dict[str, BrokerId] = {}
    numbers: list[list[int]] = []
    current = Slice()
    for replicas in assignments:
        for node in replicas:
            if node not in found:
                found[node] = numbered(image, node)
        numbers.append([found[node] for node in replicas])
        if current.spend(len(replicas)):
            yield
    return numbers


def _require_few(partitions: int, topic: str) -> None:
    if partitions > PARTITIONS_MAX:
        raise Refusal(
            ClusterErrorCode.INVALID_REQUEST,
            f"{partitions} partitions of topic {shown(topic)} in one command, {PARTITIONS_MAX} "
            "are allowed: add partitions later",
        )


def _require_replicas(
    image: Image, assignments: Iterable[tuple[str, ...]], replication_factor: int, topic: str
) -> None:
    """Refuse counts of replicas before any of them is looked up."""
    broker_count = len(image.state.brokers)
    if not 1 <= replication_factor <= broker_count:
        raise Refusal(
            ClusterErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {shown(topic)} with {replication_factor} replicas, and there are "
            f"{broker_count} nodes",
        )
    for index, replicas in enumerate(assignments):
        if len(replicas) != replication_factor:
            raise Refusal(
                ClusterErrorCode.INVALID_REPLICATION_FACTOR,
                f"new partition {index} of topic {shown(topic)} is to have {replication_factor} "
                f"replicas, but {len(replicas)} are assigned",
            )


def _some(configs: dict[str, str]) -> dict[str, str]:
    """Refuse more configs than a resource can have."""
    if len(configs) > CONFIGS_MAX:
        raise Refusal(
            ClusterErrorCode.INVALID_REQUEST, f"{len(configs)} configs, {CONFIGS_MAX} are allowed"
        )
    for name, value in configs.items():
        if max(len(name), len(value)) > CONFIG_CHARACTERS_MAX:
            raise Refusal(
                ClusterErrorCode.INVALID_REQUEST,
                f"config {shown(name)}: names and values have {CONFIG_CHARACTERS_MAX} characters "
                "at most",
            )
    return configs
