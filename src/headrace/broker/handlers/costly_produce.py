"""Batches of a produce that a thread has to validate, or that come behind one."""

from typing import NamedTuple

from headrace.broker.inflating import Inflating
from headrace.broker.partition import Partition
from headrace.records.errors import CostlyBatch
from headrace.records.header import BatchHeader
from headrace.records.validation import validate_batch
from headrace.wire.messages.produce_response import PartitionProduceResponse


class Costly(NamedTuple):
    """A batch that waits for its turn."""

    partition: Partition
    records: memoryview
    rows: list[PartitionProduceResponse]
    """Where its answer belongs, at `position`."""
    position: int
    header: BatchHeader | None
    """None if it only comes behind one that is costly."""

    @classmethod
    def behind(
        cls,
        partition: Partition,
        records: memoryview,
        rows: list[PartitionProduceResponse],
        header: BatchHeader | None = None,
    ) -> "Costly":
        """Put a batch behind those of its topic that have their rows; its own comes to be last."""
        rows.append(PartitionProduceResponse(index=partition.index))
        return cls(partition, records, rows, len(rows) - 1, header)


async def validate_anywhere(
    inflating: Inflating, costly: Costly, now_ms: int
) -> tuple[BatchHeader, memoryview]:
    """Return what `validate_batch` accepts, on the spot or from a thread; KafkaError if nothing."""
    records, header, rules = costly.records, costly.header, costly.partition.log.settings.rules
    try:
        if header is None:
            return validate_batch(records, rules, now_ms)
    except CostlyBatch as late:
        header = late.header
    return await inflating.validate(records, header, rules, now_ms)
