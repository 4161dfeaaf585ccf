"""Transactions from outside: DescribeTransactions, ListTransactions and WriteTxnMarkers."""

from headrace.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.conversation import Conversation
from tests.differential.requests import Producer, Topic, batch, fetch, from_offset, produce
from tests.differential.transaction_requests import (
    add_partitions,
    begun,
    end,
    transaction_coordinator,
)

STRANGER = 987_654_321
FIRST_WITH_DURATION = 1
FIRST_WITH_PATTERN = 2


def describe_transactions(talk: Conversation) -> None:
    talk.producer_id()  # may be 0, which an answer about an unknown id has too
    producers = _transactions_of_all_kinds(talk)
    for kind in (*producers, "none"):
        request = DescribeTransactionsRequest(transactional_ids=[talk.name(kind)])
        talk.ask(f"one that is {kind}", request)
    talk.ask("an empty id", DescribeTransactionsRequest(transactional_ids=[""]))
    talk.ask("no id", DescribeTransactionsRequest())
    names = [talk.name(kind) for kind in ("open", "none", "open", "committed")]
    talk.ask("several, one twice", DescribeTransactionsRequest(transactional_ids=names))


def list_transactions(talk: Conversation) -> None:
    producers = _transactions_of_all_kinds(talk)
    talk.ask_all_versions("all", ListTransactionsRequest())
    for states in (
        *(["Ongoing"], ["ongoing"], ["Empty"], ["CompleteCommit"], ["CompleteAbort"]),
        *(["PrepareCommit"], ["Dead"], ["PrepareEpochFence"], ["none such"], [""]),
        *(["Ongoing", "Empty"], ["Ongoing", "none such"]),
    ):
        request = ListTransactionsRequest(state_filters=states)
        talk.ask_all_versions(f"in state {','.join(states)!r}", request)
    for kind, producer in producers.items():
        request = ListTransactionsRequest(producer_id_filters=[producer.id])
        talk.ask_all_versions(f"of the producer that is {kind}", request)
    stranger = ListTransactionsRequest(producer_id_filters=[STRANGER])
    talk.ask_all_versions("of a stranger", stranger)
    ids = [producers["open"].id, producers["empty"].id]
    two = ListTransactionsRequest(producer_id_filters=ids, state_filters=["Ongoing"])
    talk.ask_all_versions("of two producers, ongoing", two)
    for duration in (-2, -1, 0, 3_600_000):
        request = ListTransactionsRequest(duration_filter=duration)
        versions = range(FIRST_WITH_DURATION, 3)
        talk.ask_all_versions(f"older than {duration}", request, versions)
    for pattern in (
        *(None, "", talk.name("open"), f"{talk.prefix}.*", f"{talk.prefix}(open|empty)"),
        *("open", ".*open", "[", "(?i)X-LIST.*", "none"),
    ):
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        name = f"like {pattern and pattern.replace(talk.prefix, '')}"
        talk.ask_all_versions(name, request, (FIRST_WITH_PATTERN,))


def write_transaction_markers(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    transaction_coordinator(talk)
    number = 0
    for version in (1, 2):
        for committed in (True, False):
            number += 1
            name = talk.name(f"t{number}")
            one = begun(talk, name)
            records = batch(b"a", producer=one, is_transactional=True)
            sent = produce(topic, records, transactional_id=name)
            what = f"{'commit' if committed else 'abort'} v{version}"
            talk.ask_settled(f"produce before {what}", sent)

            def ask(
                how: str,
                producer: Producer,
                topics: dict[str, list[int]],
                *,
                committed: bool = committed,
                version: int = version,
                what: str = what,
                coordinator_epoch: int = 0,
            ) -> None:
                rows = [
                    WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in topics.items()
                ]
                marker = WritableTxnMarker(
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    transaction_result=committed,
                    topics=rows,
                    coordinator_epoch=coordinator_epoch,
                )
                request = WriteTxnMarkersRequest(markers=[marker])
                talk.ask(f"{what}: {how}", request, version)

            good = {topic.name: [0]}
            ask("an unknown topic", one, {talk.name("unknown"): [0]})
            ask("an unknown partition", one, {topic.name: [9]})
            ask("no partition", one, {topic.name: []})
            ask("no topic", one, {})
            ask("epoch -1", Producer(one.id, -1), good)
            ask("as it should be", one, good)
            ask("again", one, good)
            ask("of a producer without a transaction", one, {topic.name: [1]})
            ask("of a stranger", Producer(STRANGER + number, 0), good)
            ask("a known and an unknown topic", one, {topic.name: [1], talk.name("x"): [0]})
    ask("of an old coordinator", one, good, coordinator_epoch=-1)
    talk.ask("nothing v1", WriteTxnMarkersRequest(), 1, patience_seconds=2)
    talk.ask("what there is", fetch(from_offset(topic, 0)))
    talk.ask("what there is in the other", fetch(from_offset(topic, 0, partition=1)))
    for level in (0, 1):
        talk.ask(f"seen at level {level}", fetch(from_offset(topic, 0), isolation_level=level))
    producers = DescribeProducersRequest(
        topics=[TopicRequest(name=topic.name, partition_indexes=[0, 1])]
    )
    talk.ask("who there is", producers, hide=["last_timestamp"])


def _transactions_of_all_kinds(talk: Conversation) -> dict[str, Producer]:
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=2)
    producers = {"empty": begun(talk, talk.name("empty"))}
    for kind in ("open", "committed", "aborted"):
        producers[kind] = begun(talk, talk.name(kind))
        _add(talk, talk.name(kind), producers[kind], topic)
        if kind != "open":
            request = end(talk.name(kind), producers[kind], committed=kind == "committed")
            talk.until(request, EndTxnResponse, lambda m: m.error_code == 0, version=4)
            talk.until(
                DescribeTransactionsRequest(transactional_ids=[talk.name(kind)]),
                DescribeTransactionsResponse,
                lambda m: m.transaction_states[0].transaction_state.startswith("Complete"),
            )
    return producers


def _add(talk: Conversation, name: str, producer: Producer, topic: Topic) -> None:
    talk.until(
        add_partitions(name, producer, {topic.name: [0, 1]}),
        AddPartitionsToTxnResponse,
        lambda m: (
            m.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        ),
        version=3,
    )


SCRIPTS = (describe_transactions, list_transactions, write_transaction_markers)
