"""The records of `__transaction_state` as Kafka writes them: one a change of a transactional id."""

from typing import Final

from headrace.coordinator.records import CoordinatorRecord, RecordTypes
from headrace.ids import NO_PRODUCER_ID
from headrace.txn.state import Place, Status, Transaction
from headrace.wire.messages.transaction_log_key import TransactionLogKey
from headrace.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

RECORD_TYPES: Final[RecordTypes] = {
    TransactionLogKey.API_KEY: (TransactionLogKey, TransactionLogValue)
}


def to_record(transaction: Transaction, level: int) -> CoordinatorRecord:
    """Return the record of a transaction at a level of transaction.version."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if level < 1:
        return CoordinatorRecord(_key(transaction.transactional_id), value, 0)
    previous = transaction.previous_producer_id
    value.previous_producer_id = transaction.producer_id if previous == NO_PRODUCER_ID else previous
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    return CoordinatorRecord(_key(transaction.transactional_id), value, 1)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(transactional_id), None)


def to_transaction(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        Status(value.transaction_status),
        tuple(
            (topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        value.transaction_last_update_timestamp_ms,
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        value.client_transaction_version,
    )


def group_by_topic(partitions: tuple[Place, ...]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped


def _by_topic(transaction: Transaction) -> list[PartitionsSchema] | None:
    """Null says that there never was one: Kafka writes it for an empty transaction."""
    if transaction.status is Status.EMPTY:
        return None
    return [
        PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in group_by_topic(transaction.partitions).items()
    ]


def _key(transactional_id: str) -> TransactionLogKey:
    return TransactionLogKey(transactional_id=transactional_id)
