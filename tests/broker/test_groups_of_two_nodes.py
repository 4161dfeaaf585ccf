"""Groups and share groups whose coordinator, states, partitions and letters are on two nodes."""

import asyncio
from pathlib import Path

import pytest

from headrace.client import (
    AcknowledgeType,
    Admin,
    Consumer,
    Producer,
    Resource,
    ShareConsumer,
    Start,
    TopicPartition,
)
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.broker.two_nodes import A, B, C, TwoNodes, run, two_nodes, unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")

NOT_HERE = ErrorCode.NOT_COORDINATOR


def test_every_node_names_the_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(groups=A, transactions=B, states=B)
            share_key = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"
            keys = {(0, "group"): A, (1, "payments"): B, (2, share_key): B}
            for asked in (A, B, C):
                for (kind, key), coordinator in keys.items():
                    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                    (row,) = (await world.ask(asked, request, 6)).coordinators
                    assert (row.error_code, row.node_id) == (ErrorCode.NONE, coordinator)
                    port = world.nodes[coordinator].listeners[0].port
                    assert row.port == port
            await world.stop_node(B)
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=["payments"])
            while row.error_code == ErrorCode.NONE:  # until A has heard of it
                (row,) = (await world.ask(A, request, 6)).coordinators
                await asyncio.sleep(0.01)
            assert (row.error_code, row.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    run(scenario())


def test_the_first_request_creates_the_topic_from_any_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path, offsets_topic_num_partitions="3") as world:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
            found = set()
            for asked in (B, A, C):
                (row,) = (await world.ask(asked, request, 6)).coordinators
                assert row.error_code == ErrorCode.NONE
                found.add(row.node_id)
            assert len(found) == 1

    run(scenario())


def test_a_node_that_does_not_coordinate_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(groups=A, transactions=A, states=A)
            init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
            assert (await world.ask(B, init)).error_code == NOT_HERE
            end = EndTxnRequest(transactional_id="t", producer_id=1, committed=True)
            assert (await world.ask(B, end)).error_code == NOT_HERE
            described = DescribeTransactionsRequest(transactional_ids=["t"])
            (row,) = (await world.ask(B, described)).transaction_states
            assert row.error_code == NOT_HERE
            joining = JoinGroupRequest(group_id="g", protocol_type="consumer")
            joining.session_timeout_ms = 10_000
            assert (await world.ask(B, joining)).error_code == NOT_HERE
            beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
            assert (await world.ask(B, beat)).error_code == NOT_HERE
            share = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
            assert (await world.ask(B, share)).error_code == NOT_HERE
            (group,) = (await world.ask(B, DescribeGroupsRequest(groups=["g"]))).groups
            assert group.error_code == NOT_HERE
            fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
            (group,) = (await world.ask(B, fetched, 8)).groups
            assert group.error_code == NOT_HERE
            adding = AddPartitionsToTxnRequest(
                transactions=[AddPartitionsToTxnTransaction(transactional_id="t")]
            )
            assert (await world.ask(B, adding)).error_code == ErrorCode.NONE
            assert (await world.ask(B, ListGroupsRequest())).groups == []
            assert (await world.ask(B, ListTransactionsRequest())).transaction_states == []

    run(scenario())


@pytest.mark.parametrize("coordinator", [A, B])
def test_a_consumer_group_reads_from_both_nodes(tmp_path: Path, coordinator: BrokerId) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(groups=coordinator)
            await world.create("orders", A, B)
            await _produce(world, "orders", 10)
            async with Consumer(
                world.bootstrap, group="readers", reset=Start.BEGINNING
            ) as consumer:
                await consumer.subscribe(["orders"])
                values: set[bytes | None] = set()
                while len(values) < 20:
                    values |= {record.value for record in await consumer.poll(1000)}
                await consumer.commit()
            async with Admin(world.bootstrap) as admin:
                offsets = await admin.list_group_offsets("readers")
                assert {each.topic for each in offsets} == {"orders"}

    run(scenario())


@pytest.mark.parametrize(
    ("groups", "states", "letters"), [(A, B, B), (B, A, A), (A, A, B), (B, B, A)]
)
def test_a_share_group_works_across_nodes(
    tmp_path: Path, groups: BrokerId, states: BrokerId, letters: BrokerId
) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(groups=groups, states=states)
            await world.create("orders", A, B)
            await world.create("dlq.orders", letters)
            async with Admin(world.bootstrap) as admin:
                await admin.alter_configs(
                    Resource.group("workers"),
                    set={
                        "share.auto.offset.reset": "earliest",
                        "errors.deadletterqueue.topic.name": "dlq.orders",
                    },
                )
                await _produce(world, "orders", 5)
                async with ShareConsumer(
                    world.bootstrap, "workers", ["orders"], mode="explicit"
                ) as queue:
                    seen: set[tuple[int, int]] = set()
                    while len(seen) < 10:
                        for record in await queue.poll(1000):
                            kind = (
                                AcknowledgeType.REJECT
                                if record.offset == 2
                                else AcknowledgeType.ACCEPT
                            )
                            queue.acknowledge(record, kind)
                            seen.add((record.partition, record.offset))
                        await queue.commit()
                log = world.partition(letters, "dlq.orders").log
                while log.high_watermark < 2:
                    await asyncio.sleep(0.01)  # polls; the test has a timeout
                places = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
                while True:
                    starts = await admin.list_share_group_offsets("workers")
                    if [getattr(starts.get(each), "lag", None) for each in places] == [0, 0]:
                        break
                    await asyncio.sleep(0.01)

    run(scenario())


def test_acknowledgements_wait_for_a_state_coordinator_that_restarts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(groups=A, states=B)
            await world.create("orders", A)
            async with Admin(world.bootstrap) as admin:
                await admin.alter_configs(
                    Resource.group("workers"), set={"share.auto.offset.reset": "earliest"}
                )
                await _produce(world, "orders", 3, partitions=1)
                async with ShareConsumer(
                    world.bootstrap, "workers", ["orders"], mode="explicit"
                ) as queue:
                    records: list[object] = []
                    while len(records) < 3:
                        for record in await queue.poll(1000):
                            queue.acknowledge(record, AcknowledgeType.ACCEPT)
                            records.append(record)
                    await world.stop_node(B)
                    commit = asyncio.create_task(queue.commit())
                    await asyncio.sleep(0)
                    await world.start_node(B)
                    outcomes = await commit
                    assert set(outcomes.values()) == {None}
                place = TopicPartition("orders", 0)
                while True:
                    starts = await admin.list_share_group_offsets("workers")
                    if getattr(starts.get(place), "lag", None) == 0:
                        break
                    await asyncio.sleep(0.01)

    run(scenario())


async def _produce(world: TwoNodes, topic: str, count: int, partitions: int = 2) -> None:
    async with Producer(world.bootstrap) as producer:
        for index in range(partitions):
            for number in range(count):
                value = b"%d-%d" % (index, number)
                await producer.deliver(topic, value, partition=index)
