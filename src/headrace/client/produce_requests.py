"""Batches as Produce requests, and which row of a response is about which batch."""

from collections.abc import Sequence
from typing import Final

from headrace.client.batches import Batch
from headrace.client.errors import refusal
from headrace.client.metadata import View
from headrace.errors import KafkaError
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

TOPIC_IDS_FROM: Final = 13
"""The version of Produce from which on topics have ids instead of names."""


def produce_request(
    batches: Sequence[Batch],
    view: View,
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> ProduceRequest:
    """Return a request with batches that are encoded."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        row = PartitionProduceData(index=batch.partition.partition, records=batch.encode())
        topics.setdefault(batch.partition.topic, []).append(row)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, topic_id=view.topic_id(name), partition_data=rows)
            for name, rows in topics.items()
        ],
    )


def response_rows(
    answer: ProduceResponse, view: View, batches: Sequence[Batch], *, has_topic_ids: bool
) -> list[PartitionProduceResponse | None]:
    """Return a response's row for each batch; None for one that it lacks."""
    rows: dict[tuple[str | bytes, int], PartitionProduceResponse] = {
        (topic.topic_id if has_topic_ids else topic.name, row.index): row
        for topic in answer.responses
        for row in topic.partition_responses
    }
    return [
        rows.get((view.topic_id(name) if has_topic_ids else name, index))
        for name, index in (batch.partition for batch in batches)
    ]


def explained(batch: Batch, row: PartitionProduceResponse) -> KafkaError:
    """Return the error of a batch, with what the broker says of single records."""
    reasons = "; ".join(
        f"record {error.batch_index}: {error.batch_index_error_message}"
        for error in row.record_errors
        if error.batch_index_error_message
    )
    message = row.error_message or None
    if reasons:
        message = f"{message} ({reasons})" if message else reasons
    return refusal(row.error_code, message, f"partition {batch.partition}")
