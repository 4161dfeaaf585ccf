"""Records of `__transaction_state`, as Apache Kafka 4.3.1 writes them (seen in a log of its)."""

from headrace.coordinator.records import encode_record
from headrace.txn.records import to_record, to_transaction
from headrace.txn.state import Status, Transaction
from headrace.wire.messages.transaction_log_value import TransactionLogValue

OPEN = Transaction(
    "a",
    producer_id=18,
    producer_epoch=2,
    timeout_ms=60_000,
    status=Status.ONGOING,
    partitions=(("t", 0), ("u", 3), ("t", 1)),
    updated_ms=20,
    started_ms=10,
    client_version=2,
)


def value_of(transaction: Transaction, level: int = 2) -> TransactionLogValue:
    value = to_record(transaction, level).value
    assert isinstance(value, TransactionLogValue)
    return value


def test_a_transaction_is_read_as_it_was_written() -> None:
    read = to_transaction("a", value_of(OPEN))
    assert (read.producer_id, read.producer_epoch, read.status) == (18, 2, Status.ONGOING)
    assert sorted(read.partitions) == sorted(OPEN.partitions)
    assert (read.updated_ms, read.started_ms, read.timeout_ms) == (20, 10, 60_000)
    assert read.client_version == 2


def test_the_previous_id_is_the_id_itself_unless_it_took_over() -> None:
    assert value_of(OPEN).previous_producer_id == 18
    rotated = Transaction("a", 19, 0, 60_000, previous_producer_id=18)
    assert value_of(rotated).previous_producer_id == 18


def test_no_partitions_are_null_only_where_there_never_was_a_transaction() -> None:
    empty = Transaction("a", 18, 0, 60_000)
    over = Transaction("a", 18, 0, 60_000, Status.COMPLETE_COMMIT)
    assert value_of(empty).transaction_partitions is None
    assert value_of(over).transaction_partitions == []


def test_the_feature_says_which_version_is_written() -> None:
    assert [to_record(OPEN, level).value_version for level in (0, 1, 2)] == [0, 1, 1]
    assert encode_record(to_record(OPEN, 0)).value is not None  # it has no field of version 1
