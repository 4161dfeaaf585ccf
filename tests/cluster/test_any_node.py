"""Every node takes every change of metadata, and shows it at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from headrace.client import Admin, Consumer, Producer
from headrace.client.configs import Resource, ResourceType
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse

Change = Callable[[Admin, TestBroker, str], Awaitable[None]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3) as cluster:
        yield cluster


async def topics(admin: Admin, node: TestBroker, name: str) -> None:
    await admin.create_topic(name, partitions=2)
    assert name in {topic.name for topic in await admin.list_topics()}
    await admin.add_partitions(name, 4)
    assert len((await admin.describe_topic(name)).partitions) == 4
    await admin.delete_topic(name)
    assert name not in {topic.name for topic in await admin.list_topics()}


def configs_of(resource_type: ResourceType, config: str, value: str) -> Change:
    async def change(admin: Admin, node: TestBroker, name: str) -> None:
        if resource_type is ResourceType.TOPIC:
            await admin.create_topic(name)
        elif resource_type is ResourceType.BROKER:
            name = str(node.node.node_id)
        resource = Resource(resource_type, name)
        await admin.alter_configs(resource, set={config: value})
        (described,) = values_of(await admin.describe_configs([resource], names=[config])).values()
        assert [each.value for each in described] == [value]

    return change


async def features(admin: Admin, node: TestBroker, name: str) -> None:
    finalized = (await admin.describe_features())["group.version"].finalized
    await admin.update_features({"group.version": 1 - finalized}, may_downgrade=True)
    assert (await admin.describe_features())["group.version"].finalized == 1 - finalized


async def elections(admin: Admin, node: TestBroker, name: str) -> None:
    await admin.create_topic(name)
    (outcome,) = (await admin.elect_leaders([TopicPartition(name, 0)])).values()
    assert isinstance(outcome, KafkaError)
    assert outcome.code == ErrorCode.ELECTION_NOT_NEEDED
    assert await admin.list_reassignments() == {}


async def producer_ids(admin: Admin, node: TestBroker, name: str) -> None:
    seen = set()
    for _ in range(3):
        answer = await admin.cluster.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
        )
        assert answer.error_code == 0
        seen.add(answer.producer_id)
    assert len(seen) == 3


async def auto_creation(admin: Admin, node: TestBroker, name: str) -> None:
    async with Producer(node.bootstrap) as producer:
        await producer.send(name, b"one")
    assert name in {topic.name for topic in await admin.list_topics()}
    async with Consumer(node.bootstrap) as consumer:
        await consumer.assign(name, until_end=True)
        assert [record.value async for record in consumer] == [b"one"]


CHANGES: dict[str, Change] = {
    "topics": topics,
    "topic configs": configs_of(ResourceType.TOPIC, "retention.ms", "1234567"),
    "broker configs": configs_of(ResourceType.BROKER, "log.retention.ms", "7654321"),
    "group configs": configs_of(ResourceType.GROUP, "consumer.session.timeout.ms", "50000"),
    "client metrics": configs_of(ResourceType.CLIENT_METRICS, "interval.ms", "12345"),
    "features": features,
    "elections": elections,
    "producer ids": producer_ids,
    "auto-creation": auto_creation,
}


async def change_through(node: TestBroker, change: Change, name: str) -> None:
    async with Admin(node.bootstrap) as admin:
        await change(admin, node, name)


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_change_through_a_node_is_visible_there_at_once(
    cluster: TestCluster, number: int, what: str
) -> None:
    name = f"{what.replace(' ', '-')}-{number}"
    cluster.run(change_through(cluster.nodes[number], CHANGES[what], name))


def test_a_client_stays_with_its_node_whatever_it_changes(cluster: TestCluster) -> None:
    """Another one may not know yet what the client was told has been done."""
    node = cluster.nodes[2]

    async def change() -> set[str]:
        async with Admin(node.bootstrap) as admin:
            await topics(admin, node, "stays")
            return {str(address) for address in admin.cluster._connections}

    assert cluster.run(change()) == {node.bootstrap}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_node_describes_the_same_cluster(cluster: TestCluster, number: int) -> None:
    node = cluster.nodes[number]

    async def describe(endpoint_type: int) -> DescribeClusterResponse:
        async with Admin(node.bootstrap) as admin:
            return await admin.cluster.ask(
                DescribeClusterRequest(endpoint_type=endpoint_type), DescribeClusterResponse
            )

    answer = cluster.run(describe(1))
    assert answer.cluster_id == cluster.nodes[1].node.broker.image.state.cluster_id
    assert answer.controller_id in cluster.nodes
    addresses = {each.broker_id: f"{each.host}:{each.port}" for each in answer.brokers}
    assert addresses == {each: cluster.nodes[each].bootstrap for each in cluster.nodes}
    # As a broker of Kafka, whose listeners are not a controller's.
    assert cluster.run(describe(2)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert cluster.run(describe(3)).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_changes_get_through_while_the_controller_is_lost() -> None:
    with TestCluster(nodes=3) as cluster:
        lost = cluster.controller
        asked = [node for number, node in cluster.nodes.items() if number != lost]

        async def create(node: TestBroker, number: int) -> None:
            async with Admin(node.bootstrap) as admin:
                name = f"{node.node.node_id}-{number}"
                await admin.create_topic(name)
                await admin.alter_configs(Resource.topic(name), set={"retention.ms": "1234567"})
                assert name in {topic.name for topic in await admin.list_topics()}

        async def create_many() -> None:
            async with Admin(asked[0].bootstrap) as admin:
                await admin.create_topic("early")
                view = admin.cluster.view
                await create_others()
                assert lost in view.nodes, "it has not looked again"
                view.controller_id = BrokerId(lost)
                await admin.delete_topic("early")
                assert "early" not in {topic.name for topic in await admin.list_topics()}

        async def create_others() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(30):
                    for node in asked:
                        tasks.create_task(create(node, number))
                    if number == 10:
                        killing = asyncio.to_thread(cluster.kill, lost)
                        tasks.create_task(killing)
                    await asyncio.sleep(0)

        cluster.run(create_many())
