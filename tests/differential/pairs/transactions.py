"""Transactions and their producers, and the requests that show what became of them."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.schema import Message
from tests.differential.consumer_requests import topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator
from tests.differential.pairs.groups import committed, offset_fetch
from tests.differential.pairs.pair import TIMES, Pair
from tests.differential.pairs.records import BURST, offset_of
from tests.differential.requests import LATEST, Producer, Topic, batch, list_offsets, produce
from tests.differential.transaction_requests import (
    add_offsets,
    add_partitions,
    begun,
    end,
    init,
    transaction_coordinator,
)

READ_COMMITTED: Final = 1
PRODUCE_OF_TRANSACTIONS_1: Final = 11
ADD_PARTITIONS_OF_CLIENTS: Final = 3
OLD_END: Final = 4
"""EndTxn of clients whose epoch stays."""
OLD_COMMIT: Final = 4
"""TxnOffsetCommit of clients that add offsets before."""


def order_of_init_producer_id(talk: Conversation) -> None:
    transaction_coordinator(talk)
    talk.producer_id()  # the first block of ids may take a while
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        first, described, second, then, listed = talk.ask_at_once(
            f"turn {turn}",
            [init(name), describe(name), init(name), describe(name), ListTransactionsRequest()],
        )
        states = [state_of(described), state_of(then)]
        for initialised, state in zip((first, second), states, strict=True):
            assert initialised.error_code == 0
            assert state.transaction_state == "Empty"
            assert state.producer_id == initialised.producer_id
            assert state.producer_epoch == initialised.producer_epoch
        assert second.producer_epoch == first.producer_epoch + 1
        assert name in {row.transactional_id for row in listed.transaction_states}


def order_of_add_partitions_to_txn(talk: Conversation) -> None:
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=2)
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        one = begun(talk, name)
        added, described, listed = talk.ask_at_once(
            f"turn {turn}",
            [
                (add_partitions(name, one, {topic.name: [0, 1]}), ADD_PARTITIONS_OF_CLIENTS),
                describe(name),
                ListTransactionsRequest(state_filters=["Ongoing"]),
            ],
        )
        rows = added.results_by_topic_v3_and_below[0].results_by_partition
        assert [row.partition_error_code for row in rows] == [0, 0]
        assert state_of(described).transaction_state == "Ongoing"
        assert sorted(state_of(described).topics[0].partitions) == [0, 1]
        assert name in {row.transactional_id for row in listed.transaction_states}


def order_of_add_offsets_to_txn(talk: Conversation) -> None:
    """Offsets of a transaction hold back what is stable, whoever added them."""
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    for turn in range(TIMES):
        name, group = talk.name(f"t{turn}"), talk.name(f"g{turn}")
        one = begun(talk, name)
        added, described, kept, fetched, stable = talk.ask_at_once(
            f"turn {turn}",
            [
                add_offsets(name, one, group),
                describe(name),
                (commit_offsets(name, group, one, topic, 7), OLD_COMMIT),
                offset_fetch(group, topic),
                offset_fetch(group, topic, stable=True),
            ],
        )
        assert added.error_code == kept.topics[0].partitions[0].error_code == 0
        assert [row.topic for row in state_of(described).topics] == ["__consumer_offsets"]
        assert committed(fetched) == -1
        code = stable.groups[0].topics[0].partitions[0].error_code
        assert code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def order_of_txn_offset_commit(talk: Conversation) -> None:
    """The first commit adds the offsets to the transaction by itself."""
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    for turn in range(TIMES):
        name, group = talk.name(f"t{turn}"), talk.name(f"g{turn}")
        one = begun(talk, name)
        kept, stable, described = talk.ask_at_once(
            f"turn {turn}",
            [
                commit_offsets(name, group, one, topic, 7),
                offset_fetch(group, topic, stable=True),
                describe(name),
            ],
        )
        assert kept.topics[0].partitions[0].error_code == 0
        code = stable.groups[0].topics[0].partitions[0].error_code
        assert code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert state_of(described).transaction_state == "Ongoing"


def order_of_transactional_produces(talk: Conversation) -> None:
    """The first produce to a partition adds it to the transaction; the others wait for that."""
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=TIMES)
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        one = begun(talk, name)
        requests = [
            transactional(topic, name, Producer(one.id, one.epoch, sequence), turn)
            for sequence in range(BURST)
        ]
        asked = [
            *requests,
            list_offsets(topic, (turn, LATEST)),
            list_offsets(topic, (turn, LATEST), isolation_level=READ_COMMITTED),
            describe(name),
        ]
        *produced, written, stable, described = talk.ask_at_once(f"turn {turn}", asked)
        rows = [answer.responses[0].partition_responses[0] for answer in produced]
        assert [(row.error_code, row.base_offset) for row in rows] == [
            (0, offset) for offset in range(BURST)
        ]
        assert [offset_of(written), offset_of(stable)] == [BURST, 0]
        assert state_of(described).topics[0].partitions == [turn]


def order_of_end_txn(talk: Conversation) -> None:
    """A transaction that is ended is over, or about to be; when its markers are there is open."""
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=TIMES)
    for is_committed, kind in ((True, "Commit"), (False, "Abort")):
        for turn in range(TIMES):
            name = talk.name(f"{kind}{turn}")
            one = begun(talk, name)
            added = add_partitions(name, one, {topic.name: [turn]})
            asked: list[Message | tuple[Message, int]] = [
                (added, ADD_PARTITIONS_OF_CLIENTS),
                (transactional(topic, name, one, turn), PRODUCE_OF_TRANSACTIONS_1),
                describe(name),
                (end(name, one, committed=is_committed), OLD_END),
                describe(name),
            ]
            _, produced, before, ended, after = talk.quietly_at_once(asked)
            assert produced.responses[0].partition_responses[0].error_code == 0
            assert ended.error_code == 0
            assert state_of(before).transaction_state == "Ongoing"
            assert state_of(after).transaction_state in (f"Prepare{kind}", f"Complete{kind}")


def order_of_write_txn_markers(talk: Conversation) -> None:
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=TIMES)
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        one = begun(talk, name)
        stable = list_offsets(topic, (turn, LATEST), isolation_level=READ_COMMITTED)
        row = WritableTxnMarkerTopic(name=topic.name, partition_indexes=[turn])
        marker = WritableTxnMarker(
            producer_id=one.id,
            producer_epoch=one.epoch,
            transaction_result=True,
            topics=[row],
            coordinator_epoch=0,
        )
        _, before, marked, after = talk.ask_at_once(
            f"turn {turn}",
            [
                transactional(topic, name, one, turn),
                stable,
                WriteTxnMarkersRequest(markers=[marker]),
                stable,
            ],
        )
        assert marked.markers[0].topics[0].partitions[0].error_code == 0
        assert [offset_of(before), offset_of(after)] == [0, 2]


def transactional(topic: Topic, name: str, producer: Producer, partition: int) -> Message:
    records = batch(b"a", producer=producer, is_transactional=True)
    return produce(topic, records, partition=partition, transactional_id=name)


def commit_offsets(
    name: str, group: str, producer: Producer, topic: Topic, offset: int
) -> TxnOffsetCommitRequest:
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=[row])],
    )


def describe(name: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=[name])


def state_of(described: DescribeTransactionsResponse) -> TransactionState:
    return described.transaction_states[0]


PAIRS: Final = (
    Pair(order_of_init_producer_id, (ApiKey.INIT_PRODUCER_ID,)),
    Pair(order_of_add_partitions_to_txn, (ApiKey.ADD_PARTITIONS_TO_TXN,)),
    Pair(order_of_add_offsets_to_txn, (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)),
    Pair(order_of_txn_offset_commit, (ApiKey.TXN_OFFSET_COMMIT,)),
    Pair(order_of_transactional_produces, (ApiKey.PRODUCE,)),
    Pair(order_of_end_txn, (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.END_TXN)),
    Pair(order_of_write_txn_markers, (ApiKey.WRITE_TXN_MARKERS,)),
)
