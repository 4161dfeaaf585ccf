"""What takes a broker long to validate keeps its place among the requests of its connection."""

import time

from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.testing.broker import TestBroker
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse
from tests.broker.peers import MIB
from tests.differential.connection import Connection, Ending

VERSION = 9


def produce(sequence: int, inflated_bytes: int) -> ProduceRequest:
    """One record of an idempotent producer, small and inflating to a size."""
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(int(time.time() * 1000), b"key", bytes(inflated_bytes))
    records = builder.build(producer_id=77, producer_epoch=0, base_sequence=sequence)
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def test_produces_behind_a_costly_one_are_in_the_log_behind_it(headrace: TestBroker) -> None:
    headrace.create_topic("t", configs={"cleanup.policy": "compact"})
    with Connection(headrace.bootstrap) as connection:
        for sequence in range(20):
            connection.send(produce(sequence, 8 * MIB if sequence % 3 == 0 else 10), VERSION)
        for sequence in range(20):
            answer = connection.answer(ProduceRequest, VERSION)
            assert not isinstance(answer, Ending), answer
            response = answer[1]
            assert isinstance(response, ProduceResponse)
            (row,) = response.responses[0].partition_responses
            assert (row.error_code, row.base_offset) == (0, sequence)
