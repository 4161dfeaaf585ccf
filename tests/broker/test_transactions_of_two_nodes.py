"""Transactions whose coordinator, partitions and groups are on different nodes."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Consumer, Producer
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode
from headrace.ids import TRANSACTIONS_TOPIC, BrokerId
from headrace.records.builder import BatchBuilder
from headrace.records.control import ControlType, read_control
from headrace.records.header import read_headers
from headrace.txn.marker_sending import MarkerSender
from headrace.txn.markers import MarkerWriter
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.two_nodes import A, B, TwoNodes, run, two_nodes, unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")

NAME = "payments"
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
OK = ErrorCode.NONE


async def contents(world: TwoNodes, node_id: BrokerId, topic: str, index: int = 0) -> list[Any]:
    """Give a partition's batches in order: the type of a marker, None for records."""
    log = world.partition(node_id, topic, index).log
    chunk = await log.read_cold(0, 1 << 20, up_to=log.end_offset) if log.end_offset else b""
    found: list[Any] = []
    for position, header in read_headers(chunk):
        batch = chunk[position : position + header.size_bytes]
        found.append(read_control(batch, header).control_type if header.is_control else None)
    return found


class Transactor:
    """A transactional producer that says what it is told, to the nodes it is told."""

    def __init__(self, world: TwoNodes, coordinator: BrokerId, name: str = NAME) -> None:
        self.world = world
        self.coordinator = coordinator
        self.name = name
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self) -> "Transactor":
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        while True:
            answer = await self.world.ask(self.coordinator, request)
            if answer.error_code == OK:
                break
            await asyncio.sleep(0.01)  # polls; the test has a timeout
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return self

    async def add(self, topic: str, *indexes: int) -> list[int]:
        """Add partitions as clients of version 1 do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        answer = await self.world.ask(self.coordinator, request, 3)
        (row,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in row.results_by_partition]

    async def produce(
        self, node_id: BrokerId, topic: str, *indexes: int, version: int = 12
    ) -> list[int]:
        """Produce one record to each partition; give the codes."""
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(index=index, records=bytes(self._batch(topic, index)))
                        for index in indexes
                    ],
                )
            ],
        )
        (row,) = (await self.world.ask(node_id, request, version)).responses
        codes = [each.error_code for each in row.partition_responses]
        for index, code in zip(indexes, codes, strict=True):
            if code == OK:
                self.sequences[topic, index] = self.sequences.get((topic, index), 0) + 1
        return codes

    def _batch(self, topic: str, index: int) -> bytearray:
        builder = BatchBuilder()
        builder.append(time.time_ns() // 1_000_000, b"key", b"value")
        return builder.build(
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get((topic, index), 0),
            is_transactional=True,
        )

    async def commit_offsets(self, node_id: BrokerId, group: str, topic: str, offset: int) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                    ],
                )
            ],
        )
        (row,) = (await self.world.ask(node_id, request, 5)).topics
        code: int = row.partitions[0].error_code
        return code

    async def end(self, *, is_commit: bool = True, version: int = 5) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        answer = await self.world.ask(self.coordinator, request, version)
        if answer.error_code == OK and version >= 5:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        code: int = answer.error_code
        return code

    async def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        (row,) = (await self.world.ask(self.coordinator, request)).transaction_states
        text: str = row.transaction_state
        return text

    async def reach(self, state: str) -> None:
        while await self.state() != state:
            await asyncio.sleep(0.01)  # polls; the test has a timeout


@pytest.mark.parametrize("coordinator", [A, B])
@pytest.mark.parametrize(("is_commit", "marker"), [(True, COMMIT), (False, ABORT)])
def test_partitions_of_both_nodes_get_their_markers(
    tmp_path: Path, coordinator: BrokerId, is_commit: bool, marker: ControlType
) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=coordinator)
            await world.create("orders", A, B, B)
            producer = await Transactor(world, coordinator).init()
            assert await producer.produce(A, "orders", 0) == [OK]
            assert await producer.produce(B, "orders", 1, 2) == [OK, OK]
            assert await producer.state() == "Ongoing"
            assert world.partition(B, "orders", 1).log.last_stable_offset == 0
            assert await producer.end(is_commit=is_commit) == OK
            await producer.reach("CompleteCommit" if is_commit else "CompleteAbort")
            assert await contents(world, A, "orders", 0) == [None, marker]
            assert await contents(world, B, "orders", 1) == [None, marker]
            assert await contents(world, B, "orders", 2) == [None, marker]
            assert world.partition(B, "orders", 1).log.last_stable_offset == 2
            # The next one, with the next epoch, joins again.
            assert await producer.produce(B, "orders", 1) == [OK]
            assert await producer.end() == OK

    run(scenario())


@pytest.mark.parametrize("coordinator", [A, B])
def test_clients_of_version_1_are_verified_by_another_node(
    tmp_path: Path, coordinator: BrokerId
) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=coordinator)
            await world.create("orders", A, B)
            producer = await Transactor(world, coordinator).init()
            for node_id, index in ((A, 0), (B, 1)):
                refused = await producer.produce(node_id, "orders", index, version=11)
                assert refused == [ErrorCode.TRANSACTION_ABORTABLE]
                refused = await producer.produce(node_id, "orders", index, version=10)
                assert refused == [ErrorCode.INVALID_TXN_STATE]
            assert await producer.add("orders", 0, 1) == [OK, OK]
            for node_id, index in ((A, 0), (B, 1)):
                assert await producer.produce(node_id, "orders", index, version=11) == [OK]
            assert await producer.end(version=4) == OK
            await producer.reach("CompleteCommit")
            assert await contents(world, A, "orders", 0) == [None, COMMIT]
            assert await contents(world, B, "orders", 1) == [None, COMMIT]

    run(scenario())


@pytest.mark.parametrize("transactions", [A, B])
def test_offsets_of_a_group_on_another_node_count_with_the_commit(
    tmp_path: Path, transactions: BrokerId
) -> None:
    async def scenario() -> None:
        groups = TwoNodes.other(transactions)
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=transactions, groups=groups)
            await world.create("orders", A)
            producer = await Transactor(world, transactions).init()
            for is_commit, offset, expected in ((True, 7, 7), (False, 9, 7)):
                assert await producer.commit_offsets(groups, "readers", "orders", offset) == OK
                assert await producer.end(is_commit=is_commit) == OK
                await producer.reach("CompleteCommit" if is_commit else "CompleteAbort")
                asked = OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id="readers", topics=None)]
                )
                (group,) = (await world.ask(groups, asked, 8)).groups
                (row,) = group.topics[0].partitions
                assert row.committed_offset == expected
            wrong = await producer.commit_offsets(transactions, "readers", "orders", 1)
            assert wrong == ErrorCode.NOT_COORDINATOR
            assert await producer.state() == "CompleteAbort"  # nothing joined because of it

    run(scenario())


def test_a_leader_that_is_gone_gets_its_marker_when_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", A, B)
            producer = await Transactor(world, A).init()
            assert await producer.produce(A, "orders", 0) == [OK]
            assert await producer.produce(B, "orders", 1) == [OK]
            await world.stop_node(B)
            assert await producer.end() == OK
            assert await producer.state() == "PrepareCommit"
            assert await contents(world, A, "orders", 0) == [None, COMMIT]
            # Its next transaction has to wait, whatever it asks.
            assert await producer.produce(A, "orders", 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
            await world.start_node(B)  # at another port
            await producer.reach("CompleteCommit")
            assert await contents(world, B, "orders", 1) == [None, COMMIT]
            assert await producer.produce(B, "orders", 1) == [OK]

    run(scenario())


def test_a_coordinator_that_stopped_in_the_middle_ends_the_transaction_later(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=B)
            await world.create("orders", A, B)
            producer = await Transactor(world, B).init()
            assert await producer.produce(A, "orders", 0) == [OK]
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(MarkerSender, "send", lambda *_: None)
                assert await producer.end() == OK
                await world.stop_node(B)
            # Nobody can say whether it may join: the client is to try again.
            assert await producer.produce(A, "orders", 0) == [ErrorCode.NOT_ENOUGH_REPLICAS]
            await world.start_node(B)
            await producer.reach("CompleteCommit")
            assert await contents(world, A, "orders", 0) == [None, COMMIT]
            assert await producer.produce(A, "orders", 0) == [OK]

    run(scenario())


def test_a_marker_whose_response_is_lost_ends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", B)
            producer = await Transactor(world, A).init()
            assert await producer.produce(B, "orders", 0) == [OK]
            write = MarkerWriter.write
            lost: list[bool] = []

            def write_silently(*arguments: Any, **options: Any) -> None:
                if not lost:
                    lost.append(True)
                    for connection in tuple(world.nodes[B].traffic.connections):
                        connection.close("the response is lost")
                write(*arguments, **options)

            monkeypatch.setattr(MarkerWriter, "write", write_silently)
            assert await producer.end() == OK
            await producer.reach("CompleteCommit")
            assert await contents(world, B, "orders") == [None, COMMIT, COMMIT]
            assert await producer.produce(B, "orders", 0) == [OK]
            assert world.partition(B, "orders").log.last_stable_offset == 3

    run(scenario())


def test_a_topic_that_is_deleted_meanwhile_does_not_hold_up_a_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", A)
            await world.create("stock", B)
            producer = await Transactor(world, A).init()
            assert await producer.produce(A, "orders", 0) == [OK]
            assert await producer.produce(B, "stock", 0) == [OK]
            await world.stop_node(B)
            assert await producer.end() == OK
            assert await producer.state() == "PrepareCommit"
            await world.delete("stock")
            await producer.reach("CompleteCommit")

    run(scenario())


def test_a_marker_follows_a_leader_that_moves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", A)
            await world.create("stock", B)
            producer = await Transactor(world, A).init()
            assert await producer.produce(A, "orders", 0) == [OK]
            assert await producer.add("stock", 0) == [OK]
            await world.stop_node(B)
            assert await producer.end() == OK
            assert await producer.state() == "PrepareCommit"
            await world.move("stock", 0, A)
            await producer.reach("CompleteCommit")
            assert await contents(world, A, "stock") == [COMMIT]

    run(scenario())


def test_a_coordinator_that_moved_away_sends_nothing_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", B)
            producer = await Transactor(world, A).init()
            assert await producer.produce(B, "orders", 0) == [OK]
            await world.stop_node(B)
            assert await producer.end() == OK
            await world.move(TRANSACTIONS_TOPIC, 0, B)
            answer = await producer.end()
            assert answer == ErrorCode.NOT_COORDINATOR
            await world.start_node(B)
            await world.move(TRANSACTIONS_TOPIC, 0, B)
            assert await contents(world, B, "orders") == [None]

    run(scenario())


def test_records_are_refused_if_the_marker_came_while_they_were_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 ends a transaction without a new epoch: nothing would end these records."""

    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", B)
            producer = await Transactor(world, A).init()
            assert await producer.add("orders", 0) == [OK]
            sender = world.nodes[B].broker.verification._sender
            send, go_on = sender._peers.send, asyncio.Event()
            asked = asyncio.Event()

            async def send_slowly(*arguments: Any, **options: Any) -> Any:
                response = await send(*arguments, **options)
                asked.set()
                await go_on.wait()
                return response

            monkeypatch.setattr(sender._peers, "send", send_slowly)
            late = asyncio.create_task(producer.produce(B, "orders", 0, version=11))
            await asked.wait()
            assert await producer.end(version=4) == OK
            await producer.reach("CompleteCommit")
            go_on.set()
            assert await late == [ErrorCode.INVALID_TXN_STATE]
            assert await contents(world, B, "orders") == [COMMIT]

    run(scenario())


def test_many_producers_are_verified_by_few_requests(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal()
            await world.create("orders", B, B)
            producers = [await Transactor(world, A, f"payments-{n}").init() for n in range(50)]
            line = world.nodes[B].broker.verification._sender._peers
            send, count = line.send, []

            async def send_counted(*arguments: Any, **options: Any) -> Any:
                count.append(arguments)
                return await send(*arguments, **options)

            line.send = send_counted  # type: ignore[method-assign]
            codes = await asyncio.gather(*(each.produce(B, "orders", 0, 1) for each in producers))
            assert codes == [[OK, OK]] * 50
            assert len(count) < 50
            assert await asyncio.gather(*(each.end() for each in producers)) == [OK] * 50
            for each in producers:
                await each.reach("CompleteCommit")
            assert (await contents(world, B, "orders", 1)).count(COMMIT) == 50

    run(scenario())


def test_our_producer_commits_across_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=B)
            await world.create("orders", A, B)
            async with Producer(
                world.bootstrap, ClientSettings(), transactional_id=NAME
            ) as producer:
                for number in range(10):
                    async with producer.transaction():
                        for index in (0, 1):
                            await producer.send("orders", b"%d" % number, partition=index)
            for node_id, index in ((A, 0), (B, 1)):
                log = world.partition(node_id, "orders", index).log
                while log.last_stable_offset < log.end_offset:
                    await asyncio.sleep(0.01)  # polls; the test has a timeout
                found = await contents(world, node_id, "orders", index)
                assert found.count(COMMIT) >= 10

    run(scenario())


@pytest.mark.parametrize("coordinator", [A, B])
def test_aiokafka_commits_and_aborts_across_nodes(tmp_path: Path, coordinator: BrokerId) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=coordinator, groups=B)
            await world.create("orders", A, B)
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=world.bootstrap, transactional_id=NAME
            )
            await producer.start()
            try:
                for number in range(6):
                    await producer.begin_transaction()
                    for index in (0, 1):
                        await producer.send_and_wait("orders", b"%d" % number, partition=index)
                    place = aiokafka.TopicPartition("orders", 0)
                    await producer.send_offsets_to_transaction({place: number}, "readers")
                    if number % 2:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
            finally:
                await producer.stop()
            await _expect_committed(world, {b"0", b"2", b"4"})
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("readers", topics=None)])
            (group,) = (await world.ask(B, asked, 8)).groups
            assert group.topics[0].partitions[0].committed_offset == 4

    run(scenario())


@pytest.mark.parametrize("coordinator", [A, B])
def test_librdkafka_commits_and_aborts_across_nodes(tmp_path: Path, coordinator: BrokerId) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")

    def produce(bootstrap: str) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": NAME, "log_level": 2}
        )
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            for index in (0, 1):
                producer.produce("orders", b"%d" % number, partition=index)
            producer.flush(30)
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            await world.create_internal(transactions=coordinator)
            await world.create("orders", A, B)
            await asyncio.to_thread(produce, world.bootstrap)
            await _expect_committed(world, {b"0", b"2", b"4"})

    run(scenario())


async def _expect_committed(world: TwoNodes, values: set[bytes]) -> None:
    """Read both partitions as far as transactions are over; see that only these are there."""
    async with Consumer(world.bootstrap, read_committed=True) as consumer:
        await consumer.assign("orders")
        found: dict[int, set[bytes | None]] = {0: set(), 1: set()}
        while any(len(each) < len(values) for each in found.values()):
            for record in await consumer.poll(1000):
                found[record.partition].add(record.value)
        assert found == {0: values, 1: values}
