"""Append and Fetch: the records of a partition that this node leads.

An Append is a Produce of one batch. With `All` it is answered when the high watermark has passed
the last record (seed 002 answered one record early), with `Leader` when the records are in the
leader's log (and on disk, where flush.messages asks for it), with `None` when they are in the log,
whatever a Produce would wait for. The protocol carries no transactional id, so transactional
batches are refused.

A Fetch is answered at once with what is there, up to the high watermark. The first batch is whole
however large, or refused if no response has room for it: such a batch came by Kafka's Produce. The
response to an offset out of range says where the log begins and ends.
"""

from typing import Any, Final

from headrace.cluster.protocol import (
    MESSAGE_BYTES_MAX,
    Acks,
    ClusterErrorCode,
    PartitionName,
    ResponseHeader,
    requests,
    responses,
)
from headrace.errors import ErrorCode
from headrace.metadata.state import NO_LEADER
from headrace.server.broker import Broker
from headrace.server.interchange.call import ClusterCall, Forwarded
from headrace.server.interchange.refusals import Refusal, check, require_partition
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
"""The last versions that name topics, and the leader is not in the response."""
RESPONSE_OVERHEAD_BYTES_MAX: Final = 1024
"""What a Fetch response has beside records: names of topics have 249 characters at most."""
RECORDS_BYTES_MAX: Final = MESSAGE_BYTES_MAX - RESPONSE_OVERHEAD_BYTES_MAX
"""How much is read, unless the first batch alone is larger."""


def append(broker: Broker, call: ClusterCall) -> Forwarded:
    asked: requests.Append = call.asked  # type: ignore[assignment]
    name = asked.partition
    _require_leader(broker, name)
    acks = asked.required_acks
    call.is_answered_early = acks is Acks.NONE
    data = PartitionProduceData(index=name.partition, records=asked.records)
    body = ProduceRequest(
        # acks=0 would have no response.
        acks=Acks.LEADER.required_acks if acks is Acks.NONE else acks.required_acks,
        timeout_ms=call.timeout_ms,
        topic_data=[TopicProduceData(name=name.topic, partition_data=[data])],
    )

    def translate(answer: ProduceResponse) -> responses.Append:
        row = answer.responses[0].partition_responses[0]
        check(row.error_code, row.error_message)
        header = ResponseHeader(call.correlation_id)
        return responses.Append(header, name, row.base_offset, row.log_append_time_ms)

    return Forwarded(body, PRODUCE_VERSION, translate)


def fetch(broker: Broker, call: ClusterCall) -> Forwarded:
    asked: requests.Fetch = call.asked  # type: ignore[assignment]
    name = asked.partition
    _require_leader(broker, name)
    bytes_max = min(asked.max_bytes, RECORDS_BYTES_MAX)
    wanted = FetchPartition(
        partition=name.partition, fetch_offset=asked.offset, partition_max_bytes=bytes_max
    )
    body = FetchRequest(
        max_bytes=bytes_max, topics=[FetchTopic(topic=name.topic, partitions=[wanted])]
    )

    def translate(answer: FetchResponse) -> responses.Fetch:
        check(answer.error_code, None)
        row = answer.responses[0].partitions[0]
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _out_of_range(broker, call, asked)
        check(row.error_code, None)
        records: Any = b"" if row.records is None else row.records
        header = ResponseHeader(call.correlation_id)
        return responses.Fetch(header, name, row.high_watermark, row.log_start_offset, records)

    return Forwarded(body, FETCH_VERSION, translate)


def _out_of_range(broker: Broker, call: ClusterCall, asked: requests.Fetch) -> responses.Fetch:
    name = asked.partition
    partition = broker.replicas.find(name.topic, name.partition)
    if partition is None:  # it was deleted after it was read
        raise broker.replicas.explain_missing(name.topic, name.partition)
    log = partition.log
    header = ResponseHeader(
        call.correlation_id,
        ClusterErrorCode.OFFSET_OUT_OF_RANGE,
        f"{partition.name} has offsets {log.start_offset} to {log.end_offset}, not {asked.offset}",
    )
    return responses.Fetch(header, name, log.high_watermark, log.start_offset, b"")


def _require_leader(broker: Broker, name: PartitionName) -> None:
    _, row = require_partition(broker.image, name)
    if row.leader == NO_LEADER:
        raise Refusal(
            ClusterErrorCode.LEADER_NOT_AVAILABLE, f"{name.topic}-{name.partition} has no leader"
        )
    if row.leader != broker.node_id:
        raise Refusal(
            ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
            f"{name.topic}-{name.partition} is led by node {row.leader}",
        )
