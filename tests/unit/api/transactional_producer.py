"""A transactional producer in few words, for tests of what a node answers it."""

import asyncio
import time
from typing import Any

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.harness import Harness

NAME = "payments"
TIMEOUT_MS = 60_000
SETTLE_SECONDS_MAX = 10


def begin(harness: Harness, *topics: str) -> "TransactionalProducer":
    """Create topics, those of coordinators included, and give a producer with an id."""
    harness.create_topic("__transaction_state")
    harness.create_topic("__consumer_offsets")
    for topic in topics:
        harness.create_topic(topic, 2)
    producer = TransactionalProducer(harness)
    producer.init()
    return producer


def pass_time(harness: Harness, milliseconds: int) -> None:
    """Move the node's clock, on its loop."""

    async def advance() -> None:
        harness.clock.advance(milliseconds)

    harness.run(advance())


class TransactionalProducer:
    """One producer; it goes on with the epoch that it was given last."""

    def __init__(self, harness: Harness, name: str = NAME) -> None:
        self.harness = harness
        self.name = name
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 5) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
        )
        codes = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        answer = self.harness.ask(request, version)
        while answer.error_code in codes and time.monotonic() < deadline:
            self.harness.run(asyncio.sleep(0.01))  # polls, up to the deadline
            answer = self.harness.ask(request, version)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return answer

    def add(self, topic: str, *indexes: int, version: int = 3) -> list[int]:
        """Say AddPartitionsToTxn as clients do; give the codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        (row,) = self.harness.ask(request, version).results_by_topic_v3_and_below
        return [each.partition_error_code for each in row.results_by_partition]

    def request(self, topic: str, *indexes: int, acks: int = -1, **other: Any) -> ProduceRequest:
        """Give a produce of one record to each partition."""
        return ProduceRequest(
            transactional_id=other.get("transactional_id", self.name),
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(index=index, records=self._batch(topic, index))
                        for index in indexes
                    ],
                )
            ],
        )

    def _batch(self, topic: str, index: int) -> bytearray:
        sequence = self.sequences.get((topic, index), 0)
        self.sequences[topic, index] = sequence + 1
        builder = BatchBuilder()
        builder.append(self.harness.clock.now_ms(), b"key", b"%d" % sequence)
        return builder.build(
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    def produce(self, topic: str, *indexes: int, version: int = 12, **other: Any) -> list[int]:
        """Produce one record to each partition; give the codes."""
        (row,) = self.harness.ask(self.request(topic, *indexes, **other), version).responses
        return [each.error_code for each in row.partition_responses]

    def end(self, *, is_commit: bool = True, version: int = 5) -> int:
        """Say EndTxn, and go on with what version 5 answers; give the code."""
        answer = self.harness.ask(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=is_commit,
            ),
            version,
        )
        if version >= 5 and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        code: int = answer.error_code
        return code

    def describe(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        (row,) = self.harness.ask(request, 0).transaction_states
        return row

    def wait_for(self, state: str) -> Any:
        """Give the description of the transaction once it is in a state."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        row = self.describe()
        while row.transaction_state != state and time.monotonic() < deadline:
            self.harness.run(asyncio.sleep(0.01))  # polls, up to the deadline
            row = self.describe()
        assert row.transaction_state == state
        return row
