from collections.abc import Iterator
from itertools import count

import pytest

from headrace.cluster.command_entries import ProposerInputs, broker_id_of, entry_for
from headrace.cluster.protocol.commands import (
    AddPartitions,
    CreateTopic,
    DeleteConsumerGroup,
    DeleteTopic,
    DeregisterNode,
    MetadataCommand,
    Noop,
    ReassignPartition,
    RegisterNode,
    TopicConfig,
    UpdateClusterConfig,
    UpdateConsumerGroup,
    UpdateNode,
    UpdatePartitionIsr,
    UpdatePartitionLeader,
    UpdateTopicConfig,
)
from headrace.cluster.protocol.consumer_groups import ConsumerGroup
from headrace.cluster.protocol.names import PartitionName
from headrace.cluster.protocol.nodes import NodeInfo, socket_address
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Endpoint, ResourceType
from tests.unit.metadata.clusters import NOW_MS, ORDERS, Cluster

FIRST = PartitionName(ORDERS, PartitionIndex(0))
GROUP = ConsumerGroup(group_id="g", session_timeout=10_000, rebalance_timeout=10_000)


class Peers(Cluster):
    """Nodes n0, n1 and n2, which are the brokers 0, 1 and 2, and the topic orders."""

    def __init__(self) -> None:
        super().__init__(Image())
        self._ids: Iterator[int] = count(1)
        for name in ("n0", "n1", "n2"):
            self.command(RegisterNode(node(name)))
        self.command(CreateTopic(TopicConfig(ORDERS, 2, 2), (("n1", "n2"), ("n2", "n1"))))

    def command(self, command: MetadataCommand) -> None:
        def new_id() -> bytes:
            return next(self._ids).to_bytes(16, "big")

        inputs = ProposerInputs(NOW_MS, lambda: TopicId(new_id()), new_id)
        self.propose(entry_for(self.image, command, inputs))

    def fails(self, command: MetadataCommand) -> ErrorCode:
        with pytest.raises(KafkaError) as error:
            self.command(command)
        return error.value.code


def node(name: str, port: int = 9092, rack: str | None = "r1") -> NodeInfo:
    return NodeInfo(
        id=name,
        rack=rack,
        client_addr=socket_address("127.0.0.1", port),
        cluster_addr=socket_address("127.0.0.1", port + 1),
    )


def test_create_topic_carries_assignments_and_settings() -> None:
    peers = Peers()
    assert [peers.partition(index).replicas for index in (0, 1)] == [(1, 2), (2, 1)]
    assert [peers.partition(index).leader for index in (0, 1)] == [1, 2]
    assert peers.image.configs(ResourceType.TOPIC, ORDERS) == {
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "min.insync.replicas": "1",
    }


@pytest.mark.parametrize(
    ("config", "assignments", "code"),
    [
        (TopicConfig(TopicName("t"), 2, 1), (("n0",),), ErrorCode.INVALID_PARTITIONS),
        (TopicConfig(TopicName("t"), 1, 2), (("n0",),), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicConfig(TopicName("t"), 1, 0), ((),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicConfig(TopicName("t"), 1, 1), (("no",),), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (TopicConfig(ORDERS, 1, 1), (("n0",),), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_topics_that_make_no_sense_are_refused(
    config: TopicConfig, assignments: tuple[tuple[str, ...], ...], code: ErrorCode
) -> None:
    assert Peers().fails(CreateTopic(config, assignments)) is code


def test_topics_grow_change_and_go() -> None:
    peers = Peers()
    peers.command(AddPartitions(ORDERS, (("n0",),)))
    assert peers.partition(2).replicas == (0,)
    peers.command(UpdateTopicConfig(ORDERS, {"retention.ms": "5"}))
    assert peers.image.configs(ResourceType.TOPIC, ORDERS)["retention.ms"] == "5"
    peers.command(DeleteTopic(ORDERS))
    assert peers.image.topic(ORDERS) is None
    for command in (
        DeleteTopic(ORDERS),
        UpdateTopicConfig(ORDERS, {"a": "b"}),
        AddPartitions(ORDERS, (("n0",),)),
        UpdatePartitionLeader(FIRST, "n1", 1),
    ):
        assert peers.fails(command) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_changes_only_with_a_higher_epoch() -> None:
    peers = Peers()
    peers.command(UpdatePartitionLeader(FIRST, "n2", 1))
    assert (peers.partition().leader, peers.partition().leader_epoch) == (2, 1)
    assert peers.fails(UpdatePartitionLeader(FIRST, "n1", 1)) is ErrorCode.FENCED_LEADER_EPOCH
    nowhere = PartitionName(ORDERS, PartitionIndex(9))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert peers.fails(UpdatePartitionLeader(nowhere, "n1", 5)) is unknown


def test_an_isr_has_only_replicas() -> None:
    """Facts, cluster 6: the peer accepts any nodes."""
    peers = Peers()
    peers.command(UpdatePartitionIsr(FIRST, ("n1",)))
    assert peers.partition().isr == (1,)
    peers.command(UpdatePartitionIsr(FIRST, ("n1", "n2")))
    outsider = UpdatePartitionIsr(FIRST, ("n1", "n0"))
    assert peers.fails(outsider) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_reassignment_keeps_the_isr_until_new_replicas_caught_up() -> None:
    """Facts, cluster 7: the peer resets the ISR to the leader."""
    peers = Peers()
    peers.command(ReassignPartition(FIRST, ("n0", "n2")))
    partition = peers.partition()
    assert (partition.replicas, partition.isr) == ((0, 2, 1), (1, 2))
    assert (partition.adding, partition.removing) == ((0,), (1,))
    peers.command(ReassignPartition(FIRST, ("n1", "n2")))
    partition = peers.partition()
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 2), (), ())


def test_nodes_register_with_both_addresses_and_keep_their_numbers() -> None:
    peers = Peers()
    first = peers.image.broker_by_name("n0")
    assert first is not None
    assert (first.broker_id, first.rack, first.is_fenced) == (0, "r1", False)
    assert first.endpoints == (
        Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0),
        Endpoint("CLUSTER", "127.0.0.1", 9093, 0),
    )
    peers.command(UpdateNode("n0", node("n0", 7000, None)))
    changed = peers.image.broker(BrokerId(0))
    assert changed is not None
    assert (changed.endpoints[0].port, changed.broker_epoch) == (7000, first.broker_epoch)
    assert peers.fails(UpdateNode("n0", node("n5"))) is ErrorCode.INVALID_REQUEST
    peers.command(DeregisterNode("n0"))
    assert peers.image.broker_by_name("n0") is None
    assert peers.fails(DeregisterNode("n1")) is ErrorCode.INVALID_REQUEST
    peers.command(RegisterNode(node("17")))
    assert broker_id_of(peers.image, "17") == 17
    peers.command(RegisterNode(node("n9")))
    assert broker_id_of(peers.image, "n9") == 0


@pytest.mark.parametrize(
    "text", ["000000000017", "017", "2147483648", "99999999999", "-1", "0x1", ""]
)
def test_a_text_that_is_no_number_of_a_broker_names_none(text: str) -> None:
    with pytest.raises(KafkaError) as caught:
        broker_id_of(Peers().image, text)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_cluster_settings_are_those_of_all_brokers() -> None:
    peers = Peers()
    peers.command(UpdateClusterConfig({"log.retention.ms": "5"}))
    assert peers.image.configs(ResourceType.BROKER, "") == {"log.retention.ms": "5"}


@pytest.mark.parametrize("command", [UpdateConsumerGroup(GROUP), DeleteConsumerGroup("g")])
def test_groups_are_left_to_their_coordinator(command: MetadataCommand) -> None:
    assert Peers().fails(command) is ErrorCode.INVALID_REQUEST


def test_noop_is_an_entry_that_changes_nothing() -> None:
    peers = Peers()
    index = peers.image.applied_index
    peers.command(Noop())
    assert peers.applier.outcome(index + 1).events == ()
