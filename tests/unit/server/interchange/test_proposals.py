"""ProposeMetadata of seed 002: all 14 commands, each through the log or refused by code."""

from typing import Any

import pytest

from headrace.cluster.protocol import ClusterErrorCode, MetadataCommand, commands, responses
from headrace.cluster.protocol.consumer_groups import ConsumerGroup
from headrace.cluster.protocol.nodes import NodeInfo, socket_address
from headrace.ids import BrokerId, TopicName
from headrace.metadata.state import ResourceType
from tests.unit.harness import Harness
from tests.unit.server.interchange.programs import Program, ask, batch, partition, talk

HERE = "1"
"""The node's own name."""


def propose(harness: Harness, command: MetadataCommand, **options: Any) -> int:
    answer = ask(harness, lambda program: program.propose(command), **options)
    code: int = answer.header.error_code
    assert isinstance(answer, responses.Error if code else responses.MetadataProposal)
    return code


def create(
    name: str = "orders",
    assignments: tuple[tuple[str, ...], ...] = ((HERE,), (HERE,)),
    **fields: Any,
) -> commands.CreateTopic:
    given = {"partitions": len(assignments), "replication_factor": 1} | fields
    return commands.CreateTopic(commands.TopicConfig(TopicName(name), **given), assignments)


def node(name: str, **fields: Any) -> NodeInfo:
    here = socket_address("127.0.0.1", 9092)
    return NodeInfo(id=name, client_addr=here, cluster_addr=here, **fields)


@pytest.fixture(autouse=True)
def is_node_one(harness: Harness) -> None:
    assert str(harness.broker.node_id) == HERE


# Topics


def test_a_topic_is_created_with_its_configs_and_takes_records(harness: Harness) -> None:
    command = create(retention_ms=1234, min_isr=1, config={"max.message.bytes": "4321"})

    async def work(program: Program) -> list[int]:
        asked = [program.propose(command), program.append(batch(), index=1)]
        program.send(*asked)
        return [(await program.receive()).header.error_code for _ in asked]

    assert talk(harness, work) == [0, 0]
    assert harness.broker.image.configs(ResourceType.TOPIC, "orders") == {
        "retention.ms": "1234",
        "segment.bytes": str(1 << 30),
        "min.insync.replicas": "1",
        "max.message.bytes": "4321",
    }


def test_a_topic_exists_once(harness: Harness) -> None:
    assert propose(harness, create()) == 0
    assert propose(harness, create()) == ClusterErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (create(partitions=3), ClusterErrorCode.INVALID_PARTITION),
        (create(assignments=()), ClusterErrorCode.INVALID_PARTITION),
        (create(replication_factor=2), ClusterErrorCode.INVALID_REPLICATION_FACTOR),
        (create(replication_factor=0), ClusterErrorCode.INVALID_REPLICATION_FACTOR),
        (create(assignments=((HERE,), ())), ClusterErrorCode.INVALID_REPLICATION_FACTOR),
        (create(assignments=(("2",),)), ClusterErrorCode.INELIGIBLE_REPLICA),
        (create(assignments=(("rivven",),)), ClusterErrorCode.UNKNOWN_MEMBER_ID),
        (create(assignments=(*((HERE,),) * 5000, ("2",))), ClusterErrorCode.INELIGIBLE_REPLICA),
        (create(assignments=((HERE,),) * 10_001), ClusterErrorCode.INVALID_REQUEST),
        (create("../../etc"), ClusterErrorCode.INVALID_REQUEST),
        (create(""), ClusterErrorCode.INVALID_REQUEST),
        (create("x" * 250), ClusterErrorCode.INVALID_REQUEST),
        (create("x" * 100_000), ClusterErrorCode.UNKNOWN_TOPIC),
        (create("__cluster_metadata"), ClusterErrorCode.INVALID_REQUEST),
        (create(retention_ms=2**64 - 1), ClusterErrorCode.INVALID_REQUEST),
        (create(segment_bytes=2**40), ClusterErrorCode.INVALID_REQUEST),
        (create(min_isr=0), ClusterErrorCode.INVALID_REQUEST),
        (create(config={"cleanup.policy": "never"}), ClusterErrorCode.INVALID_REQUEST),
        (create(config={"no.such.config": "1"}), ClusterErrorCode.INVALID_REQUEST),
        (
            create(config={f"c{number}": "1" for number in range(600)}),
            ClusterErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_topics_that_an_admin_client_could_not_create_are_refused(
    harness: Harness, command: MetadataCommand, expected: ClusterErrorCode
) -> None:
    assert propose(harness, command) == expected
    assert not list(harness.broker.image.topics())


def test_a_topic_is_deleted(harness: Harness) -> None:
    harness.create_topic("orders")
    command = commands.DeleteTopic(TopicName("orders"))
    assert propose(harness, command) == 0
    assert not harness.has_topic("orders")
    assert propose(harness, command) == ClusterErrorCode.UNKNOWN_TOPIC


def test_configs_of_a_topic_are_checked_and_set(harness: Harness) -> None:
    harness.create_topic("orders")

    def change(configs: dict[str, str], topic: str = "orders") -> int:
        return propose(harness, commands.UpdateTopicConfig(TopicName(topic), configs))

    assert change({"max.message.bytes": "4321"}) == 0
    assert change({"max.message.bytes": "many"}) == ClusterErrorCode.INVALID_REQUEST
    assert change({"max.message.bytes": "1"}, "nothing") == ClusterErrorCode.UNKNOWN_TOPIC
    assert harness.broker.image.configs(ResourceType.TOPIC, "orders") == {
        "max.message.bytes": "4321"
    }


def test_configs_of_all_brokers_are_checked_and_set(harness: Harness) -> None:
    assert propose(harness, commands.UpdateClusterConfig({"message.max.bytes": "4321"})) == 0
    assert harness.broker.image.configs(ResourceType.BROKER, "") == {"message.max.bytes": "4321"}
    for bad in ({"message.max.bytes": "many"}, {"node.id": "7"}):
        assert propose(harness, commands.UpdateClusterConfig(bad)) == (
            ClusterErrorCode.INVALID_REQUEST
        )


def test_partitions_are_added(harness: Harness) -> None:
    harness.create_topic("orders")

    def add(*assignments: tuple[str, ...], topic: str = "orders") -> int:
        return propose(harness, commands.AddPartitions(TopicName(topic), assignments))

    assert add((HERE,), (HERE,)) == 0
    assert harness.has_partition("orders", 2)
    assert add() == ClusterErrorCode.INVALID_PARTITION
    assert add((HERE, HERE)) == ClusterErrorCode.INVALID_REPLICATION_FACTOR
    assert add(("2",)) == ClusterErrorCode.INELIGIBLE_REPLICA
    assert add((HERE,), topic="nothing") == ClusterErrorCode.UNKNOWN_TOPIC
    assert len(harness.topic("orders").partitions) == 3


# Partitions


def test_a_leader_is_changed_to_a_replica_that_is_up_and_in_sync(
    harness: Harness, register: Any, place: Any
) -> None:
    register(2)
    register(3, is_fenced=True)
    place("orders", [1, 2, 3], isr=[1, 2, 3], leader=1)
    epoch = harness.topic("orders").partitions[0].leader_epoch

    def change(leader: str, epoch: int) -> int:
        return propose(harness, commands.UpdatePartitionLeader(partition(), leader, epoch))

    assert change("2", epoch) == ClusterErrorCode.NOT_LEADER_FOR_PARTITION
    assert change("3", epoch + 1) == ClusterErrorCode.INELIGIBLE_REPLICA
    assert change("4", epoch + 1) == ClusterErrorCode.NOT_REPLICA_FOR_PARTITION
    assert change("rivven", epoch + 1) == ClusterErrorCode.UNKNOWN_MEMBER_ID
    assert change("2", epoch + 1) == 0
    assert harness.topic("orders").partitions[0].leader == 2
    other = commands.UpdatePartitionLeader(partition("orders", 1), "2", 9)
    assert propose(harness, other) == ClusterErrorCode.INVALID_PARTITION


def test_an_isr_shrinks_for_anybody_and_grows_for_the_leader(
    harness: Harness, register: Any, place: Any
) -> None:
    register(2)
    register(3, is_fenced=True)
    place("orders", [1, 2, 3], isr=[1, 2], leader=1)

    def change(*isr: str, source: str = HERE) -> int:
        return propose(harness, commands.UpdatePartitionIsr(partition(), isr), source=source)

    assert change("1", source="anybody") == 0
    assert harness.topic("orders").partitions[0].isr == (1,)
    assert change("1", "2", source="2") == ClusterErrorCode.NOT_LEADER_FOR_PARTITION
    assert change("1", "3") == ClusterErrorCode.INELIGIBLE_REPLICA
    assert change("1", "4") == ClusterErrorCode.NOT_REPLICA_FOR_PARTITION
    assert change("1", "2", "3", "4") == ClusterErrorCode.NOT_REPLICA_FOR_PARTITION
    assert change() == ClusterErrorCode.INELIGIBLE_REPLICA  # a leader is in sync
    assert change("1", "1") == ClusterErrorCode.INELIGIBLE_REPLICA
    assert change("1", "2") == 0
    assert harness.topic("orders").partitions[0].isr == (1, 2)


def test_a_partition_is_reassigned(harness: Harness, register: Any, place: Any) -> None:
    register(2)
    place("orders", [1], isr=[1], leader=1)

    def reassign(*replicas: str, index: int = 0) -> int:
        command = commands.ReassignPartition(partition("orders", index), replicas)
        return propose(harness, command)

    assert reassign("2", "1") == 0
    row = harness.topic("orders").partitions[0]
    assert (row.replicas, row.adding, row.isr) == ((2, 1), (2,), (1,))
    assert reassign() == ClusterErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign("9") == ClusterErrorCode.INELIGIBLE_REPLICA
    assert reassign("1", index=1) == ClusterErrorCode.INVALID_PARTITION
    assert harness.topic("orders").partitions[0] == row


# Nodes


def test_a_node_registers_changes_and_leaves(harness: Harness) -> None:
    image = harness.broker.image
    assert propose(harness, commands.RegisterNode(node("rivven-1", rack="a"))) == 0
    registered = image.broker_by_name("rivven-1")
    assert registered is not None
    assert registered.rack == "a"
    assert propose(harness, commands.UpdateNode("rivven-1", node("rivven-1", rack="b"))) == 0
    changed = image.broker_by_name("rivven-1")
    assert changed is not None
    assert (changed.broker_id, changed.rack) == (registered.broker_id, "b")
    assert propose(harness, commands.DeregisterNode("rivven-1")) == 0
    assert image.broker_by_name("rivven-1") is None
    for gone in (
        commands.DeregisterNode("rivven-1"),
        commands.UpdateNode("rivven-1", node("rivven-1")),
    ):
        assert propose(harness, gone) == ClusterErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "command",
    [
        commands.RegisterNode(node(HERE)),
        commands.UpdateNode(HERE, node(HERE)),
        commands.UpdateNode(HERE, node("other")),
        commands.DeregisterNode(HERE),
        commands.RegisterNode(node("")),
        commands.RegisterNode(node("x" * 1000)),
        commands.RegisterNode(node("rivven", rack="x" * 1000)),
    ],
)
def test_nodes_that_register_themselves_are_left_alone(
    harness: Harness, command: MetadataCommand
) -> None:
    before = harness.broker.image.broker(BrokerId(1))
    assert propose(harness, command) == ClusterErrorCode.INVALID_REQUEST
    assert list(harness.broker.image.brokers()) == [before]


# The rest


def test_a_noop_is_committed_and_changes_nothing(harness: Harness) -> None:
    before = harness.broker.image.applied_index
    assert propose(harness, commands.Noop()) == 0
    assert harness.broker.image.applied_index > before


@pytest.mark.parametrize(
    "command",
    [
        commands.UpdateConsumerGroup(
            ConsumerGroup(group_id="g", session_timeout=1, rebalance_timeout=1)
        ),
        commands.DeleteConsumerGroup("g"),
    ],
)
def test_groups_are_not_metadata(harness: Harness, command: MetadataCommand) -> None:
    assert propose(harness, command) == ClusterErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("command", [create(), commands.Noop()])
def test_a_proposal_without_time_is_not_made(harness: Harness, command: MetadataCommand) -> None:
    answer = ask(harness, lambda program: program.propose(command, timeout_ms=0))
    assert answer.header.error_code == ClusterErrorCode.REQUEST_TIMED_OUT
    assert not harness.has_topic("orders")
