"""WriteTxnMarkers: API key 27, versions 1 and 2.

KIP-98, KIP-890 (the version of the transaction, from 2). Coordinators send it to the leaders of
partitions, and administrators end a transaction with it that nobody coordinates any more (KIP-664).
The response is sent once all markers are committed, or after half of `request.timeout.ms` with
REQUEST_TIMED_OUT for those that are not: a partition without replicas must not keep a coordinator
from the response for the others.

The work is in `txn.markers`.
"""

from collections.abc import Iterable
from typing import TypeAlias

from headrace import config
from headrace.coordinator.machine import Reply
from headrace.errors import COORDINATOR_UNAVAILABLE, ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.gathering import ask_in_slices
from headrace.server.request import Request
from headrace.txn.markers import Marker
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)
from headrace.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

AskedRow: TypeAlias = tuple[WritableTxnMarker, str, WritableTxnMarkerPartitionResult]
"""A marker, the topic of a partition that gets it, and the partition's row in the response."""


async def handle(broker: Broker, request: Request) -> WriteTxnMarkersResponse:
    body: WriteTxnMarkersRequest = request.body
    timeout_seconds = broker.settings[config.REQUEST_TIMEOUT_MS] / 2000
    response = WriteTxnMarkersResponse(markers=[])
    asked = await finish(read_rows(body.markers, response.markers))

    def write(asked_row: AskedRow, reply: Reply[None]) -> None:
        each, topic, row = asked_row
        if (refused := _refused(each)) is not None:
            reply(refused)
        else:
            place = topic, row.partition_index
            broker.markers.write(place, _marker(each), reply, timeout_seconds=timeout_seconds)

    await finish(_set_errors(asked, await ask_in_slices(asked, write)))
    return response


def read_rows(
    markers: list[WritableTxnMarker], results: list[WritableTxnMarkerResult]
) -> Slices[list[AskedRow]]:
    """Return the partitions that get a marker, with their rows; `results` gets all rows."""
    asked: list[AskedRow] = []
    current = Slice()
    for each in markers:
        if current.spend():
            yield
        if not any(topic.partition_indexes for topic in each.topics):
            continue  # Kafka says nothing of it either
        result = WritableTxnMarkerResult(producer_id=each.producer_id, topics=[])
        results.append(result)
        for topic in each.topics:
            rows: list[WritableTxnMarkerPartitionResult] = []
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
            for index in topic.partition_indexes:
                rows.append(WritableTxnMarkerPartitionResult(partition_index=index))
                asked.append((each, topic.name, rows[-1]))
                if current.spend():
                    yield
            if current.spend():
                yield
    return asked


def _set_errors(asked: list[AskedRow], errors: Iterable[KafkaError | None]) -> Slices[None]:
    current = Slice()
    for (_, _, row), error in zip(asked, errors, strict=True):
        if error is not None:
            # Those who send markers look for another leader then.
            is_away = error.code in COORDINATOR_UNAVAILABLE
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_away else error.code
        if current.spend():
            yield


def _refused(asked: WritableTxnMarker) -> KafkaError | None:
    if asked.producer_id >= 0 and asked.producer_epoch >= 0:
        return None
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"producer {asked.producer_id} with epoch {asked.producer_epoch} has no transactions",
    )


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
