"""Batches of a produce that are not appended at once.

A thread has to validate them, they come behind such a batch, or there are too many for one turn.
"""

from typing import NamedTuple

from headrace.loop.inflating import Inflating
from headrace.records.errors import CostlyBatch
from headrace.records.header import BatchHeader
from headrace.records.validation import TopicRules, validate_batch
from headrace.wire.messages.produce_request import PartitionProduceData, TopicProduceData
from headrace.wire.messages.produce_response import PartitionProduceResponse


class Costly(NamedTuple):
    """A batch that waits for its turn."""

    topic: TopicProduceData
    data: PartitionProduceData
    rows: list[PartitionProduceResponse]
    """The response list of its row, at `position`."""
    position: int
    header: BatchHeader | None
    """None if it was not checked yet."""

    @classmethod
    def behind(
        cls,
        topic: TopicProduceData,
        data: PartitionProduceData,
        rows: list[PartitionProduceResponse],
        header: BatchHeader | None = None,
    ) -> "Costly":
        """Queue a batch after those of its topic with rows; its own row comes last."""
        rows.append(PartitionProduceResponse(index=data.index))
        return cls(topic, data, rows, len(rows) - 1, header)


async def validate_anywhere(
    inflating: Inflating,
    records: memoryview,
    header: BatchHeader | None,
    rules: TopicRules,
    now_ms: int,
) -> tuple[BatchHeader, memoryview]:
    """Return what `validate_batch` accepts, on the spot or from a thread; KafkaError if nothing."""
    try:
        if header is None:
            return validate_batch(records, rules, now_ms)
    except CostlyBatch as late:
        header = late.header
    return await inflating.validate(records, header, rules, now_ms)
