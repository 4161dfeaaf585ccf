"""Verification by a coordinator on another node: what is asked, and what producers hear."""

from collections.abc import Collection
from typing import Any, cast

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TRANSACTIONS_TOPIC, BrokerId, TopicId
from headrace.metadata.ddl import Assignment, CreateTopic, RegisterBroker
from headrace.metadata.state import Endpoint
from headrace.txn.state import Place, Producer
from headrace.txn.verification_sending import VerificationSender
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.api.transactional_producer import NAME, TransactionalProducer
from tests.unit.harness import Harness

ELSEWHERE = BrokerId(2)
OK = ErrorCode.NONE
RETRIED = ErrorCode.NOT_ENOUGH_REPLICAS
ORDERS = ("orders", 0)


class Coordinator:
    """A coordinator on another node, which answers as a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerId, Producer, list[Place], bool]] = []
        self.answers: list[ErrorCode | KafkaError] = []
        self.before_answer: Any = lambda: None

    def ask(
        self,
        node_id: BrokerId,
        producer: Producer,
        places: Collection[Place],
        reply: Any,
        *,
        adds: bool,
    ) -> None:
        self.asked.append((node_id, producer, list(places), adds))
        answer = self.answers.pop(0) if self.answers else OK
        self.before_answer()
        reply(answer if isinstance(answer, KafkaError) else dict.fromkeys(places, answer))

    def close(self) -> None:
        """Nothing is under way."""


class World:
    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 1, 0)
        other = RegisterBroker(ELSEWHERE, b"e" * 16, (endpoint,), is_fenced=False)
        harness.run(harness.broker.quorum.propose(other))
        there = Assignment((ELSEWHERE,), (ELSEWHERE,), ELSEWHERE)
        change = CreateTopic(TRANSACTIONS_TOPIC, TopicId(b"t" * 16), (there,), {})
        harness.run(harness.broker.quorum.propose(change))
        harness.create_topic("__consumer_offsets")
        harness.create_topic("orders")
        self.coordinator = Coordinator()
        harness.broker.verification._sender = cast(VerificationSender, self.coordinator)
        self.producer = TransactionalProducer(harness)
        self.producer.id, self.producer.epoch = 7, 0

    def produce(self, version: int, answer: ErrorCode | KafkaError = OK) -> int:
        self.coordinator.answers.append(answer)
        self.producer.sequences.clear()
        (code,) = self.producer.produce("orders", 0, version=version)
        return code

    def commit_offsets(self, version: int, answer: ErrorCode | KafkaError = OK) -> int:
        self.coordinator.answers.append(answer)
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = TxnOffsetCommitRequest(
            transactional_id=NAME,
            group_id="readers",
            producer_id=7,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[row])],
        )
        (topic,) = self.harness.ask(request, version).topics
        code: int = topic.partitions[0].error_code
        return code


@pytest.fixture
def world(harness: Harness) -> World:
    return World(harness)


@pytest.mark.parametrize(("version", "adds"), [(11, False), (12, True)])
def test_the_first_records_of_a_transaction_are_asked_for(
    world: World, version: int, adds: bool
) -> None:
    assert world.produce(version) == OK
    assert world.coordinator.asked == [(ELSEWHERE, Producer(NAME, 7, 0), [ORDERS], adds)]
    assert world.producer.produce("orders", 0, version=version) == [OK]
    assert len(world.coordinator.asked) == 1


@pytest.mark.parametrize(
    ("version", "answer", "code"),
    [
        (12, ErrorCode.NETWORK_EXCEPTION, RETRIED),
        (12, ErrorCode.NOT_COORDINATOR, RETRIED),
        (12, ErrorCode.COORDINATOR_NOT_AVAILABLE, RETRIED),
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, RETRIED),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, RETRIED),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (12, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (12, ErrorCode.OPERATION_NOT_ATTEMPTED, RETRIED),
    ],
)
def test_producers_hear_what_they_understand(
    world: World, version: int, answer: ErrorCode, code: ErrorCode
) -> None:
    assert world.produce(version, answer) == code
    assert world.harness.partition("orders").log.end_offset == 0


def test_records_that_join_wait_a_moment_for_the_former_transaction(world: World) -> None:
    world.coordinator.answers += [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert world.produce(12) == OK
    assert len(world.coordinator.asked) == 3
    world.producer.epoch = 1
    world.coordinator.answers += [ErrorCode.CONCURRENT_TRANSACTIONS] * 1000
    assert world.produce(12) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(world.coordinator.asked) < 20


@pytest.mark.parametrize(
    ("version", "answer", "code"),
    [
        (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, OK, OK),
    ],
)
def test_offsets_of_a_transaction_hear_what_their_clients_understand(
    world: World, version: int, answer: ErrorCode, code: ErrorCode
) -> None:
    assert world.commit_offsets(version, answer) == code
    assert world.coordinator.asked[0][2:] == ([("__consumer_offsets", 0)], version >= 5)


@pytest.mark.parametrize(("version", "code"), [(11, ErrorCode.INVALID_TXN_STATE), (12, OK)])
def test_a_marker_that_came_meanwhile_counts_where_transactions_share_an_epoch(
    world: World, version: int, code: ErrorCode
) -> None:
    verification = world.harness.broker.verification
    world.coordinator.before_answer = lambda: verification._on_marker(ORDERS, 7)
    assert world.produce(version) == code
    world.coordinator.before_answer = lambda: None
    if code != OK:
        assert world.produce(version) == OK  # of another question
    assert not verification._waiting
    assert not verification._markers


def test_a_partition_whose_leader_changed_meanwhile_takes_nothing(world: World) -> None:
    partition = world.harness.partition("orders")

    def change() -> None:
        partition.leader_epoch += 1  # type: ignore[assignment]

    world.coordinator.before_answer = change
    assert world.produce(12) == ErrorCode.NOT_LEADER_OR_FOLLOWER
