"""Another broker, which answers requests about transactions as a test says."""

import asyncio
from typing import Any

from headrace.errors import ErrorCode, HeadraceError
from headrace.ids import BrokerId
from headrace.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from headrace.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from headrace.wire.schema import Message

HERE, THERE, YONDER = BrokerId(1), BrokerId(2), BrokerId(3)


class Unreachable(HeadraceError):
    """What a peer raises without a response."""


class FakePeers:
    """Remembers requests, and answers each after a moment."""

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerId, Any]] = []
        self.codes: dict[Any, int] = {}
        """Codes other than NONE, by topic and partition."""
        self.failures: list[Exception] = []
        self.in_flight: dict[BrokerId, int] = {}
        self.in_flight_max = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def send(self, node_id: BrokerId, request: Message, *, version_min: int = 0) -> Any:
        self.asked.append((node_id, request))
        self.in_flight[node_id] = self.in_flight.get(node_id, 0) + 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight[node_id])
        try:
            await asyncio.sleep(0.01)
            await self.may_answer.wait()
        finally:
            self.in_flight[node_id] -= 1
        if self.failures:
            raise self.failures.pop(0)
        if isinstance(request, AddPartitionsToTxnRequest):
            return self._joined(request)
        return self._written(request)

    def _code(self, name: str, index: int) -> int:
        return self.codes.get((name, index), ErrorCode.NONE)

    def _written(self, request: Any) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self._code(topic.name, index),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _joined(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=self._code(topic.name, index),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )
