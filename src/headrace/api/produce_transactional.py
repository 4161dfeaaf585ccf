"""Transactional batches before they are appended: verification by the coordinator (KIP-890)."""

from typing import Final, NamedTuple

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.records.header import MAGIC, MAGIC_AT, BatchHeader, read_header
from headrace.replication.partition import Partition
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.txn.state import Producer
from headrace.txn.verification import Unverified, as_answered
from headrace.wire.messages.produce_response import PartitionProduceResponse

FIRST_JOINING: Final = 12
"""The version from which a partition joins the transaction by the records themselves."""
FIRST_WITH_ABORTABLE: Final = 11


class Joining(NamedTuple):
    """A batch that waits for the coordinator of its transaction."""

    producer: Producer
    partition: Partition
    header: BatchHeader
    batch: memoryview
    """Validated already."""
    rows: list[PartitionProduceResponse]
    """The response list of its row, at `position`."""
    position: int


def joining_producer(
    broker: Broker, request: Request, partition: Partition, records: memoryview
) -> Producer | None:
    """Return the producer whose coordinator must verify a transactional batch before the append.

    None if no verification is needed: the partition has the transaction open already, as for all
    batches but the first. Raise KafkaError if the batch cannot be part of a transaction.
    """
    if records[MAGIC_AT] != MAGIC:
        return None  # the bit has another meaning there
    transactional_id: str | None = request.body.transactional_id
    if transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional records in a request without a transactional id",
        )
    header = read_header(records)
    producer_id, epoch = header.producer_id, header.producer_epoch
    if producer_id < 0:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            "transactional records without a producer id: nothing could end their transaction",
        )
    if not broker.verification.is_needed(partition, producer_id, epoch):
        return None
    known = partition.log.producers.get(producer_id)
    if known is not None and epoch < known.epoch:
        raise Unverified(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} has epoch {epoch}; one with epoch {known.epoch} has taken "
            "over",
        )
    if request.version < FIRST_JOINING and not _is_verification_enabled(broker):
        return None
    return Producer(transactional_id, producer_id, epoch)


def check_first_sequence(joined: Joining, version: int) -> None:
    """Refuse a transaction that does not start at sequence 0: each has its own epoch from 12 on."""
    header = joined.header
    if version < FIRST_JOINING or header.base_sequence == 0:
        return
    if joined.partition.log.producers.get(header.producer_id) is None:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}, epoch {header.producer_epoch}: its first records "
            f"have sequence {header.base_sequence}",
        )


def refusal_of(error: KafkaError, version: int) -> Unverified:
    """Translate the coordinator's error for Produce."""
    return as_answered(
        error,
        is_abortable_known=version >= FIRST_WITH_ABORTABLE,
        try_again=ErrorCode.NOT_ENOUGH_REPLICAS,
        is_completing_known=version >= FIRST_JOINING,
    )


def _is_verification_enabled(broker: Broker) -> bool:
    enabled: bool = broker.settings[config.TRANSACTION_PARTITION_VERIFICATION_ENABLE]
    return enabled
