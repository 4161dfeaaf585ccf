"""Transactions, from the requests of a producer to the markers in the logs of partitions."""

import asyncio
from typing import Any

import pytest

from headrace.api import add_partitions_to_txn
from headrace.api.add_partitions_to_txn import PLACES_AT_ONCE
from headrace.coordinator.machine import Outcome, told
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.ddl import DeleteTopic
from headrace.records.control import ControlType, read_control
from headrace.records.header import read_headers
from headrace.txn.markers import MarkerWriter
from headrace.txn.records import to_record
from headrace.txn.state import EPOCH_MAX, Transaction
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.growth.slices import finish_measured
from tests.unit.api.transactional_producer import (
    NAME,
    TIMEOUT_MS,
    TransactionalProducer,
    begin,
    pass_time,
)
from tests.unit.harness import Harness

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
OK = ErrorCode.NONE


def contents(harness: Harness, topic: str, index: int = 0) -> list[int | None]:
    """Give a partition's batches in order: the type of a marker, None for records."""
    log = harness.partition(topic, index).log
    chunk = harness.run(log.read_cold(0, 1 << 20, up_to=log.end_offset)) if log.end_offset else b""
    found: list[int | None] = []
    for position, header in read_headers(chunk):
        batch = chunk[position : position + header.size_bytes]
        found.append(read_control(batch, header).control_type if header.is_control else None)
    return found


def last_stable_offset(harness: Harness, topic: str) -> int:
    offset: int = harness.partition(topic, 0).log.last_stable_offset
    return offset


@pytest.mark.parametrize(("is_commit", "marker"), [(True, COMMIT), (False, ABORT)])
def test_records_of_version_2_join_by_themselves_and_end_with_a_marker(
    harness: Harness, is_commit: bool, marker: ControlType
) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0, 1) == [OK, OK]
    assert producer.produce("orders", 0) == [OK]
    row = producer.describe()
    assert (row.transaction_state, row.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
    assert [(each.topic, each.partitions) for each in row.topics] == [("orders", [0, 1])]
    assert last_stable_offset(harness, "orders") == 0
    epoch = producer.epoch
    assert producer.end(is_commit=is_commit) == OK
    assert producer.epoch == epoch + 1
    producer.wait_for("CompleteCommit" if is_commit else "CompleteAbort")
    assert contents(harness, "orders", 0) == [None, None, marker]
    assert contents(harness, "orders", 1) == [None, marker]
    assert last_stable_offset(harness, "orders") == 3


def test_transactions_follow_each_other_without_waiting(harness: Harness) -> None:
    producer = begin(harness, "orders")
    for _ in range(20):
        assert producer.produce("orders", 0) == [OK]
        assert producer.end() == OK
    assert contents(harness, "orders") == [None, COMMIT] * 20


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_records_of_version_1_need_a_partition_that_was_added(
    harness: Harness, version: int, code: ErrorCode
) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0, version=version) == [code]
    producer.sequences.clear()
    assert producer.add("orders", 0) == [OK]
    assert producer.produce("orders", 0, 1, version=version) == [OK, code]
    assert producer.end(version=4) == OK
    producer.wait_for("CompleteCommit")
    assert contents(harness, "orders", 0) == [None, COMMIT]
    assert contents(harness, "orders", 1) == []
    assert producer.produce("orders", 0, version=version) == [code]


@pytest.mark.parametrize(
    "harness", [{"transaction.partition.verification.enable": "false"}], indirect=True
)
def test_version_1_is_not_verified_where_that_is_turned_off(harness: Harness) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0, version=11) == [OK]


@pytest.mark.parametrize("version", [11, 12])
def test_who_does_not_have_the_id_writes_nothing(harness: Harness, version: int) -> None:
    producer = begin(harness, "orders")
    stranger = TransactionalProducer(harness)
    stranger.id, stranger.epoch = producer.id + 100, 0
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce("orders", 0, version=version) == [unknown]
    stranger.id, stranger.epoch = producer.id, producer.epoch + 1
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert stranger.produce("orders", 0, version=version) == [fenced]
    nobody = producer.produce("orders", 0, version=version, transactional_id="nobody")
    assert nobody == [unknown]
    assert producer.produce("orders", 0, version=version, transactional_id="") == [
        ErrorCode.INVALID_REQUEST
    ]
    assert producer.produce("orders", 0, version=version, transactional_id=None) == [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ]
    producer.id = producer.epoch = -1
    assert producer.produce("orders", 0, version=version) == [ErrorCode.INVALID_TXN_STATE]
    assert contents(harness, "orders") == []


def test_a_producer_that_was_replaced_can_do_nothing_any_more(harness: Harness) -> None:
    old = begin(harness, "orders")
    assert old.produce("orders", 0) == [OK]
    new = TransactionalProducer(harness)
    assert new.init().error_code == OK
    assert contents(harness, "orders") == [None, ABORT]
    assert old.produce("orders", 0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert old.end() == ErrorCode.PRODUCER_FENCED
    assert old.end(version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.add("orders", 0) == [ErrorCode.PRODUCER_FENCED]
    assert old.add("orders", 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert new.produce("orders", 0) == [OK]


def test_batches_that_are_sent_at_once_are_written_in_order(harness: Harness) -> None:
    producer = begin(harness, "orders")
    requests = [producer.request("orders", 0) for _ in range(10)]

    async def send() -> list[Any]:
        first = [harness.ask_async(each, 12) for each in requests[:5]]
        answers = await asyncio.gather(*first, self_paced())
        return [*answers[:-1], *answers[-1]]

    async def self_paced() -> list[Any]:
        answers = []
        for each in requests[5:]:
            answers.append(asyncio.ensure_future(harness.ask_async(each, 12)))
            await asyncio.sleep(0)
        return await asyncio.gather(*answers)

    rows = [each.responses[0].partition_responses[0] for each in harness.run(send())]
    assert [row.error_code for row in rows] == [OK] * 10
    assert [row.base_offset for row in rows] == list(range(10))


def test_a_partition_that_does_not_exist_does_not_keep_others_out(harness: Harness) -> None:
    producer = begin(harness, "orders")
    codes = producer.produce("orders", 0, 9, 1)
    assert codes == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OK]


def test_a_transaction_does_not_begin_in_the_middle(harness: Harness) -> None:
    producer = begin(harness, "orders")
    producer.sequences["orders", 0] = 5
    assert producer.produce("orders", 0) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_acks_0_is_written_once_the_coordinator_agrees(harness: Harness) -> None:
    producer = begin(harness, "orders")
    assert harness.ask(producer.request("orders", 0, acks=0), 12) is None
    assert contents(harness, "orders") == [None]
    producer.epoch += 1
    assert harness.ask(producer.request("orders", 1, acks=0), 12) is None
    assert harness.peer.is_closed


def test_an_open_transaction_is_aborted_when_its_time_is_over(harness: Harness) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0) == [OK]
    pass_time(harness, TIMEOUT_MS + 10_000)
    row = producer.wait_for("CompleteAbort")
    assert row.producer_epoch == producer.epoch + 1
    assert contents(harness, "orders") == [None, ABORT]
    assert producer.produce("orders", 0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end() == ErrorCode.INVALID_TXN_STATE


def test_what_was_decided_is_completed_after_a_restart(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0, 1) == [OK, OK]
    monkeypatch.setattr(MarkerWriter, "write", lambda *_: None)
    assert producer.end() == OK
    assert producer.describe().transaction_state == "PrepareCommit"
    assert producer.produce("orders", 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    # Older clients retry on another code.
    producer.sequences.clear()
    assert producer.produce("orders", 0, version=11) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert contents(harness, "orders") == [None]
    monkeypatch.undo()
    harness.restart()
    producer.wait_for("CompleteCommit")
    assert contents(harness, "orders", 0) == [None, COMMIT]
    assert contents(harness, "orders", 1) == [None, COMMIT]
    producer.sequences.clear()
    assert producer.produce("orders", 0) == [OK]


def test_a_partition_that_cannot_take_its_marker_is_told_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0, 1) == [OK, OK]
    append = MarkerWriter._append
    failures = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")] * 2

    def fail_at_first(writer: MarkerWriter, partition: Any, marker: Any) -> Any:
        if partition.index == 1 and failures:
            raise failures.pop()
        return append(writer, partition, marker)

    monkeypatch.setattr(MarkerWriter, "_append", fail_at_first)
    assert producer.end() == OK
    assert producer.describe().transaction_state == "PrepareCommit"
    producer.wait_for("CompleteCommit")
    assert contents(harness, "orders", 0) == [None, COMMIT]
    assert contents(harness, "orders", 1) == [None, COMMIT]


def test_a_deleted_topic_does_not_hold_up_a_transaction(harness: Harness) -> None:
    producer = begin(harness, "orders", "stock")
    assert producer.produce("orders", 0) == [OK]
    assert producer.produce("stock", 0) == [OK]
    topic_id = harness.topic("stock").topic_id
    harness.run(harness.broker.quorum.propose(DeleteTopic(topic_id, harness.clock.now_ms())))
    assert producer.end() == OK
    producer.wait_for("CompleteCommit")
    assert contents(harness, "orders") == [None, COMMIT]


def test_all_partitions_join_or_none(harness: Harness) -> None:
    producer = begin(harness, "orders")
    left, missing = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add("orders", 0, 9) == [left, missing]
    assert producer.describe().transaction_state == "Empty"
    internal = producer.add("__consumer_offsets", 0)
    assert internal == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_brokers_ask_for_many_transactions_at_once(harness: Harness) -> None:
    producer = begin(harness, "orders")
    other = TransactionalProducer(harness, "other")
    other.init()
    producer.add("orders", 0)

    def asked(by: TransactionalProducer, *indexes: int, verify: bool) -> Any:
        return AddPartitionsToTxnTransaction(
            transactional_id=by.name,
            producer_id=by.id,
            producer_epoch=by.epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))],
        )

    request = AddPartitionsToTxnRequest(
        transactions=[asked(producer, 0, 1, verify=True), asked(other, 1, verify=False)]
    )
    first, second = harness.ask(request, 5).results_by_transaction
    codes = [each.partition_error_code for each in first.topic_results[0].results_by_partition]
    assert (first.transactional_id, codes) == (NAME, [OK, ErrorCode.TRANSACTION_ABORTABLE])
    codes = [each.partition_error_code for each in second.topic_results[0].results_by_partition]
    assert (second.transactional_id, codes) == ("other", [OK])
    assert other.describe().transaction_state == "Ongoing"
    assert harness.ask(AddPartitionsToTxnRequest(), 5).results_by_transaction == []


def test_very_many_partitions_are_added_in_slices_with_the_same_answers(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "finish", finish_measured)
    count = PLACES_AT_ONCE + 20
    producer = begin(harness)
    harness.create_topic("many", count)
    assert producer.add("many", *range(count)) == [OK] * count
    assert [len(each.partitions) for each in producer.describe().topics] == [count]
    left, missing = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add("many", *range(count + 1)) == [left] * count + [missing]

    def verify(by: TransactionalProducer, topic: str) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=by.name,
            producer_id=by.id,
            producer_epoch=by.epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(range(count)))],
        )

    asked = AddPartitionsToTxnRequest([verify(producer, "many"), verify(producer, "nowhere")])
    answered = harness.ask(asked, 5).results_by_transaction
    codes = [
        {row.partition_error_code for row in each.topic_results[0].results_by_partition}
        for each in answered
    ]
    assert codes == [{OK}, {missing}]
    monkeypatch.setattr(add_partitions_to_txn, "refused_of", lambda *_, **__: 1 / 0)
    assert {
        row.partition_error_code
        for each in harness.ask(asked, 5).results_by_transaction
        for row in each.topic_results[0].results_by_partition
    } == {ErrorCode.UNKNOWN_SERVER_ERROR}


def commit_offset(
    harness: Harness, producer: TransactionalProducer, offset: int, version: int
) -> int:
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id="readers",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )
    (topic,) = harness.ask(request, version).topics
    code: int = topic.partitions[0].error_code
    return code


def committed(harness: Harness) -> int | None:
    state = harness.broker.groups.shard("readers").machine.state
    found = state.offsets.get("readers", "orders", 0)
    return None if found is None else found.offset


@pytest.mark.parametrize("is_bumping", [True, False])
def test_offsets_count_once_their_transaction_is_committed(
    harness: Harness, is_bumping: bool
) -> None:
    producer = begin(harness, "orders")
    end_version, commit_version = (5, 5) if is_bumping else (4, 4)
    if not is_bumping:
        refused = commit_offset(harness, producer, 1, 3)
        assert refused == ErrorCode.INVALID_TXN_STATE

    def commit(offset: int, *, is_commit: bool) -> None:
        if not is_bumping:
            request = AddOffsetsToTxnRequest(
                transactional_id=NAME,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                group_id="readers",
            )
            assert harness.ask(request, 4).error_code == OK
        before = committed(harness)
        assert commit_offset(harness, producer, offset, commit_version) == OK
        assert committed(harness) == before
        assert producer.end(is_commit=is_commit, version=end_version) == OK

    commit(7, is_commit=True)
    assert committed(harness) == 7
    commit(9, is_commit=False)
    assert committed(harness) == 7


def test_the_last_epoch_of_an_id_is_followed_by_a_new_id(harness: Harness) -> None:
    producer = begin(harness, "orders")
    former_id = producer.id
    now_ms = harness.clock.now_ms()
    used_up = Transaction(NAME, producer.id, EPOCH_MAX - 1, TIMEOUT_MS, updated_ms=now_ms)

    async def write() -> None:
        done = asyncio.get_running_loop().create_future()
        record = to_record(used_up, 2)
        shard = harness.broker.transactions.shard(NAME)
        shard.write(lambda *_: Outcome((record,), (told(done.set_result, None),)), done.set_result)
        assert await done is None

    harness.run(write())
    producer.epoch = EPOCH_MAX - 1
    assert producer.produce("orders", 0) == [OK]
    assert producer.end() == OK
    assert (producer.id != former_id, producer.epoch) == (True, 0)
    assert producer.produce("orders", 0) == [OK]
    assert producer.end() == OK
    assert contents(harness, "orders") == [None, COMMIT, None, COMMIT]


def test_a_producer_that_goes_on_after_an_error_names_what_it_has(harness: Harness) -> None:
    producer = begin(harness, "orders")

    def ask(epoch: int, version: int) -> tuple[int, int]:
        answer = harness.ask(
            InitProducerIdRequest(
                transactional_id=NAME,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=producer.id,
                producer_epoch=epoch,
            ),
            version,
        )
        return answer.error_code, answer.producer_epoch

    assert ask(producer.epoch + 5, 4) == (ErrorCode.PRODUCER_FENCED, -1)
    assert ask(producer.epoch + 5, 3) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert ask(producer.epoch, 5) == (OK, producer.epoch + 1)
