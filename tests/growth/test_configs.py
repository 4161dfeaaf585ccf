"""What requests cost that name thousands of things: configs, topics, partitions.

No slice may be long, whatever the size of a request is: others wait for it.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.api import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    config_requests,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    update_features,
)
from headrace.config.values import split
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import Partition, ResourceType, Topic
from headrace.server.request import Request
from headrace.topics.validation import duplicates
from headrace.wire.messages import incremental_alter_configs_request as incremental
from headrace.wire.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.wire.messages.describe_quorum_request import PartitionData as QuorumPartition
from headrace.wire.messages.describe_quorum_request import TopicData as QuorumTopic
from headrace.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.update_features_request import FeatureUpdateKey
from headrace.wire.schema import Message
from tests.growth.slices import assert_slices_are_short, finish_measured, total_steps
from tests.growth.steps import assert_grows_linearly
from tests.unit.harness import Harness

TOPIC, BROKER, GROUP = 2, 4, 32
INVALID_REQUEST, POLICY_VIOLATION = 42, 44
NO_ID = bytes(16)
COUNT = 3000
"""How many of something a request names."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", {})
    yield harness
    harness.close()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let handlers fail whose slices are long."""
    for module in (
        *(alter_configs, incremental_alter_configs, config_requests),
        *(create_topics, delete_topics, create_partitions, metadata),
        *(elect_leaders, alter_partition_reassignments),
    ):
        monkeypatch.setattr(module, "finish", finish_measured)


def names(count: int) -> list[TopicName]:
    return [TopicName(f"topic-{number}") for number in range(count)]


def add_topics(node: Harness, count: int, partitions: int = 3) -> None:
    """Put topics into the image, without logs: what is asked is metadata."""
    me = BrokerId(node.broker.node_id)
    for number, name in enumerate(names(count)):
        if node.broker.image.topic(name) is None:
            rows = [
                Partition((me,), (me,), me, 1_000_000 + number * partitions + index)
                for index in range(partitions)
            ]
            topic_id = TopicId((number + 1).to_bytes(16, "big"))
            node.broker.image.add_topic(Topic(name, topic_id, rows))


def ask(node: Harness, body: Message, version: int) -> Request:
    return Request(node.peer, body.API_KEY, version, 1, "test", body, 0, 0)


def describe(
    node: Harness, kind: int, same: bool, wanted: list[str] | None
) -> Callable[[int], Any]:
    def work(count: int) -> Any:
        asked = ["1" if kind == BROKER else "topic-0"] * count if same else names(count)
        resources = [DescribeConfigsResource(kind, name, wanted) for name in asked]
        return describe_configs.describe_configs(
            node.broker, DescribeConfigsRequest(resources, include_synonyms=True)
        )

    return work


@pytest.mark.parametrize("kind", [TOPIC, BROKER, GROUP])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("wanted", [None, ["retention.ms", "num.io.threads"]])
def test_resources_in_describe_configs(
    node: Harness, kind: int, same: bool, wanted: list[str] | None
) -> None:
    add_topics(node, 2000)
    work = describe(node, kind, same, wanted)
    assert_grows_linearly(lambda count: total_steps(work(count)), 250)
    assert_slices_are_short(work(2000))


def test_a_resource_that_is_asked_for_twice_is_worked_on_once(node: Harness) -> None:
    add_topics(node, 1)
    for kind in (TOPIC, BROKER):
        work = describe(node, kind, same=True, wanted=None)
        once, often = total_steps(work(1)), total_steps(work(100))
        assert often - once < 100 * 100, "a hundred instructions for each repetition"
        assert len(assert_slices_are_short(work(100)).results) == 1


def test_names_of_configs_in_describe_configs(node: Harness) -> None:
    def work(count: int) -> Any:
        resource = DescribeConfigsResource(BROKER, "1", [f"a.{each}" for each in range(count)])
        return describe_configs.describe_configs(node.broker, DescribeConfigsRequest([resource]))

    assert_slices_are_short(work(1000))


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("is_known", [True, False])
def test_resources_in_incremental_alter_configs(node: Harness, is_known: bool) -> None:
    if is_known:
        add_topics(node, COUNT)
    line = incremental.AlterableConfig("retention.ms", 0, "1000")
    body = incremental.IncrementalAlterConfigsRequest(
        [incremental.AlterConfigsResource(TOPIC, name, [line]) for name in names(COUNT)],
        validate_only=True,
    )
    work = incremental_alter_configs.handle(node.broker, ask(node, body, 1))
    assert len(node.run(work).responses) == COUNT


@pytest.mark.usefixtures("measured")
def test_groups_in_incremental_alter_configs_with_many_configs_of_the_broker(
    node: Harness,
) -> None:
    """What a group may be told depends on the broker, whose configs may be many."""
    many: dict[str, str | None] = {f"no.such.{number}": "x" for number in range(450)}
    node.run(node.broker.quorum.propose(SetConfigs(ResourceType.BROKER, "1", many)))
    line = incremental.AlterableConfig("share.session.timeout.ms", 0, "45000")
    body = incremental.IncrementalAlterConfigsRequest(
        [incremental.AlterConfigsResource(GROUP, name, [line]) for name in names(200)],
        validate_only=True,
    )
    work = incremental_alter_configs.handle(node.broker, ask(node, body, 1))
    assert [row.error_code for row in node.run(work).responses] == [0] * 200


@pytest.mark.usefixtures("measured")
def test_resources_in_alter_configs(node: Harness) -> None:
    add_topics(node, COUNT)
    line = AlterableConfig("retention.ms", "1000")
    body = AlterConfigsRequest(
        [AlterConfigsResource(TOPIC, name, [line]) for name in names(COUNT)], validate_only=True
    )
    work = alter_configs.handle(node.broker, ask(node, body, 2))
    assert len(node.run(work).responses) == COUNT


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("count", [450, 20_000])
def test_lines_of_one_resource_in_incremental_alter_configs(node: Harness, count: int) -> None:
    """A broker may be told of configs that nobody knows, but not of any number of them."""
    lines = [incremental.AlterableConfig(f"no.such.{each}", 0, "x") for each in range(count)]
    body = incremental.IncrementalAlterConfigsRequest(
        [incremental.AlterConfigsResource(BROKER, "1", lines)], validate_only=True
    )
    work = incremental_alter_configs.handle(node.broker, ask(node, body, 1))
    (row,) = node.run(work).responses
    assert row.error_code == (0 if count == 450 else INVALID_REQUEST)


def test_resources_that_are_listed(node: Harness) -> None:
    add_topics(node, COUNT)
    body = ListConfigResourcesRequest()
    work = list_config_resources.list_config_resources(node.broker, ask(node, body, 1))
    assert len(assert_slices_are_short(work).config_resources) > COUNT


def metadata_request(kind: str, count: int) -> MetadataRequest:
    if kind == "all":
        return MetadataRequest(topics=None)
    asked = {
        "names": names(count),
        "one name": [TopicName("topic-0")] * count,
        "unknown names": [TopicName(f"unknown-{number}") for number in range(count)],
    }[kind]
    return MetadataRequest(
        topics=[MetadataRequestTopic(NO_ID, name) for name in asked],
        allow_auto_topic_creation=False,
    )


@pytest.mark.parametrize("kind", ["all", "names", "one name", "unknown names"])
def test_topics_in_metadata(node: Harness, kind: str) -> None:
    def work(count: int) -> Any:
        add_topics(node, count)
        request = ask(node, metadata_request(kind, count), 12)
        return metadata.prepare(node.broker, request)

    assert_slices_are_short(work(2000))


def test_topics_that_metadata_is_to_create(node: Harness) -> None:
    def work(count: int) -> Any:
        body = metadata_request("unknown names", count)
        body.allow_auto_topic_creation = True
        return metadata.prepare(node.broker, ask(node, body, 12))

    assert_slices_are_short(work(3000))


def test_partitions_of_one_topic_in_metadata(node: Harness) -> None:
    add_topics(node, 1, 10_000)
    request = ask(node, metadata_request("all", 0), 12)
    (topic,) = assert_slices_are_short(metadata.prepare(node.broker, request)).topics
    assert len(topic.partitions) == 10_000


@pytest.mark.parametrize("is_known", [True, False])
def test_topics_in_describe_topic_partitions(node: Harness, is_known: bool) -> None:
    def work(count: int) -> Any:
        if is_known:
            add_topics(node, count, 1)
        body = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name) for name in names(count)], response_partition_limit=2000
        )
        return describe_topic_partitions.describe_topic_partitions(node.broker, ask(node, body, 0))

    assert_slices_are_short(work(3000))


@pytest.mark.usefixtures("measured")
def test_topics_in_create_topics(node: Harness) -> None:
    created = [CreatableTopic(name, 1, 1) for name in names(COUNT)]
    body = CreateTopicsRequest(created, 1000, validate_only=True)
    work = create_topics.handle(node.broker, ask(node, body, 7))
    assert len(node.run(work).topics) == COUNT


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("replication_factor", [1, 3])
def test_partitions_of_one_topic_in_create_topics(node: Harness, replication_factor: int) -> None:
    me = node.broker.image.broker(BrokerId(1))
    assert me is not None
    for broker_id in (2, 3):
        node.broker.image.put_broker(msgspec.structs.replace(me, broker_id=BrokerId(broker_id)))
    body = CreateTopicsRequest(
        [CreatableTopic("t", 10_000, replication_factor)], 1000, validate_only=True
    )
    (row,) = node.run(create_topics.handle(node.broker, ask(node, body, 7))).topics
    assert row.num_partitions == 10_000
    for broker_id in (2, 3):
        node.broker.image.remove_broker(BrokerId(broker_id))


@pytest.mark.usefixtures("measured")
def test_partitions_in_create_partitions(node: Harness) -> None:
    add_topics(node, COUNT, 1)
    asked = [CreatePartitionsTopic(name, 4, None) for name in names(COUNT)]
    body = CreatePartitionsRequest([*asked, CreatePartitionsTopic("absent", 2, None)], 1000, True)
    work = create_partitions.handle(node.broker, ask(node, body, 3))
    codes = [row.error_code for row in node.run(work).results]
    assert codes.count(0) == COUNT
    body.topics[0].count = 10_000
    work = create_partitions.handle(node.broker, ask(node, body, 3))
    codes = [row.error_code for row in node.run(work).results]
    assert codes.count(POLICY_VIOLATION) > COUNT // 2, "10,000 partitions for a request in all"


def test_features_in_update_features(node: Harness) -> None:
    update = FeatureUpdateKey("group.version", 1, upgrade_type=1)
    work = update_features.checked(node.broker.image, [update] * 10 * COUNT)
    assert assert_slices_are_short(work) == [update]


def test_names_that_come_twice() -> None:
    found = assert_slices_are_short(duplicates([*names(10 * COUNT), *names(10 * COUNT)]))
    assert len(found) == 10 * COUNT


def test_topics_in_the_response_of_create_partitions() -> None:
    asked = [CreatePartitionsTopic(name, 2, None) for name in names(10 * COUNT)]
    work = create_partitions.rows_of(
        asked, {asked[0].name: KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "")}
    )
    assert len(assert_slices_are_short(work)) == 10 * COUNT


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("wants_all", [True, False])
def test_partitions_in_elect_leaders(node: Harness, wants_all: bool) -> None:
    add_topics(node, COUNT)
    asked = [TopicPartitions(name, [0, 1, 2]) for name in names(COUNT)]
    body = ElectLeadersRequest(0, None if wants_all else asked, 1000)
    work = elect_leaders.handle(node.broker, ask(node, body, 2))
    assert node.run(work).error_code == 0


@pytest.mark.usefixtures("measured")
def test_partitions_in_alter_partition_reassignments(node: Harness) -> None:
    add_topics(node, COUNT)
    asked = [
        ReassignableTopic(name, [ReassignablePartition(index, [1]) for index in range(3)])
        for name in names(COUNT)
    ]
    body = AlterPartitionReassignmentsRequest(1000, True, asked)
    work = alter_partition_reassignments.handle(node.broker, ask(node, body, 1))
    assert len(node.run(work).responses) == COUNT


def test_partitions_in_list_partition_reassignments(node: Harness) -> None:
    add_topics(node, COUNT)
    body = ListPartitionReassignmentsRequest(topics=None)
    assert_slices_are_short(list_partition_reassignments.list_reassignments(node.broker, body))


@pytest.mark.usefixtures("measured")
def test_partitions_in_describe_quorum() -> None:
    partitions = [QuorumPartition(index) for index in range(COUNT)]
    work = describe_quorum.refuse([QuorumTopic("__cluster_metadata", partitions)])
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_topics_in_delete_topics(node: Harness) -> None:
    body = DeleteTopicsRequest([DeleteTopicState(name) for name in names(COUNT)], [], 1000)
    work = delete_topics.handle(node.broker, ask(node, body, 6))
    assert len(node.run(work).responses) == COUNT


def test_partitions_in_describe_log_dirs(node: Harness) -> None:
    def work(count: int) -> Any:
        asked = DescribableLogDirTopic("t", list(range(count)))
        return describe_log_dirs.describe_log_dirs(node.broker, DescribeLogDirsRequest([asked]))

    assert_slices_are_short(work(4000))


def test_partitions_in_alter_replica_log_dirs(node: Harness) -> None:
    count = 10 * COUNT
    topic = AlterReplicaLogDirTopic("t", list(range(count)))
    body = AlterReplicaLogDirsRequest([AlterReplicaLogDir("/elsewhere", [topic])])
    work = alter_replica_log_dirs.alter_replica_log_dirs(node.broker, body)
    (row,) = assert_slices_are_short(work).results
    assert len(row.partitions) == count
    topics = [AlterReplicaLogDirTopic(name, [0]) for name in names(count)]
    body = AlterReplicaLogDirsRequest([AlterReplicaLogDir("/elsewhere", topics)])
    work = alter_replica_log_dirs.alter_replica_log_dirs(node.broker, body)
    assert len(assert_slices_are_short(work).results) == count


def test_a_run_of_blanks_in_a_list_costs_its_length() -> None:
    """Python's patterns would take the square of it, inside C: a megabyte would take hours."""
    text = "a" + " " * 1_000_000 + "b"
    assert split(text) == (text,)


def test_many_large_requests_share_the_loop(node: Harness) -> None:
    """However many ask for much, each turn of the loop has one slice of one of them."""
    add_topics(node, 1000)
    turns = 0

    async def ask_all() -> int:
        nonlocal turns

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        work = [
            metadata.handle(node.broker, ask(node, metadata_request("all", 0), 12))
            for _ in range(10)
        ]
        turn()
        await asyncio.gather(*work)  # type: ignore[arg-type]
        return turns

    assert node.run(ask_all()) >= 10 * 1000 * 4 // 1000
