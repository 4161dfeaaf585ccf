"""Transactions that were open for too long: what is left of them, and what their producers hear.

Both versions of transactions (KIP-890), and each late producer does something else.
"""

from typing import Final

from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from tests.differential.conversation import Conversation
from tests.differential.requests import (
    LATEST,
    Producer,
    Topic,
    batch,
    fetch,
    from_offset,
    list_offsets,
    produce,
)
from tests.differential.transaction_requests import (
    add_offsets,
    add_partitions,
    end,
    init,
    transaction_coordinator,
)

TIMEOUT_MS: Final = 1500


class _Late:
    """A producer whose transaction has one record, and time to run out."""

    def __init__(self, talk: Conversation, what: str, produce_version: int) -> None:
        self.talk = talk
        self.what = f"{what} v{produce_version}"
        self.name = talk.name(self.what.replace(" ", "-"))
        self.topic: Topic = talk.topic(f"of-{what}-{produce_version}")
        self.produce_version = produce_version
        got = talk.until(
            init(self.name, TIMEOUT_MS), InitProducerIdResponse, lambda m: m.error_code == 0
        )
        talk.plain(got)  # numbers its id
        self.first = self.producer = Producer(got.producer_id, got.producer_epoch, 0)
        self.send("a record in time")

    def send(self, what: str) -> None:
        if self.produce_version < 12:
            self.add(what)
        records = batch(b"a", producer=self.producer, is_transactional=True)
        request = produce(self.topic, records, transactional_id=self.name)
        self.talk.ask_settled(f"{self.what}: {what}", request, self.produce_version)

    def add(self, what: str) -> None:
        added = add_partitions(self.name, self.producer, {self.topic.name: [0]})
        self.talk.ask_settled(f"{self.what}: partition of {what}", added, 3)

    def end(self, what: str, version: int, *, committed: bool) -> None:
        request = end(self.name, self.producer, committed=committed)
        got = self.talk.ask_settled(f"{self.what}: {what} v{version}", request, version)
        if isinstance(got, EndTxnResponse) and got.producer_id >= 0:
            self.producer = Producer(got.producer_id, got.producer_epoch, 0)

    def begin(self, what: str, *, is_named: bool) -> None:
        named = (self.producer.id, self.producer.epoch) if is_named else (-1, -1)
        got = self.talk.ask_settled(f"{self.what}: {what}", init(self.name, 60_000, named))
        assert isinstance(got, InitProducerIdResponse)
        self.producer = Producer(got.producer_id, got.producer_epoch, 0)

    def go_on(self, version: int) -> None:
        """Do a transaction with what it has, which is in time."""
        self.send("a record of the next")
        self.end("the end of the next", version, committed=True)

    def until_aborted(self) -> None:
        self.talk.until(
            self._described(),
            DescribeTransactionsResponse,
            lambda m: m.transaction_states[0].transaction_state == "CompleteAbort",
        )

    def see(self, when: str) -> None:
        """Keep what is there of it, for readers and for administrators."""
        ask = self.talk.ask
        ask(f"{self.what}: transaction {when}", self._described())
        for level, word in ((0, "all"), (1, "committed")):
            request = fetch(from_offset(self.topic, 0), isolation_level=level)
            ask(f"{self.what}: records {when}, {word}", request)
            asked = list_offsets(self.topic, (0, LATEST), isolation_level=level)
            ask(f"{self.what}: end {when}, {word}", asked)
        rows = [TopicRequest(name=self.topic.name, partition_indexes=[0])]
        described = DescribeProducersRequest(topics=rows)
        ask(f"{self.what}: producers {when}", described, hide=["last_timestamp"])

    def _described(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=[self.name])


def transactions_timed_out_of_version_1(talk: Conversation) -> None:
    _time_out(talk, produce_version=11, end_version=4)


def transactions_timed_out_of_version_2(talk: Conversation) -> None:
    _time_out(talk, produce_version=13, end_version=5)


def _time_out(talk: Conversation, *, produce_version: int, end_version: int) -> None:
    transaction_coordinator(talk)
    kinds = ("commits", "aborts", "produces", "adds", "offsets", "begins", "replaced")
    late = {kind: _Late(talk, kind, produce_version) for kind in kinds}
    for each in late.values():
        each.until_aborted()
    for each in late.values():
        each.see("when it is late")
    commits, aborts = late["commits"], late["aborts"]
    for version in (end_version, 1, 0):
        commits.end("commit", version, committed=True)
    for version in (end_version, 1, 0):
        aborts.end("abort", version, committed=False)
    aborts.go_on(end_version)
    late["produces"].send("another record")
    late["produces"].begin("begin after that", is_named=True)
    late["produces"].go_on(end_version)
    late["adds"].add("its own")
    offsets = late["offsets"]
    asked = add_offsets(offsets.name, offsets.producer, talk.name("group"))
    talk.ask_settled(f"{offsets.what}: add them", asked)
    late["begins"].begin("begin as itself", is_named=True)
    late["begins"].go_on(end_version)
    replaced = late["replaced"]
    replaced.begin("another begins", is_named=False)
    replaced.go_on(end_version)
    replaced.producer = replaced.first
    replaced.end("a commit of the first", end_version, committed=True)
    replaced.begin("the first begins", is_named=True)
    for each in late.values():
        each.see("at the end")
    talk.ask("all of them", ListTransactionsRequest(transactional_id_pattern=f"{talk.prefix}.*"))


SCRIPTS = (transactions_timed_out_of_version_1, transactions_timed_out_of_version_2)
